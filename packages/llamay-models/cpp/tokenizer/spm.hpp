#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tokenizer/merge.hpp"
#include "tokenizer/vocabulary.hpp"

namespace llamay::tokenizer {

/// Merges by score: SentencePiece's BPE, "llama" vocabularies. Text comes with U+2581 for space.
class Spm {
 public:
  /// Throws FormatError for a score that is not a number.
  Spm(const Vocabulary& vocabulary, std::span<const float> scores, uint32_t unknown);

  /// Append the ids of one piece.
  void encode(std::string_view piece, MergeScratch& scratch, std::vector<uint32_t>& out) const;

  /// First byte after `from` at which text may be cut without changing its tokens; the end of the text if
  /// none.
  ///
  /// No merge can cross a place that no token crosses. Vocabularies put a space only at the start of a token,
  /// or next to another space, apart from a few whose exceptions are collected when the vocabulary is read.
  size_t next_cut(std::string_view text, size_t from) const;

 private:
  const Vocabulary& vocabulary_;
  std::vector<uint32_t> rank_;  ///< by id: the order of scores, best lowest
  uint32_t unknown_;
  std::unordered_set<uint32_t> joins_space_;  ///< characters that stand before a space inside some token
};

}  // namespace llamay::tokenizer
