#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tokenizer/hash.hpp"

namespace llamay::tokenizer {

/// Remembers, while one text is encoded, where in the output the ids of a piece stand: text repeats its
/// words. A new piece takes the place of an old one, so memory and time are bounded whatever the text is.
class PieceCache {
 public:
  /// `out` may only be appended to while the cache is in use.
  PieceCache(size_t text_size, std::vector<uint32_t>& out) : out_(out), seed_(hash_seed()) {
    if (text_size >= kWorthIt) entries_.resize(kEntries);
  }

  /// Append the ids of a piece: those remembered, or what `encode()` appends.
  template <class Encode>
  void append(std::string_view piece, Encode&& encode) {
    if (entries_.empty() || piece.size() > kLongest) {
      encode();
      return;
    }
    Entry& entry = entries_[hash_bytes(piece, seed_) % kEntries];
    if (entry.length == piece.size() && std::memcmp(entry.piece.data(), piece.data(), piece.size()) == 0) {
      for (uint32_t i = 0; i < entry.n_ids; ++i) out_.push_back(out_[entry.ids + i]);
      return;
    }
    const size_t before = out_.size();
    encode();
    std::memcpy(entry.piece.data(), piece.data(), piece.size());
    entry.length = static_cast<uint32_t>(piece.size());
    entry.ids = static_cast<uint32_t>(before);
    entry.n_ids = static_cast<uint32_t>(out_.size() - before);
  }

 private:
  static constexpr size_t kWorthIt = 2048;
  static constexpr size_t kLongest = 36;
  static constexpr size_t kEntries = 8192;

  struct Entry {
    uint32_t length = 0;
    uint32_t ids = 0;
    uint32_t n_ids = 0;
    std::array<char, kLongest> piece{};
  };
  std::vector<uint32_t>& out_;
  uint64_t seed_;
  std::vector<Entry> entries_;
};

}  // namespace llamay::tokenizer
