#include <string.h>

#include "ops/attention/attention.hpp"
#include "ops/attention/kv_elements.hpp"
#include "ops/attention/row_blocks.hpp"
#include "simd/isa.hpp"
#include "simd/math.hpp"
#include "simd/product.hpp"

namespace llamay {
namespace {

/// The computation of one task. Rows are tokens times query heads, in that order; all data about a block lie
/// in scratch. K, V: element types of the pages; latent: pages hold K only, and the values are a part of it.
template <class K, class V, bool latent = false>
class Attention {
 public:
  explicit Attention(const AttentionTask& task)
      : t_(task),
        s_(*task.shape),
        group_(s_.group()),
        rows_(task.n_tokens * group_),
        v_floats_(lanes_up(s_.v_dim)),
        near_stride_(latent ? v_floats_ + kNearPad : v_floats_) {
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
    near_values_ = take(kAttentionBlock * near_stride_);
    key_scales_ = take(kAttentionBlock);
    value_scales_ = latent ? key_scales_ : take(kAttentionBlock);
  }

  void attend() {
    each_block([this](uint32_t, uint32_t from, uint32_t to) {
      compute_all(from, to);
      merge_block(from, to);
    });
    for (uint32_t row = 0; row < rows_; ++row) finish(row);
  }

  void attend_blocks() {
    each_block([this](uint32_t block, uint32_t from, uint32_t to) {
      compute_all(from, to);
      if (t_.folds)
        merge_block(from, to);
      else
        for (uint32_t row = from; row < to; ++row) keep(block, row, block_out_, block_max_, block_sum_);
    });
    if (!t_.folds) return;
    for (uint32_t token = segment_->token_begin; token < segment_->token_end; ++token)
      if (begun_[token])
        for (uint32_t row = token * group_; row < (token + 1) * group_; ++row)
          keep(last_block(token, segment_->block_end), row, out_, max_, sum_);
  }

  void merge() {
    each_block([this](uint32_t block, uint32_t from, uint32_t to) {
      const bool folded = segment_ == t_.segments && block < t_.folded_end;
      for (uint32_t row = from; row < to; row += group_) {
        if (folded && block != last_block(row / group_, t_.folded_end)) continue;
        for (uint32_t r = row; r < row + group_; ++r) {
          const float* record = partial(block, r);
          memcpy(block_out_ + r * v_floats_, record, v_floats_ * sizeof(float));
          block_max_[r] = record[v_floats_];
          block_sum_[r] = record[v_floats_ + 1];
        }
        merge_block(row, row + group_);
      }
    });
    for (uint32_t row = 0; row < rows_; ++row) finish(row);
  }

 private:
  /// Runs f(block, first row, one past the last) for the rows that see positions of each block, with a call
  /// for each contiguous range of such rows. With several contexts a row may see nothing of a block that rows
  /// before and after it see.
  template <class F>
  void each_block(F f) {
    for (uint32_t i = 0; i < t_.n_segments; ++i) {
      segment_ = &t_.segments[i];
      for (uint32_t block = segment_->block_begin; block < segment_->block_end; ++block) {
        start_ = block * kAttentionBlock;
        look_ahead(block + 1 < segment_->block_end);
        for (uint32_t token = segment_->token_begin; token < segment_->token_end; ++token) {
          const uint32_t position = t_.tokens[token].position, first = s_.first_visible(position);
          low_[token] = first > start_ ? least(first - start_, kAttentionBlock) : 0;
          high_[token] = position < start_ ? 0 : least(kAttentionBlock, position + 1 - start_);
        }
        for (uint32_t token = segment_->token_begin, end; token < segment_->token_end; token = end + 1) {
          for (end = token; end < segment_->token_end && low_[end] < high_[end];) ++end;
          if (token < end) f(block, token * group_, end * group_);
        }
      }
    }
  }

