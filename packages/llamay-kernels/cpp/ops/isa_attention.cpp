#include <string.h>

#include "llamay/kv_view.h"
#include "ops/attention.hpp"
#include "simd/isa.hpp"
#include "simd/math.hpp"
#include "simd/product.hpp"

namespace llamay {
namespace {

uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

template <class T>
T* keys_at(const KvPages& p, const AttentionShape& s, uint32_t head, uint32_t position) {
  const uint32_t slot = position & ((1u << p.page_shift) - 1);
  return reinterpret_cast<T*>(p.page(position) + p.k_offset) +
         ((static_cast<size_t>(head) * s.k_dim) << p.page_shift) + slot;
}
template <class T>
T* values_at(const KvPages& p, const AttentionShape& s, uint32_t head, uint32_t position) {
  const uint32_t slot = position & ((1u << p.page_shift) - 1);
  return reinterpret_cast<T*>(p.page(position) + p.v_offset) +
         ((static_cast<size_t>(head) << p.page_shift) + slot) * s.v_dim;
}

template <class T>
void write_as(const KvPages& pages, const AttentionShape& shape, uint32_t head, uint32_t first,
              uint32_t tokens, const float* k, size_t k_stride, const float* v, size_t v_stride) {
  const size_t page = size_t{1} << pages.page_shift;
  T row[16];
  for (uint32_t t = 0; t < tokens; ++t, k += k_stride, v += v_stride) {
    T* key = keys_at<T>(pages, shape, head, first + t);
    for (uint32_t d = 0; d < shape.k_dim; d += 16) {
      const int n = static_cast<int>(least(16, shape.k_dim - d));
      store_lanes(row, load(k + d, n), n);
      for (int i = 0; i < n; ++i) key[(d + static_cast<uint32_t>(i)) * page] = row[i];
    }
    T* value = values_at<T>(pages, shape, head, first + t);
    for (uint32_t d = 0; d < shape.v_dim; d += 16) {
      const int n = static_cast<int>(least(16, shape.v_dim - d));
      store_lanes(value + d, load(v + d, n), n);
    }
  }
}

void write(const KvPages& pages, const AttentionShape& shape, uint32_t head, uint32_t first, uint32_t tokens,
           const float* k, size_t k_stride, const float* v, size_t v_stride) {
  (pages.dtype == LLAMAY_KV_F16 ? write_as<half> : write_as<float>)(pages, shape, head, first, tokens, k,
                                                                    k_stride, v, v_stride);
}

/// One task at work: rows are tokens times query heads, in that order; everything about a block lies in
/// scratch.
template <class T>
class Attention {
 public:
  explicit Attention(const AttentionTask& task)
      : t_(task),
        s_(*task.shape),
        group_(s_.group()),
        rows_(task.tokens * group_),
        v_floats_(lanes_up(s_.v_dim)) {
    float* at = task.scratch;
    const auto take = [&at](size_t n) {
      float* p = at;
      at += n;
      return p;
    };
    const size_t vector_rows = lanes_up(rows_);
    scores_ = take(rows_ * kAttentionBlock);
    block_out_ = take(rows_ * v_floats_);
    out_ = take(rows_ * v_floats_);
    block_max_ = take(vector_rows);
    block_sum_ = take(vector_rows);
    max_ = take(vector_rows);
    sum_ = take(vector_rows);
    old_weight_ = take(vector_rows);
    new_weight_ = take(vector_rows);
    near_keys_ = take(kAttentionBlock * s_.k_dim);
    near_values_ = take(kAttentionBlock * v_floats_);
  }

  void attend() {
    uint32_t merged = 0;  // rows before this one have seen a block
    for (uint32_t block = t_.block_begin; block < t_.block_end; ++block) {
      if (!start(block)) continue;
      for (uint32_t row = row_begin_; row < row_end_; row += kTileRows)
        compute(row, least(row + kTileRows, row_end_));
      merged = merge_block(merged);
    }
    for (uint32_t row = 0; row < rows_; ++row) finish(row, out_ + row * v_floats_, sum_[row]);
  }

