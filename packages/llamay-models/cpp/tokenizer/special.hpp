#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/trie.hpp"
#include "tokenizer/vocabulary.hpp"

namespace llamay::tokenizer {

/// Bytes [begin, end) of a text.
struct Span {
  uint32_t begin;
  uint32_t end;
};

/// A stretch of a text: a special token, or text to be encoded (id == kNoToken).
struct Fragment {
  Span span;
  uint32_t id;
};

/// Finds special tokens in a text. Longer tokens are found before shorter ones, wherever they stand; so it is
/// in the engines that users compare with.
class SpecialTokens {
 public:
  explicit SpecialTokens(const Vocabulary& vocabulary);

  /// Cut `text` at special tokens, from left to right. User-defined tokens count everywhere; control tokens
  /// only where they lie wholly inside one of `trusted` (in increasing order). White space that a token
  /// strips is in no fragment.
  std::vector<Fragment> partition(std::string_view text, std::span<const Span> trusted) const;

 private:
  /// The longest token that starts at `at` and ends by `end`, or kNoToken.
  uint32_t longest_match(std::string_view text, uint32_t at, uint32_t end,
                         std::span<const Span> trusted) const;

  const Vocabulary& vocabulary_;
  std::array<bool, 256> starts_{};  ///< bytes that some special token starts with
  Trie trie_;
};

}  // namespace llamay::tokenizer
