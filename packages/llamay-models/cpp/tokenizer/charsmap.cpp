#include "tokenizer/charsmap.hpp"

#include <cstring>

#include "error.hpp"

namespace llamay::tokenizer {
namespace {

// The layout of a node of darts-clone in 32 bits.
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & ~(1u << 31); }

}  // namespace

Charsmap::Charsmap(std::span<const uint8_t> blob) {
  if (blob.empty()) return;
  uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  if (blob.size() < sizeof trie_bytes || trie_bytes % 4 != 0 || trie_bytes > blob.size() - sizeof trie_bytes)
    throw FormatError("tokenizer.ggml.precompiled_charsmap is cut short or not one",
                      "the vocabulary is damaged");
  units_.resize(trie_bytes / 4);
  if (trie_bytes > 0) std::memcpy(units_.data(), blob.data() + sizeof trie_bytes, trie_bytes);
  const auto pool = blob.subspan(sizeof trie_bytes + trie_bytes);
  pool_.assign(pool.begin(), pool.end());
  pool_.push_back('\0');  // so that a replacement ends, whatever the blob holds
}

std::optional<Charsmap::Replacement> Charsmap::find(std::string_view text) const {
  if (units_.empty()) return std::nullopt;
  std::optional<Replacement> best;
  uint32_t node = offset_of(units_[0]);
  for (uint32_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size() || value_of(units_[node]) >= pool_.size()) break;
    best = {std::string_view(pool_.data() + value_of(units_[node])), i + 1};
  }
  return best;
}

}  // namespace llamay::tokenizer
