#include "tokenizer/spm.hpp"

#include <bit>
#include <cmath>
#include <string>

#include "error.hpp"
#include "unicode/utf8.hpp"

namespace llamay::tokenizer {
namespace {

constexpr uint32_t kSpaceMark = 0x2581;
constexpr std::string_view kSpaceMarkText = "\xE2\x96\x81";

/// A key that sorts as floats do, highest first.
uint32_t descending(float score) {
  const auto bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

}  // namespace

Spm::Spm(const Vocabulary& vocabulary, std::span<const float> scores, uint32_t unknown)
    : vocabulary_(vocabulary), unknown_(unknown) {
  rank_.reserve(scores.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    if (std::isnan(scores[id]))
      throw FormatError("the score of token " + std::to_string(id) + " is not a number",
                        "the vocabulary is damaged");
    rank_.push_back(std::min(descending(scores[id]), kNoMerge - 1));
  }
  for (uint32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    // From the second character on: a mark at the start of a token is where a cut may be.
    for (size_t at = text.find(kSpaceMarkText, 1); at != std::string_view::npos;
         at = text.find(kSpaceMarkText, at + 1)) {
      size_t before = at - 1;
      while (before > 0 && (static_cast<uint8_t>(text[before]) & 0xC0) == 0x80) --before;
      const uint32_t c = unicode::decode(text, before).code_point;
      if (c != kSpaceMark) joins_space_.insert(c);
    }
  }
}

size_t Spm::next_cut(std::string_view text, size_t from) const {
  for (size_t at = text.find(kSpaceMarkText, from + 1); at != std::string_view::npos;
       at = text.find(kSpaceMarkText, at + 1)) {
    size_t before = at - 1;
    while (before > from && (static_cast<uint8_t>(text[before]) & 0xC0) == 0x80) --before;
    const auto d = unicode::decode(text, before);
    if (d.code_point == kSpaceMark || d.code_point == unicode::kInvalid || before + d.length != at) continue;
    if (!joins_space_.contains(d.code_point)) return at;
  }
  return text.size();
}

void Spm::encode(std::string_view piece, MergeScratch& scratch, std::vector<uint32_t>& out) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (uint32_t at = 0; at < piece.size();) {
    const uint32_t length = unicode::decode(piece, at).length;
    symbols.push_back({kNoToken, at, at + length, 0, 0});
    at += length;
  }
  if (symbols.empty()) return;
  merge_all(scratch, [&](const Symbol& left, const Symbol& right) -> Merge {
    if (right.end - left.begin > vocabulary_.longest()) return {};
    const uint32_t id = vocabulary_.find_key(piece.substr(left.begin, right.end - left.begin));
    // Merging must not arrive at a control token that a text merely spells out, nor at a byte written as
    // "<0x41>".
    if (id == kNoToken || vocabulary_.attributes(id) & (kControl | kUnknown | kByte)) return {};
    return {rank_[id], id};
  });
  for (uint32_t i = 0; i < symbols.size(); i = symbols[i].next) {
    const std::string_view text = piece.substr(symbols[i].begin, symbols[i].end - symbols[i].begin);
    if (const uint32_t id = vocabulary_.find_key(text); id != kNoToken) {
      out.push_back(id);
      continue;
    }
    for (const char c : text) {
      const uint32_t id = vocabulary_.byte_token(static_cast<uint8_t>(c));
      if (id != kNoToken)
        out.push_back(id);
      else if (unknown_ != kNoToken)
        out.push_back(unknown_);
    }
  }
}

}  // namespace llamay::tokenizer