  /// Computes the distance from this block's keys and values to the next ones to prefetch: those of the next
  /// block, of the next segment's first block, or of the thread's probable next task. Blocks are too far
  /// apart and too short for the hardware prefetcher, and a burst of prefetches would mostly be dropped.
  void look_ahead(bool more) {
    keys_ahead_ = values_ahead_ = 0;
    const KvPages& here = *segment_->pages;
    AttentionPlace next{&here, t_.kv_head, start_ / kAttentionBlock + 1};
    if (!more)
      next = segment_ + 1 == t_.segments + t_.n_segments
                 ? t_.next
                 : AttentionPlace{segment_[1].pages, t_.kv_head, segment_[1].block_begin};
    if (!next.pages || (1u << here.page_shift) < kAttentionBlock ||
        next.pages->page_shift != here.page_shift || next.pages->dtype != here.dtype)
      return;
    const uint32_t start = next.block * kAttentionBlock;
    const auto distance = [](const auto* to, const auto* from) {
      return reinterpret_cast<const char*>(to) - reinterpret_cast<const char*>(from);
    };
    keys_ahead_ =
        distance(keys_at<K>(*next.pages, s_, next.kv_head, start), keys_at<K>(here, s_, t_.kv_head, start_));
    if constexpr (!latent)
      values_ahead_ = distance(values_at<V>(*next.pages, s_, next.kv_head, start),
                               values_at<V>(here, s_, t_.kv_head, start_));
  }

  float* partial(uint32_t block, uint32_t row) const {
    const size_t rows = (segment_->token_end - segment_->token_begin) * group_;
    return t_.partials + segment_->partials +
           ((block - segment_->block_begin) * rows + row - segment_->token_begin * group_) *
               partial_floats(s_);
  }

  void keep(uint32_t block, uint32_t row, const float* out, const float* maxima, const float* sums) const {
    float* record = partial(block, row);
    memcpy(record, out + row * v_floats_, v_floats_ * sizeof(float));
    record[v_floats_] = maxima[row];
    record[v_floats_ + 1] = sums[row];
  }

  /// The last of the blocks before `end` that a token sees.
  uint32_t last_block(uint32_t token, uint32_t end) const {
    return least(t_.tokens[token].position / kAttentionBlock, end - 1);
  }

  /// The visible positions of a row, counted from the block's start.
  uint32_t low(uint32_t row) const { return low_[row / group_]; }
  uint32_t high(uint32_t row) const { return high_[row / group_]; }

  /// Runs f(first key, one past the last) for the parts of [from, to) that lie in one page each.
  template <class F>
  void each_page(uint32_t from, uint32_t to, F f) const {
    each_part(segment_->pages->page_shift, start_, from, to, f);
  }

  void compute_all(uint32_t from, uint32_t to) {
    uint32_t begin = kAttentionBlock, end = 0;
    for (uint32_t row = from; row < to; row += group_) {
      begin = least(begin, low(row));
      end = most(end, high(row));
    }
    begin = begin / 16 * 16;
    const bool apart = (1u << segment_->pages->page_shift) < kAttentionBlock;
    near_ =
        latent || (to - from > kTileRows &&
                   (apart || (!kWidensFree && (sizeof(K) != sizeof(float) || sizeof(V) != sizeof(float)))));
    if (near_) bring_near(begin, end);
    if constexpr (has_scale<K>) bring_scales(begin, end, segment_->pages->k_scale_offset, key_scales_);
    if constexpr (has_scale<V> && !latent)
      bring_scales(begin, end, segment_->pages->v_scale_offset, value_scales_);
    if (alike(from, to))
      compute_alike(from, to, low(from), high(from));
    else
      each_tile(from, to, [this](uint32_t row, uint32_t end) { compute(row, end); });
  }

  /// Whether all rows see the same keys of the block, as is the case for nearly all blocks.
  bool alike(uint32_t from, uint32_t to) const {
    const uint32_t first = from / group_, last = (to - 1) / group_;
    for (uint32_t token = first + 1; token <= last; ++token)
      if (low_[token] != low_[first] || high_[token] != high_[first]) return false;
    return true;
  }

