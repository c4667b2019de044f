#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "contexts/rows.hpp"
#include "pages/shared.hpp"

namespace llamay::kv {

/// The ids of a context's positions in chunks that forks share; a chunk holds the sources of the rows in it.
/// Like a Table: only a list with a single holder may be changed.
class Tokens : public Counted {
 public:
  static constexpr uint32_t kChunk = 4096;

  uint32_t size() const { return size_; }
  int32_t operator[](uint32_t i) const { return chunks_[i / kChunk]->ids[i % kChunk]; }

  void copy(uint32_t begin, uint32_t end, int32_t* out) const {
    while (begin < end) {
      const uint32_t n = std::min(end - begin, kChunk - begin % kChunk);
      std::memcpy(out, chunks_[begin / kChunk]->ids.data() + begin % kChunk, n * sizeof *out);
      begin += n;
      out += n;
    }
  }

  Ref<Tokens> clone(uint32_t n) const {
    auto copy = Ref<Tokens>::adopt(new Tokens);
    copy->chunks_.assign(chunks_.begin(), chunks_.begin() + (n + kChunk - 1) / kChunk);
    copy->size_ = n;
    return copy;
  }

  /// Rows among the ids must be held by the caller.
  void append(const int32_t* ids, uint32_t n) {
    while (n) {
      const uint32_t slot = size_ % kChunk, part = std::min(n, kChunk - slot);
      if (slot == 0) chunks_.push_back(Ref<Chunk>::adopt(new Chunk));
      Ref<Chunk>& last = chunks_.back();
      if (!last->unique()) {
        auto copy = Ref<Chunk>::adopt(new Chunk);
        copy->ids.assign(last->ids.begin(), last->ids.begin() + slot);
        copy->rows = RowTable::process().hold(copy->ids);
        last = std::move(copy);
      }
      last->cut(slot);  // a truncated list leaves stale ids behind
      for (auto& source : RowTable::process().hold({ids, part})) hold_once(last->rows, std::move(source));
      last->ids.insert(last->ids.end(), ids, ids + part);
      size_ += part;
      ids += part;
      n -= part;
    }
  }

  void truncate(uint32_t n) {
    chunks_.resize((n + kChunk - 1) / kChunk);
    size_ = n;
    if (n % kChunk && chunks_.back()->unique()) chunks_.back()->cut(n % kChunk);
  }

 private:
  struct Chunk : Counted {
    /// Keep the first n, and hold only the rows among them.
    void cut(uint32_t n) {
      if (n >= ids.size()) return;
      ids.resize(n);
      if (!rows.empty()) rows = RowTable::process().hold(ids);
    }
    std::vector<int32_t> ids;
    HeldRows rows;
  };
  std::vector<Ref<Chunk>> chunks_;
  uint32_t size_ = 0;
};

}  // namespace llamay::kv