  void attend_blocks() {
    const size_t record = partial_floats(s_);
    for (uint32_t block = t_.block_begin; block < t_.block_end; ++block) {
      if (!start(block)) continue;
      for (uint32_t row = row_begin_; row < row_end_; row += kTileRows)
        compute(row, least(row + kTileRows, row_end_));
      for (uint32_t row = row_begin_; row < row_end_; ++row) {
        float* partial = t_.partials + (static_cast<size_t>(block - t_.block_begin) * rows_ + row) * record;
        memcpy(partial, block_out_ + row * v_floats_, v_floats_ * sizeof(float));
        partial[v_floats_] = block_max_[row];
        partial[v_floats_ + 1] = block_sum_[row];
      }
    }
  }

  void merge() {
    const size_t record = partial_floats(s_);
    uint32_t merged = 0;
    for (uint32_t block = t_.block_begin; block < t_.block_end; ++block) {
      if (!visible_rows(block)) continue;
      for (uint32_t row = row_begin_; row < row_end_; ++row) {
        const float* partial =
            t_.partials + (static_cast<size_t>(block - t_.block_begin) * rows_ + row) * record;
        memcpy(block_out_ + row * v_floats_, partial, v_floats_ * sizeof(float));
        block_max_[row] = partial[v_floats_];
        block_sum_[row] = partial[v_floats_ + 1];
      }
      merged = merge_block(merged);
    }
    for (uint32_t row = 0; row < rows_; ++row) finish(row, out_ + row * v_floats_, sum_[row]);
  }

 private:
  uint32_t position(uint32_t row) const { return t_.first + row / group_; }
  /// The visible positions of a row, counted from the block's start.
  uint32_t low(uint32_t row) const {
    const uint32_t first = s_.first_visible(position(row));
    return first > start_ ? first - start_ : 0;
  }
  uint32_t high(uint32_t row) const { return least(kAttentionBlock, position(row) + 1 - start_); }

  /// Which rows see something of the block. Later rows stop seeing what is behind, earlier ones what is
  /// ahead.
  bool visible_rows(uint32_t block) {
    start_ = block * kAttentionBlock;
    const uint32_t ahead = start_ > t_.first ? start_ - t_.first : 0;
    const uint64_t past =
        uint64_t{start_} + kAttentionBlock - 1 + s_.window;  // first position that is too late
    const uint64_t tokens = !s_.window ? t_.tokens : past > t_.first ? past - t_.first : 0;
    row_begin_ = least(ahead, t_.tokens) * group_;
    row_end_ = (tokens < t_.tokens ? static_cast<uint32_t>(tokens) : t_.tokens) * group_;
    return row_begin_ < row_end_;
  }

  bool start(uint32_t block) {
    if (!visible_rows(block)) return false;
    begin_ = low(row_begin_) / 16 * 16;
    end_ = high(row_end_ - 1);
    near_ = row_end_ - row_begin_ > kTileRows &&
            (sizeof(T) != sizeof(float) || (1u << t_.pages->page_shift) < kAttentionBlock);
    if (near_) bring_near();
    return true;
  }

  /// Runs f(first key, one past the last) for the parts of [from, to) that lie in one page each.
  template <class F>
  void each_page(uint32_t from, uint32_t to, F f) const {
    const uint32_t page = 1u << t_.pages->page_shift;
    while (from < to) {
      const uint32_t next = least(to, ((start_ + from) / page + 1) * page - start_);
      f(from, next);
      from = next;
    }
  }

  /// Widens the block once for all rows that will read it. What nobody has written stays unread: such lanes
  /// are zero.
  void bring_near() {
    each_page(begin_, end_, [this](uint32_t from, uint32_t to) {
      const T* key = keys_at<T>(*t_.pages, s_, t_.kv_head, start_ + from);
      for (uint32_t d = 0; d < s_.k_dim; ++d, key += size_t{1} << t_.pages->page_shift)
        for (uint32_t j = from; j < to; j += 16) {
          const int n = static_cast<int>(least(16, to - j));
          store(near_keys_ + d * kAttentionBlock + j,
                n == 16 ? load_lanes(key + j - from) : load_lanes(key + j - from, n));
        }
      const T* value = values_at<T>(*t_.pages, s_, t_.kv_head, start_ + from);
      for (uint32_t j = from; j < to; ++j, value += s_.v_dim)
        for (uint32_t d = 0; d < s_.v_dim; d += 16) {
          const int n = static_cast<int>(least(16, s_.v_dim - d));
          store(near_values_ + j * v_floats_ + d, n == 16 ? load_lanes(value + d) : load_lanes(value + d, n));
        }
    });
  }