  /// Computes the block for rows that all see keys [low, high): each step for all rows before the next step,
  /// so that no step waits for the last results of another.
  void compute_alike(uint32_t from, uint32_t to, uint32_t low, uint32_t high) {
    float *out[kTileRows], *score[kTileRows];
    each_tile(from, to, [&](uint32_t row, uint32_t end) {
      scores(static_cast<int>(end - row), row, low / 16 * 16, high);
    });
    if (low == 0 && high == kAttentionBlock)
      softmax_whole(from, to);
    else
      each_tile(from, to, [this](uint32_t row, uint32_t end) { softmax(row, end); });
    each_tile(from, to, [&](uint32_t row, uint32_t end) {
      const int n = static_cast<int>(end - row);
      for (int i = 0; i < n; ++i) {
        score[i] = scores_ + (row + static_cast<uint32_t>(i)) * kAttentionBlock;
        out[i] = block_out_ + (row + static_cast<uint32_t>(i)) * v_floats_;
      }
      weigh(n, score, out, low, high, false, values_ahead_);
      values_ahead_ = 0;
    });
  }

  /// Converts the block to float32 once for all rows that will read it. Positions that were never written are
  /// not read: their lanes are zero.
  void bring_near(uint32_t begin, uint32_t end) {
    const KvPages& pages = *segment_->pages;
    each_page(begin, end, [&](uint32_t from, uint32_t to) {
      const K* key = keys_at<K>(pages, s_, t_.kv_head, start_ + from);
      for (uint32_t d = 0; d < s_.k_dim; ++d, key += key_stride(pages)) {
        if (keys_ahead_)
          for (size_t line = 0; line < kNearFetch; line += 64)
            __builtin_prefetch(reinterpret_cast<const char*>(key) + keys_ahead_ + line, 0, 2);
        for (uint32_t j = from; j < to; j += 16) {
          const int n = static_cast<int>(least(16, to - j));
          store(near_keys_ + d * kAttentionBlock + j,
                n == 16 ? load_lanes(key + j - from) : load_lanes(key + j - from, n));
        }
        if constexpr (latent)
          if (d < s_.v_dim && (d % 16 == 15 || d + 1 == s_.v_dim))
            turn_keys(near_keys_, near_values_, near_stride_, d / 16 * 16, d + 1, from, to);
      }
      if constexpr (!latent) bring_values(from, to);
    });
  }

  /// Converts values [from, to) of the block, which lie in one page.
  void bring_values(uint32_t from, uint32_t to) {
    const V* value = values_at<V>(*segment_->pages, s_, t_.kv_head, start_ + from);
    for (uint32_t j = from; j < to; ++j, value += s_.v_dim)
      for (uint32_t d = 0; d < s_.v_dim; d += 16) {
        const int n = static_cast<int>(least(16, s_.v_dim - d));
        store(near_values_ + j * near_stride_ + d,
              n == 16 ? load_lanes(value + d) : load_lanes(value + d, n));
      }
  }

  void bring_scales(uint32_t begin, uint32_t end, uint64_t offset, float* to) {
    each_page(begin, end, [&](uint32_t a, uint32_t b) {
      memcpy(to + a, scales_at(*segment_->pages, offset, t_.kv_head, start_ + a), (b - a) * sizeof(float));
    });
  }

