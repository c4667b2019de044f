#include "tokenizer/vocabulary.hpp"

#include <algorithm>
#include <bit>
#include <random>

#include "error.hpp"
#include "tokenizer/hash.hpp"
#include "unicode/utf8.hpp"

namespace llamay::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// GPT-2 spells the 188 printable bytes as themselves and the others as U+0100 and up.
constexpr bool is_printable(uint32_t b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD && b <= 0xFF);
}

constexpr auto kAlphabet = [] {
  std::array<int16_t, 0x144> bytes{};
  for (auto& b : bytes) b = -1;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) bytes[is_printable(b) ? b : next++] = static_cast<int16_t>(b);
  return bytes;
}();

bool decode_byte_alphabet(std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    const auto d = unicode::decode(text, at);
    if (d.code_point >= kAlphabet.size() || kAlphabet[d.code_point] < 0) return false;
    out += static_cast<char>(kAlphabet[d.code_point]);
    at += d.length;
  }
  return true;
}

void append_unmarked(std::string& out, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at, kSpaceMark.size()) == kSpaceMark) {
      out += ' ';
      at += kSpaceMark.size();
    } else {
      out += text[at++];
    }
  }
}

int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                : -1;
}

void append_unescaped(std::string& out, std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at];
      continue;
    }
    const char c = text[++at];
    if (c == 'x' && at + 2 < text.size() && hex_digit(text[at + 1]) >= 0 && hex_digit(text[at + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[at + 1]) << 4 | hex_digit(text[at + 2]));
      at += 2;
    } else {
      out += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    }
  }
}

}  // namespace

uint64_t hash_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string out;
  if (!decode_byte_alphabet(text, out)) return std::nullopt;
  return out;
}

std::optional<uint8_t> byte_of(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high << 4 | low);
}

Vocabulary::Vocabulary(std::span<const std::string_view> texts, std::span<const uint8_t> attributes,
                       Spelling spelling)
    : reachable_(texts.size(), true),
      spelling_(spelling),
      attributes_(attributes.begin(), attributes.end()),
      seed_(hash_seed()) {
  size_t total = 0;
  for (const auto t : texts) total += t.size();
  if (total > UINT32_MAX)
    throw FormatError("the vocabulary's texts are more than 4 GiB", "the file is damaged");
  texts_.reserve(total);
  bytes_.reserve(total);
  text_start_.reserve(texts.size() + 1);
  bytes_start_.reserve(texts.size() + 1);
  byte_token_.fill(kNoToken);
  const uint64_t slots = std::bit_ceil(std::max<uint64_t>(16, texts.size() * 2));
  mask_ = slots - 1;
  by_key_.assign(slots, {0, kNoToken});
  for (uint32_t id = 0; id < texts.size(); ++id) read_token(id, texts[id]);
  text_start_.push_back(static_cast<uint32_t>(texts_.size()));
  bytes_start_.push_back(static_cast<uint32_t>(bytes_.size()));
  for (uint32_t id = 0; id < size(); ++id) index(id);
  std::sort(by_text_.begin(), by_text_.end(), [&](uint32_t a, uint32_t b) { return text(a) < text(b); });
  for (size_t i = 1; i < by_text_.size(); ++i)
    if (text(by_text_[i]) == text(by_text_[i - 1]) && !text(by_text_[i]).empty())
      throw FormatError("tokens " + std::to_string(by_text_[i - 1]) + " and " + std::to_string(by_text_[i]) +
                            " have the same text",
                        "the vocabulary was written by a faulty tool");
}

void Vocabulary::read_token(uint32_t id, std::string_view in_file) {
  text_start_.push_back(static_cast<uint32_t>(texts_.size()));
  texts_ += in_file;
  // Only the copy is looked at: the file may change meanwhile.
  const std::string_view text = std::string_view(texts_).substr(text_start_[id]);
  if (text.size() > kMaxTokenBytes)
    throw FormatError("token " + std::to_string(id) + " is " + std::to_string(text.size()) + " bytes long; " +
                          std::to_string(kMaxTokenBytes) + " is the most",
                      "the vocabulary is damaged");
  longest_ = std::max(longest_, text.size());
  bytes_start_.push_back(static_cast<uint32_t>(bytes_.size()));
  if (attributes_[id] & kByte) {
    const auto byte = byte_of(text);
    if (!byte)
      throw FormatError("token " + std::to_string(id) + " is a byte token, but its text '" +
                            std::string(text.substr(0, 32)) + "' is not of the form <0x41>",
                        "the vocabulary is damaged");
    bytes_ += static_cast<char>(*byte);
    if (byte_token_[*byte] == kNoToken) byte_token_[*byte] = id;
    reachable_[id] = spelling_ != Spelling::kByteLevel;
    return;
  }
  const bool special = attributes_[id] & (kControl | kUnknown | kUserDefined);
  switch (spelling_) {
    case Spelling::kByteLevel: {
      const size_t before = bytes_.size();
      if (!decode_byte_alphabet(text, bytes_)) {
        bytes_.resize(before);
        bytes_ += text;
        reachable_[id] = false;
      } else if (special && std::string_view(bytes_).substr(before) != text) {
        // A special token stands in a text as it is written in the file.
        bytes_.resize(before);
        bytes_ += text;
        reachable_[id] = false;
      }
      break;
    }
    case Spelling::kSentencePiece:
      append_unmarked(bytes_, text);
      break;
    case Spelling::kEscaped:
      if (special)
        bytes_ += text;
      else
        append_unescaped(bytes_, text);
      break;
  }
}

void Vocabulary::index(uint32_t id) {
  if (!reachable_[id] || text(id).empty()) {
    by_text_.push_back(id);
    return;
  }
  const std::string_view k = key(id);
  const uint64_t h = hash_bytes(k, seed_);
  const auto tag = static_cast<uint32_t>(h >> 32);
  uint64_t slot = h & mask_;
  for (; by_key_[slot].id != kNoToken; slot = (slot + 1) & mask_)
    if (by_key_[slot].tag == tag && key(by_key_[slot].id) == k)
      throw FormatError(
          "tokens " + std::to_string(by_key_[slot].id) + " and " + std::to_string(id) + " have the same text",
          "the vocabulary was written by a faulty tool");
  by_key_[slot] = {tag, id};
  if (spelling_ == Spelling::kByteLevel && k.size() == 1) {
    uint32_t& token = byte_token_[static_cast<uint8_t>(k[0])];
    if (token == kNoToken) token = id;
  }
}

uint32_t Vocabulary::find_key(std::string_view key_text) const {
  const uint64_t h = hash_bytes(key_text, seed_);
  const auto tag = static_cast<uint32_t>(h >> 32);
  for (uint64_t slot = h & mask_; by_key_[slot].id != kNoToken; slot = (slot + 1) & mask_)
    if (by_key_[slot].tag == tag && key(by_key_[slot].id) == key_text) return by_key_[slot].id;
  return kNoToken;
}

uint32_t Vocabulary::find(std::string_view wanted) const {
  const auto found = std::lower_bound(by_text_.begin(), by_text_.end(), wanted,
                                      [&](uint32_t id, std::string_view t) { return text(id) < t; });
  if (found != by_text_.end() && text(*found) == wanted) return *found;
  if (spelling_ != Spelling::kByteLevel) return find_key(wanted);
  const auto spelled = from_byte_alphabet(wanted);
  return spelled ? find_key(*spelled) : kNoToken;
}

}  // namespace llamay::tokenizer