  /// The block's maximum, sum and weighted values for rows [from, to), at most kTileRows of them.
  void compute(uint32_t from, uint32_t to) {
    const int n = static_cast<int>(to - from);
    const float* q[kTileRows];
    float* out[kTileRows];
    float* score[kTileRows];
    uint32_t low_most = 0, high_least = kAttentionBlock, low_least = kAttentionBlock, high_most = 0;
    for (int i = 0; i < n; ++i) {
      const uint32_t row = from + static_cast<uint32_t>(i), l = low(row), h = high(row);
      q[i] = t_.q + row / group_ * t_.q_stride + row % group_ * s_.k_dim;
      score[i] = scores_ + row * kAttentionBlock;
      out[i] = block_out_ + row * v_floats_;
      low_most = most(low_most, l);
      low_least = least(low_least, l);
      high_least = least(high_least, h);
      high_most = most(high_most, h);
    }

    const uint32_t begin = low_least / 16 * 16;
    if (near_) {
      float* to_scores[kTileRows];
      for (int i = 0; i < n; ++i) to_scores[i] = score[i] + begin;
      product(n, q, near_keys_ + begin, kAttentionBlock, s_.k_dim, to_scores, high_most - begin, false);
    } else {
      each_page(begin, high_most, [&](uint32_t a, uint32_t b) {
        float* to_scores[kTileRows];
        for (int i = 0; i < n; ++i) to_scores[i] = score[i] + a;
        product(n, q, keys_at<T>(*t_.pages, s_, t_.kv_head, start_ + a), size_t{1} << t_.pages->page_shift,
                s_.k_dim, to_scores, b - a, false);
      });
    }
    for (uint32_t row = from; row < to; ++row) softmax(row);

    // Each row adds its visible values in increasing order; where all rows see a key they add it together.
    if (low_most < high_least) {
      for (int i = 0; i < n; ++i)
        weigh(1, &score[i], &out[i], low(from + static_cast<uint32_t>(i)), low_most, false);
      const bool begun = low_least < low_most;
      if (begun)
        for (int i = 0; i < n; ++i)
          if (low(from + static_cast<uint32_t>(i)) == low_most) memset(out[i], 0, v_floats_ * sizeof(float));
      weigh(n, score, out, low_most, high_least, begun);
      for (int i = 0; i < n; ++i)
        weigh(1, &score[i], &out[i], high_least, high(from + static_cast<uint32_t>(i)), true);
    } else {
      for (int i = 0; i < n; ++i) {
        const uint32_t row = from + static_cast<uint32_t>(i);
        weigh(1, &score[i], &out[i], low(row), high(row), false);
      }
    }
  }

  /// Scores become weights, in place: exp(s - maximum), +0 where there is no visible key.
  void softmax(uint32_t row) {
    float* score = scores_ + row * kAttentionBlock;
    const int l = static_cast<int>(low(row)), h = static_cast<int>(high(row));
    const f32x16 scale = splat(s_.scale), cap = splat(s_.softcap), nothing = splat(-__builtin_inff());
    f32x16 largest = nothing;
    const auto visible = [l, h](int j, f32x16 yes, f32x16 no) {
      const int first = l > j ? l - j : 0, count = h - j < 16 ? h - j : 16;
      const f32x16 seen = select(first_lanes(count), yes, no);
      return first ? select(first_lanes(first < 16 ? first : 16), no, seen) : seen;
    };
    for (int j = l / 16 * 16; j < h; j += 16) {
      f32x16 s = scale * load(score + j);
      if (s_.softcap != 0.0f) s = softcap(s, cap);
      s = visible(j, s, nothing);
      store(score + j, s);
      largest = max(largest, s);
    }
    block_max_[row] = max16(largest);
    const f32x16 m = splat(block_max_[row]);
    f32x16 sum = zero();
    for (int j = l / 16 * 16; j < h; j += 16) {
      const f32x16 p = visible(j, exp(load(score + j) - m), zero());
      store(score + j, p);
      sum = sum + p;
    }
    block_sum_[row] = tree16(sum);
  }