  /// The block's maximum, sum and weighted values for rows [from, to), at most kTileRows of them.
  void compute(uint32_t from, uint32_t to) {
    const int n = static_cast<int>(to - from);
    float* out[kTileRows];
    float* score[kTileRows];
    uint32_t low_most = 0, high_least = kAttentionBlock, low_least = kAttentionBlock, high_most = 0;
    for (int i = 0; i < n; ++i) {
      const uint32_t row = from + static_cast<uint32_t>(i), l = low(row), h = high(row);
      score[i] = scores_ + row * kAttentionBlock;
      out[i] = block_out_ + row * v_floats_;
      low_most = most(low_most, l);
      low_least = least(low_least, l);
      high_least = least(high_least, h);
      high_most = most(high_most, h);
    }

    scores(n, from, low_least / 16 * 16, high_most);
    softmax(from, to);

    // Each row adds its visible values in increasing order; where all rows see a key they add it together.
    if (low_most < high_least) {
      for (int i = 0; i < n; ++i)
        weigh(1, &score[i], &out[i], low(from + static_cast<uint32_t>(i)), low_most, false);
      const bool begun = low_least < low_most;
      if (begun)
        for (int i = 0; i < n; ++i)
          if (low(from + static_cast<uint32_t>(i)) == low_most) memset(out[i], 0, v_floats_ * sizeof(float));
      weigh(n, score, out, low_most, high_least, begun, values_ahead_);
      values_ahead_ = 0;
      for (int i = 0; i < n; ++i)
        weigh(1, &score[i], &out[i], high_least, high(from + static_cast<uint32_t>(i)), true);
    } else {
      for (int i = 0; i < n; ++i) {
        const uint32_t row = from + static_cast<uint32_t>(i);
        weigh(1, &score[i], &out[i], low(row), high(row), false);
      }
    }
  }

  /// q k of n rows, at most kTileRows, from row `from` on, and keys [begin, end).
  void scores(int n, uint32_t from, uint32_t begin, uint32_t end) {
    const float* q[kTileRows];
    for (uint32_t i = 0, token = from / group_, head = from % group_; i < static_cast<uint32_t>(n); ++i) {
      q[i] = t_.tokens[token].q + head * s_.k_dim;
      if (++head == group_) ++token, head = 0;
    }
    float* to[kTileRows];
    const auto at = [&](uint32_t key) {
      for (int i = 0; i < n; ++i) to[i] = scores_ + (from + static_cast<uint32_t>(i)) * kAttentionBlock + key;
      return to;
    };
    if (near_)
      return product(n, q, near_keys_ + begin, kAttentionBlock, s_.k_dim, at(begin), end - begin, false);
    each_page(begin, end, [&](uint32_t a, uint32_t b) {
      product(n, q, keys_at<K>(*segment_->pages, s_, t_.kv_head, start_ + a), key_stride(*segment_->pages),
              s_.k_dim, at(a), b - a, false, keys_ahead_);
    });
    keys_ahead_ = 0;  // fetched by now
  }

  /// Scores of a few rows become weights, in place: exp(s - maximum), +0 where there is no visible key. The
  /// scales of int8 elements are applied here, one multiplication for a vector instead of one for each of its
  /// elements. Row by row in each of three passes, so that no row waits for another's sums across lanes.
  void softmax(uint32_t from, uint32_t to) {
    const f32x16 nothing = splat(-__builtin_inff());
    f32x16 largest[kTileRows];
    for (uint32_t row = from; row < to; ++row) {
      const uint32_t l = low(row), h = high(row);
      largest[row - from] = l == 0 && h == kAttentionBlock
                                ? scale_scores<true>(row, 0, kAttentionBlock, nothing)
                                : scale_scores<false>(row, l, h, nothing);
    }
    for (uint32_t row = from; row < to; ++row) block_max_[row] = max16(largest[row - from]);
    f32x16 sum[kTileRows];
    for (uint32_t row = from; row < to; ++row) {
      const uint32_t l = low(row), h = high(row);
      sum[row - from] =
          l == 0 && h == kAttentionBlock ? weights<true>(row, 0, kAttentionBlock) : weights<false>(row, l, h);
    }
    for (uint32_t row = from; row < to; ++row) block_sum_[row] = tree16(sum[row - from]);
  }

