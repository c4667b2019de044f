#include "ops/attention/paged_trial.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "llamay/kv_view.h"

namespace llamay {
namespace {

template <class T>
class Aligned {
 public:
  explicit Aligned(std::size_t count)
      : at_(static_cast<T*>(::operator new(count * sizeof(T) + 64, kAlign))) {}
  ~Aligned() { ::operator delete(at_, kAlign); }
  Aligned(const Aligned&) = delete;
  T* get() const { return at_; }

 private:
  static constexpr std::align_val_t kAlign{64};
  T* at_;
};

class Pages {
 public:
  Pages(const PagedTrial& trial, const AttentionTable& table)
      : t_(trial), page_(1u << trial.page_shift), n_pages_((trial.positions + page_ - 1) / page_) {
    const AttentionShape& s = t_.shape;
    const std::size_t vectors = std::size_t{s.kv_heads} * page_;
    element_ = t_.dtype == LLAMAY_KV_F32 ? 4 : t_.dtype == LLAMAY_KV_Q8 ? 1 : 2;
    const std::size_t v_element = t_.dtype == LLAMAY_KV_VQ8 ? 1 : element_;
    std::size_t end = 0;
    const auto take = [&end](std::size_t bytes) {
      const std::size_t at = end;
      end += (bytes + 63) / 64 * 64;
      return at;
    };
    pages_.k_offset = take(vectors * s.k_dim * element_);
    pages_.k_scale_offset = take(vectors * sizeof(float));
    if (!s.v_from_k) {
      pages_.v_offset = take(vectors * s.v_dim * v_element);
      pages_.v_scale_offset = take(vectors * sizeof(float));
    }
    arena_ = std::make_unique<Aligned<uint8_t>>(end * n_pages_);
    std::memset(arena_->get(), 0xff, end * n_pages_);
    for (uint32_t i = 0; i < n_pages_; ++i) numbers_.push_back(static_cast<int32_t>(n_pages_ - 1 - i));
    block_ = numbers_.data();
    pages_.arena = arena_->get();
    pages_.page_bytes = end;
    pages_.blocks = &block_;
    pages_.page_shift = t_.page_shift;
    pages_.block_shift = 31;
    pages_.dtype = t_.dtype;
    for (uint32_t head = 0; head < s.kv_heads; ++head) write(table, head);
  }
  Pages(const Pages&) = delete;

  const KvPages& view() const { return pages_; }

 private:
  void write(const AttentionTable& table, uint32_t head) const {
    AttentionShape s = t_.shape;
    const std::size_t k_stride = std::size_t{s.kv_heads} * s.k_dim,
                      v_stride = std::size_t{s.kv_heads} * s.v_dim;
    const bool copied = t_.values == PagedTrial::Values::copied;
    if (copied) s.v_from_k = s.v_dim;
    table.write(pages_, s, head, 0, t_.positions, t_.k + head * s.k_dim, k_stride,
                s.v_from_k ? nullptr : t_.v + head * s.v_dim, v_stride);
    if (!copied) return;
    for (uint32_t at = 0; at < t_.positions; ++at) {
      uint8_t* page = pages_.page(at);
      const std::size_t slot = at % page_, vector = (std::size_t{head} << t_.page_shift) + slot;
      for (std::size_t d = 0; d < s.v_dim; ++d)
        std::memcpy(page + pages_.v_offset + (vector * s.v_dim + d) * element_,
                    page + pages_.k_offset + (((head * s.k_dim + d) << t_.page_shift) + slot) * element_,
                    element_);
      std::memcpy(page + pages_.v_scale_offset + vector * sizeof(float),
                  page + pages_.k_scale_offset + vector * sizeof(float), sizeof(float));
    }
  }

  const PagedTrial& t_;
  const uint32_t page_, n_pages_;
  std::size_t element_;
  KvPages pages_{};
  std::vector<int32_t> numbers_;
  const int32_t* block_ = nullptr;
  std::unique_ptr<Aligned<uint8_t>> arena_;
};

/// Computes the blocks in `pieces` pieces, each by itself, and merges them.
void in_pieces(const AttentionTable& table, AttentionTask task, uint32_t pieces) {
  const AttentionSegment whole = *task.segments;
  const uint32_t blocks = whole.block_end - whole.block_begin, size = std::max(1u, blocks / pieces);
  const std::size_t record = std::size_t{task.n_tokens} * task.shape->group() * partial_floats(*task.shape);
  Aligned<float> partials(record * blocks);
  task.partials = partials.get();
  for (uint32_t at = whole.block_begin; at < whole.block_end; at += size) {
    AttentionSegment piece = whole;
    piece.block_begin = at;
    piece.block_end = std::min(whole.block_end, at + size);
    piece.partials = record * (at - whole.block_begin);
    task.segments = &piece;
    task.folds = at == whole.block_begin;
    if (task.folds) task.folded_end = piece.block_end;
    table.attend_blocks(task);
  }
  task.segments = &whole;
  table.merge(task);
}

}  // namespace

void PagedTrial::run(const AttentionTable& table, float* out) const {
  const Pages pages(*this, table);
  Aligned<float> scratch(attention_scratch(shape));
  for (std::size_t first = 0; first < rows.size(); first += shape.tile()) {
    const std::size_t n = std::min<std::size_t>(shape.tile(), rows.size() - first);
    const uint32_t last = rows[first + n - 1];
    const AttentionSegment segment{&pages.view(),
                                   0,
                                   static_cast<uint32_t>(n),
                                   shape.first_visible(rows[first]) / kAttentionBlock,
                                   last / kAttentionBlock + 1,
                                   0};
    for (uint32_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<AttentionToken> tokens;
      for (std::size_t i = first; i < first + n; ++i) {
        const std::size_t at = i * shape.heads + std::size_t{head} * shape.group();
        tokens.push_back({q + at * shape.k_dim, out + at * shape.v_dim, rows[i]});
      }
      AttentionTask task{&shape,  head,         static_cast<uint32_t>(n), 1, tokens.data(), &segment,
                         nullptr, scratch.get()};
      if (pieces == 1)
        table.attend(task);
      else
        in_pieces(table, task, pieces);
    }
  }
}

}  // namespace llamay
