#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tokenizer/tokenizer.hpp"

namespace llamay::tokenizer {

/// A unigram vocabulary as a file describes it.
struct UgmOptions {
  uint32_t unknown = kNoToken;
  bool add_space_prefix = true;
  bool merge_spaces = false;            ///< tokenizer.ggml.remove_extra_whitespaces
  std::span<const uint8_t> charsmap{};  ///< tokenizer.ggml.precompiled_charsmap
};

/// SentencePiece's unigram model: the way through the text with the best sum of log probabilities.
/// Throws FormatError for a score that is not a number, or a damaged charsmap.
///
/// Source: Kudo 2018, "Subword Regularization".
std::unique_ptr<Algorithm> make_ugm(const Vocabulary& vocabulary, std::span<const float> scores,
                                    const UgmOptions& options);

/// RWKV's World tokenizer: the longest token, again and again. Tokens are written with \n, \t, \r, \\ and
/// \xAB escapes.
std::unique_ptr<Algorithm> make_rwkv(const Vocabulary& vocabulary, uint32_t unknown);

}  // namespace llamay::tokenizer