  /// softmax for any number of rows that see the whole block: a row's scores stay in registers.
  void softmax_whole(uint32_t from, uint32_t to) {
    constexpr int vectors = kAttentionBlock / 16;
    const f32x16 scale = splat(s_.scale), cap = splat(s_.softcap);
    for (uint32_t row = from; row < to; ++row) {
      float* score = scores_ + row * kAttentionBlock;
      f32x16 s[vectors], largest = splat(-__builtin_inff());
      for (int j = 0; j < vectors; ++j) {
        s[j] = load(score + 16 * j);
        if constexpr (has_scale<K>) s[j] = load(key_scales_ + 16 * j) * s[j];
        s[j] = scale * s[j];
        if (s_.softcap != 0.0f) s[j] = softcap(s[j], cap);
        store(score + 16 * j, s[j]);
        largest = max(largest, s[j]);
      }
      block_max_[row] = max16(largest);
    }
    for (uint32_t row = from; row < to; ++row) {
      float* score = scores_ + row * kAttentionBlock;
      const f32x16 m = splat(block_max_[row]);
      f32x16 p[vectors], sum = zero();
      for (int j = 0; j < vectors; ++j) p[j] = exp_not_positive(load(score + 16 * j) - m);
      for (int j = 0; j < vectors; ++j) {
        sum = sum + p[j];
        if constexpr (has_scale<V>) p[j] = p[j] * load(value_scales_ + 16 * j);
        store(score + 16 * j, p[j]);
      }
      block_sum_[row] = tree16(sum);
    }
  }

  template <bool whole>
  f32x16 scale_scores(uint32_t row, uint32_t low, uint32_t high, f32x16 nothing) const {
    float* score = scores_ + row * kAttentionBlock;
    const f32x16 scale = splat(s_.scale), cap = splat(s_.softcap);
    f32x16 largest = nothing;
    for (uint32_t j = low / 16 * 16; j < high; j += 16) {
      f32x16 s = load(score + j);
      if constexpr (has_scale<K>) s = load(key_scales_ + j) * s;
      s = scale * s;
      if (s_.softcap != 0.0f) s = softcap(s, cap);
      if constexpr (!whole) s = visible(j, low, high, s, nothing);
      store(score + j, s);
      largest = max(largest, s);
    }
    return largest;
  }

  template <bool whole>
  f32x16 weights(uint32_t row, uint32_t low, uint32_t high) const {
    float* score = scores_ + row * kAttentionBlock;
    const f32x16 m = splat(block_max_[row]);
    f32x16 sum = zero();
    for (uint32_t j = low / 16 * 16; j < high; j += 16) {
      f32x16 p = exp_not_positive(load(score + j) - m);
      if constexpr (!whole) p = visible(j, low, high, p, zero());
      sum = sum + p;
      if constexpr (has_scale<V>) p = p * load(value_scales_ + j);
      store(score + j, p);
    }
    return sum;
  }

  void weigh(int n, float* const* weights, float* const* out, uint32_t from, uint32_t to, bool accumulate,
             ptrdiff_t ahead = 0) {
    const float* p[kTileRows];
    const auto at = [&](uint32_t j) {
      for (int i = 0; i < n; ++i) p[i] = weights[i] + j;
      return p;
    };
    if (near_) {
      if (from < to)
        product(n, at(from), near_values_ + from * near_stride_, near_stride_, to - from, out, s_.v_dim,
                accumulate);
      return;
    }
    each_page(from, to, [&](uint32_t a, uint32_t b) {
      product(n, at(a), values_at<V>(*segment_->pages, s_, t_.kv_head, start_ + a), s_.v_dim, b - a, out,
              s_.v_dim, accumulate, ahead);
      accumulate = true;
    });
  }

  /// Merges the block into the results of its rows; a row's first block is taken as it is.
  void merge_block(uint32_t from, uint32_t to) {
    for (uint32_t row = from, end; row < to; row = end) {
      const bool begun = begun_[row / group_];
      for (end = row; end < to && begun_[end / group_] == begun; end += group_) begun_[end / group_] = true;
      if (begun)
        add_block(row, end);
      else
        take_block(row, end);
    }
  }

