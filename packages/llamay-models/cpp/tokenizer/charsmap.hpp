#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace llamay::tokenizer {

/// SentencePiece's compiled normalisation rules: what a stretch of text is replaced by.
///
/// The blob is a length, a double-array trie whose leaves point into a pool of zero-terminated replacements,
/// and the pool. Source: SentencePiece (normalizer.cc) and darts-clone's packing of units.
class Charsmap {
 public:
  Charsmap() = default;
  /// Throws FormatError when the blob is cut short.
  explicit Charsmap(std::span<const uint8_t> blob);

  struct Replacement {
    std::string_view text;
    uint32_t length;  ///< bytes of the input that it replaces
  };
  /// The rule for the longest stretch at the start of `text`, or nothing. Every step is checked, whatever the
  /// blob holds.
  std::optional<Replacement> find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::vector<char> pool_;
};

}  // namespace llamay::tokenizer
