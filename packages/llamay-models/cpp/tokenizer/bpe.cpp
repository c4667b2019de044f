#include "tokenizer/bpe.hpp"

#include <bit>
#include <string>

#include "error.hpp"
#include "tokenizer/hash.hpp"
#include "unicode/utf8.hpp"

namespace llamay::tokenizer {
namespace {

constexpr uint64_t kEmpty = UINT64_MAX;

uint64_t pair_of(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << 32 | right; }

}  // namespace

Bpe::Bpe(const Vocabulary& vocabulary, std::span<const std::string_view> merges)
    : vocabulary_(vocabulary), seed_(hash_seed()) {
  const uint64_t slots = std::bit_ceil(std::max<uint64_t>(16, merges.size() * 2));
  mask_ = slots - 1;
  slots_.assign(slots, {kEmpty, {}});
  const bool byte_level = vocabulary.spelling() == Spelling::kByteLevel;
  std::string merge, joined;
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    merge = merges[rank];  // a copy: the file may change meanwhile
    const auto fail = [&](const std::string& why) {
      throw FormatError("merge " + std::to_string(rank) + " ('" + merge.substr(0, 80) + "') " + why,
                        "the vocabulary was damaged, or converted by a faulty tool");
    };
    const size_t space = merge.size() > 1 ? merge.find(' ', 1) : std::string::npos;
    if (space == std::string::npos || space + 1 == merge.size())
      fail("is not two parts with a space between");
    const std::string_view parts = merge;
    joined = parts.substr(0, space);
    joined += parts.substr(space + 1);
    size_t cut = space;
    if (byte_level) {
      const auto left = from_byte_alphabet(parts.substr(0, space)),
                 right = from_byte_alphabet(parts.substr(space + 1));
      if (!left || !right) fail("uses characters that spell no byte");
      cut = left->size();
      joined = *left + *right;
    }
    const std::string_view whole = joined;
    const uint32_t left = vocabulary.find_key(whole.substr(0, cut)),
                   right = vocabulary.find_key(whole.substr(cut));
    const uint32_t merged = vocabulary.find_key(whole);
    if (left == kNoToken || right == kNoToken || merged == kNoToken)
      fail("refers to tokens that do not exist");
    // Merging must not arrive at a control token that a text merely spells out.
    if (!(vocabulary.attributes(merged) & (kControl | kUnknown))) insert(left, right, rank, merged);
  }
}

void Bpe::insert(uint32_t left, uint32_t right, uint32_t rank, uint32_t merged) {
  const uint64_t pair = pair_of(left, right);
  uint64_t slot = hash_number(pair, seed_) & mask_;
  while (slots_[slot].pair != kEmpty && slots_[slot].pair != pair) slot = (slot + 1) & mask_;
  if (slots_[slot].pair == kEmpty)
    slots_[slot] = {pair, {rank, merged}};  // of two equal merges the first counts
}

Merge Bpe::find(uint32_t left, uint32_t right) const {
  if (left == kNoToken || right == kNoToken) return {};
  const uint64_t pair = pair_of(left, right);
  for (uint64_t slot = hash_number(pair, seed_) & mask_; slots_[slot].pair != kEmpty;
       slot = (slot + 1) & mask_)
    if (slots_[slot].pair == pair) return slots_[slot].merge;
  return {};
}

void Bpe::append_bytes(std::string_view piece, std::vector<uint32_t>& out) const {
  for (const char c : piece)
    if (const uint32_t id = vocabulary_.byte_token(static_cast<uint8_t>(c)); id != kNoToken)
      out.push_back(id);
}

void Bpe::encode(std::string_view piece, MergeScratch& scratch, std::vector<uint32_t>& out) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  const bool byte_level = vocabulary_.spelling() == Spelling::kByteLevel;
  for (uint32_t at = 0; at < piece.size();) {
    const uint32_t length = byte_level ? 1 : unicode::decode(piece, at).length;
    const uint32_t id = byte_level ? vocabulary_.byte_token(static_cast<uint8_t>(piece[at]))
                                   : vocabulary_.find_key(piece.substr(at, length));
    symbols.push_back({id, at, at + length, 0, 0});
    at += length;
  }
  if (symbols.empty()) return;
  merge_all(scratch, [this](const Symbol& left, const Symbol& right) { return find(left.id, right.id); });
  for (uint32_t i = 0; i < symbols.size(); i = symbols[i].next) {
    const Symbol& s = symbols[i];
    if (s.id != kNoToken)
      out.push_back(s.id);
    else
      append_bytes(piece.substr(s.begin, s.end - s.begin), out);
  }
}

}  // namespace llamay::tokenizer
