#pragma once
// Merging adjacent symbols, best pair first: the heart of both kinds of byte-pair encoding.
// Source: Sennrich et al. 2016 (BPE); Kudo and Richardson 2018 (SentencePiece's use of it).

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace llamay::tokenizer {

inline constexpr uint32_t kNoMerge = UINT32_MAX;

/// A stretch of the piece that is one token so far.
struct Symbol {
  uint32_t id;     ///< meaning is the caller's
  uint32_t begin;  ///< bytes of the piece
  uint32_t end;
  uint32_t next;  ///< index of the symbol to the right; the number of symbols for none
  uint32_t prev;  ///< index of the symbol to the left; UINT32_MAX for none
};

struct Merge {
  uint32_t rank = kNoMerge;  ///< lower merges first; kNoMerge: never
  uint32_t id = 0;           ///< of the merged symbol
};

/// Room that is kept from one piece to the next.
struct MergeScratch {
  std::vector<Symbol> symbols;
  std::vector<Merge> merges;
  std::vector<uint64_t> heap;
};

/// Merge scratch.symbols until no pair has a merge; of equal ranks the leftmost goes first. `pair(left,
/// right)` gives a pair's Merge. Afterwards the symbols that are left are a list from index 0 by `next`.
///
/// Short pieces scan for the best pair, which is fastest; long ones keep a heap, so that a megabyte of one
/// letter costs O(n log n).
template <class PairMerge>
void merge_all(MergeScratch& scratch, PairMerge&& pair) {
  constexpr size_t kScan = 40;
  auto& symbols = scratch.symbols;
  auto& merges = scratch.merges;
  const auto n = static_cast<uint32_t>(symbols.size());
  for (uint32_t i = 0; i < n; ++i) {
    symbols[i].next = i + 1;
    symbols[i].prev = i - 1;
  }
  merges.assign(n, {});
  for (uint32_t i = 0; i + 1 < n; ++i) merges[i] = pair(symbols[i], symbols[i + 1]);

  const auto join = [&](uint32_t at) {
    Symbol& left = symbols[at];
    const uint32_t right = left.next;
    left.id = merges[at].id;
    left.end = symbols[right].end;
    left.next = symbols[right].next;
    merges[right].rank = kNoMerge;
    if (left.next < n) symbols[left.next].prev = at;
    merges[at] = left.next < n ? pair(left, symbols[left.next]) : Merge{};
    if (left.prev != UINT32_MAX) merges[left.prev] = pair(symbols[left.prev], left);
  };

  if (n <= kScan) {
    while (true) {
      uint32_t best = kNoMerge, where = 0;
      for (uint32_t i = 0; i < n; i = symbols[i].next)
        if (merges[i].rank < best) best = merges[i].rank, where = i;
      if (best == kNoMerge) return;
      join(where);
    }
  }

  auto& heap = scratch.heap;
  heap.clear();
  const auto key = [&](uint32_t i) { return static_cast<uint64_t>(merges[i].rank) << 32 | i; };
  for (uint32_t i = 0; i + 1 < n; ++i)
    if (merges[i].rank != kNoMerge) heap.push_back(key(i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  const auto push = [&](uint32_t i) {
    if (merges[i].rank == kNoMerge) return;
    heap.push_back(key(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    if (merges[at].rank != top >> 32) continue;  // the pair has changed since
    join(at);
    push(at);
    if (symbols[at].prev != UINT32_MAX) push(symbols[at].prev);
  }
}

}  // namespace llamay::tokenizer
