#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/merge.hpp"
#include "tokenizer/vocabulary.hpp"

namespace llamay::tokenizer {

/// Merges by rank: "gpt2" vocabularies.
class Bpe {
 public:
  /// `merges` are "left right" in the spelling of the file, best first. Throws FormatError for a merge that
  /// is not two parts, or whose parts or result no token spells.
  Bpe(const Vocabulary& vocabulary, std::span<const std::string_view> merges);

  /// Append the ids of one piece.
  void encode(std::string_view piece, MergeScratch& scratch, std::vector<uint32_t>& out) const;

 private:
  Merge find(uint32_t left, uint32_t right) const;
  void insert(uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);
  void append_bytes(std::string_view piece, std::vector<uint32_t>& out) const;

  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  const Vocabulary& vocabulary_;
  uint64_t seed_;
  uint64_t mask_;
  std::vector<Slot> slots_;
};

}  // namespace llamay::tokenizer