  void add_block(uint32_t from, uint32_t to) {
    for (uint32_t row = from; row < to; row += 16) {
      const int n = static_cast<int>(least(16, to - row));
      const f32x16 old = load(max_ + row, n), here = load(block_max_ + row, n), larger = max(old, here);
      const f32x16 a = exp_not_positive(old - larger), b = exp_not_positive(here - larger);
      store(max_ + row, larger, n);
      store(sum_ + row, fma(load(block_sum_ + row, n), b, load(sum_ + row, n) * a), n);
      store(old_weight_ + row, a, n);
      store(new_weight_ + row, b, n);
    }
    for (uint32_t row = from; row < to; ++row) {
      float* out = out_ + row * v_floats_;
      const float* add = block_out_ + row * v_floats_;
      const f32x16 a = splat(old_weight_[row]), b = splat(new_weight_[row]);
      for (size_t d = 0; d < v_floats_; d += 16) store(out + d, fma(load(add + d), b, load(out + d) * a));
    }
  }

  void take_block(uint32_t from, uint32_t to) {
    const size_t n = to - from;
    memcpy(max_ + from, block_max_ + from, n * sizeof(float));
    memcpy(sum_ + from, block_sum_ + from, n * sizeof(float));
    memcpy(out_ + from * v_floats_, block_out_ + from * v_floats_, n * v_floats_ * sizeof(float));
  }

  void finish(uint32_t row) {
    float* out = t_.tokens[row / group_].out + row % group_ * s_.v_dim;
    const float* from = out_ + row * v_floats_;
    const f32x16 inverse = splat(1.0f / sum_[row]);
    for (uint32_t d = 0; d < s_.v_dim; d += 16) {
      const int n = static_cast<int>(least(16, s_.v_dim - d));
      store(out + d, load(from + d) * inverse, n);
    }
  }

  // Bytes of each dimension of the next block's keys that are prefetched while this block's keys are
  // converted: nothing else prefetches latent keys.
  static constexpr size_t kNearFetch = latent ? kAttentionBlock * sizeof(K) : 64;

  const AttentionTask& t_;
  const AttentionShape& s_;
  const uint32_t group_, rows_;
  const size_t v_floats_, near_stride_;
  float *scores_, *block_out_, *out_, *block_max_, *block_sum_, *max_, *sum_, *old_weight_, *new_weight_,
      *near_keys_, *near_values_, *key_scales_, *value_scales_;
  const AttentionSegment* segment_ = nullptr;
  uint32_t start_ = 0;
  ptrdiff_t keys_ahead_ = 0, values_ahead_ = 0;  // bytes
  bool near_ = false;
  // For each token.
  uint32_t low_[kAttentionRows] = {}, high_[kAttentionRows] = {};
  bool begun_[kAttentionRows] = {};
};

template <class F>
void at_work(const AttentionTask& task, F f) {
  with_stored(task.segments[0].pages->dtype, [&]<class S>(S) {
    if (task.shape->v_from_k) {
      Attention<typename S::K, typename S::K, true> attention(task);
      f(attention);
    } else {
      Attention<typename S::K, typename S::V> attention(task);
      f(attention);
    }
  });
}

void attend(const AttentionTask& task) {
  at_work(task, [](auto& a) { a.attend(); });
}
void attend_blocks(const AttentionTask& task) {
  at_work(task, [](auto& a) { a.attend_blocks(); });
}
void merge(const AttentionTask& task) { Attention<float, float>(task).merge(); }

}  // namespace
}  // namespace llamay

extern "C" const llamay::AttentionTable LLAMAY_TABLE(attention);
const llamay::AttentionTable LLAMAY_TABLE(attention) = {llamay::write, llamay::attend, llamay::attend_blocks,
                                                        llamay::merge};
