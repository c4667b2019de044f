#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llamay::tokenizer {

inline constexpr uint32_t kNoToken = UINT32_MAX;

/// The kinds of tokens of GGUF's token_type; a token may be of several kinds once special names are known.
enum Attribute : uint8_t {
  kNormal = 1 << 0,
  kUnknown = 1 << 1,
  kControl = 1 << 2,
  kUserDefined = 1 << 3,
  kUnused = 1 << 4,
  kByte = 1 << 5,
  kStripLeft = 1 << 6,   ///< white space before it in the text belongs to it
  kStripRight = 1 << 7,  ///< white space after it in the text belongs to it
};

/// The way to read the texts of tokens.
enum class Spelling : uint8_t {
  kByteLevel,      ///< GPT-2's alphabet, one printable character a byte
  kSentencePiece,  ///< UTF-8 with U+2581 for space, <0xAB> for bytes
  kEscaped,        ///< bytes, with \n, \t, \r, \\ and \xAB for some of them
};

/// Token texts, ids and attributes. Immutable once built; lookups allocate nothing.
class Vocabulary {
 public:
  static constexpr size_t kMaxTokenBytes = 65535;

  /// Throws FormatError for a token that is too long or occurs twice, or a byte token that names no byte.
  Vocabulary(std::span<const std::string_view> texts, std::span<const uint8_t> attributes, Spelling spelling);

  uint32_t size() const { return static_cast<uint32_t>(attributes_.size()); }
  uint8_t attributes(uint32_t id) const { return attributes_[id]; }
  Spelling spelling() const { return spelling_; }
  size_t longest() const { return longest_; }

  /// Text as it stands in the file.
  std::string_view text(uint32_t id) const { return slice(texts_, text_start_, id); }
  /// Bytes that the token stands for in a text.
  std::string_view bytes(uint32_t id) const { return slice(bytes_, bytes_start_, id); }

  /// Token with this text in the file, or kNoToken.
  uint32_t find(std::string_view text) const;
  /// Token that merging arrives at for this key (see key()), or kNoToken.
  uint32_t find_key(std::string_view key) const;
  /// The key by which a token is found: its bytes where it is spelled byte by byte, else its text.
  std::string_view key(uint32_t id) const { return spelling_ == Spelling::kByteLevel ? bytes(id) : text(id); }
  /// Token for one byte, or kNoToken.
  uint32_t byte_token(uint8_t byte) const { return byte_token_[byte]; }

 private:
  static std::string_view slice(const std::string& all, const std::vector<uint32_t>& starts, uint32_t id) {
    return std::string_view(all).substr(starts[id], starts[id + 1] - starts[id]);
  }
  void read_token(uint32_t id, std::string_view in_file);
  void index(uint32_t id);

  /// A token whose text is not spelled in the byte alphabet can only be matched as a special token.
  std::vector<bool> reachable_;
  Spelling spelling_;
  size_t longest_ = 0;
  std::vector<uint8_t> attributes_;
  std::string texts_, bytes_;
  std::vector<uint32_t> text_start_, bytes_start_;
  std::array<uint32_t, 256> byte_token_;

  struct Slot {
    uint32_t tag;
    uint32_t id;
  };
  uint64_t seed_;
  uint64_t mask_;
  std::vector<Slot> by_key_;
  std::vector<uint32_t> by_text_;  ///< unreachable tokens, sorted by text
};

/// GPT-2's alphabet read backwards: the bytes that `text` spells, or nothing when a character is not of it.
std::optional<std::string> from_byte_alphabet(std::string_view text);

/// The byte that "<0xAB>" names, or nothing.
std::optional<uint8_t> byte_of(std::string_view text);

}  // namespace llamay::tokenizer