  void weigh(int n, float* const* weights, float* const* out, uint32_t from, uint32_t to, bool accumulate) {
    const float* p[kTileRows];
    const auto at = [&](uint32_t j) {
      for (int i = 0; i < n; ++i) p[i] = weights[i] + j;
      return p;
    };
    if (near_) {
      if (from < to)
        product(n, at(from), near_values_ + from * v_floats_, v_floats_, to - from, out, s_.v_dim,
                accumulate);
      return;
    }
    each_page(from, to, [&](uint32_t a, uint32_t b) {
      product(n, at(a), values_at<T>(*t_.pages, s_, t_.kv_head, start_ + a), s_.v_dim, b - a, out, s_.v_dim,
              accumulate);
      accumulate = true;
    });
  }

  /// Adds the block to what rows before it have; rows from `merged` on take it as it is. Returns the new
  /// `merged`.
  uint32_t merge_block(uint32_t merged) {
    const uint32_t known = least(most(merged, row_begin_), row_end_);
    for (uint32_t row = row_begin_; row < known; row += 16) {
      const int n = static_cast<int>(least(16, known - row));
      const f32x16 old = load(max_ + row, n), here = load(block_max_ + row, n), larger = max(old, here);
      const f32x16 a = exp(old - larger), b = exp(here - larger);
      store(max_ + row, larger, n);
      store(sum_ + row, fma(load(block_sum_ + row, n), b, load(sum_ + row, n) * a), n);
      store(old_weight_ + row, a, n);
      store(new_weight_ + row, b, n);
    }
    for (uint32_t row = row_begin_; row < known; ++row) {
      float* out = out_ + row * v_floats_;
      const float* add = block_out_ + row * v_floats_;
      const f32x16 a = splat(old_weight_[row]), b = splat(new_weight_[row]);
      for (size_t d = 0; d < v_floats_; d += 16) store(out + d, fma(load(add + d), b, load(out + d) * a));
    }
    for (uint32_t row = known; row < row_end_; ++row) {
      max_[row] = block_max_[row];
      sum_[row] = block_sum_[row];
      memcpy(out_ + row * v_floats_, block_out_ + row * v_floats_, v_floats_ * sizeof(float));
    }
    return most(merged, row_end_);
  }

  void finish(uint32_t row, const float* from, float sum) {
    float* out = t_.out + row / group_ * t_.out_stride + row % group_ * s_.v_dim;
    const f32x16 inverse = splat(1.0f / sum);
    for (uint32_t d = 0; d < s_.v_dim; d += 16) {
      const int n = static_cast<int>(least(16, s_.v_dim - d));
      store(out + d, load(from + d) * inverse, n);
    }
  }

  const AttentionTask& t_;
  const AttentionShape& s_;
  const uint32_t group_, rows_;
  const size_t v_floats_;
  float *scores_, *block_out_, *out_, *block_max_, *block_sum_, *max_, *sum_, *old_weight_, *new_weight_,
      *near_keys_, *near_values_;
  uint32_t start_ = 0, row_begin_ = 0, row_end_ = 0, begin_ = 0, end_ = 0;
  bool near_ = false;
};

void attend(const AttentionTask& task) {
  if (task.pages->dtype == LLAMAY_KV_F16)
    Attention<half>(task).attend();
  else
    Attention<float>(task).attend();
}
void attend_blocks(const AttentionTask& task) {
  if (task.pages->dtype == LLAMAY_KV_F16)
    Attention<half>(task).attend_blocks();
  else
    Attention<float>(task).attend_blocks();
}
void merge(const AttentionTask& task) { Attention<float>(task).merge(); }

}  // namespace
}  // namespace llamay

extern "C" const llamay::AttentionTable LLAMAY_TABLE(attention);
const llamay::AttentionTable LLAMAY_TABLE(attention) = {llamay::write, llamay::attend, llamay::attend_blocks,
                                                        llamay::merge};
