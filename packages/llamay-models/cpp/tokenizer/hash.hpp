#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace llamay::tokenizer {

/// 64-bit multiply-and-fold, the mixing step of wyhash (public domain).
inline uint64_t fold_multiply(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

/// Seeded anew in each process, so that nobody can prepare texts whose pieces collide.
uint64_t hash_seed();

inline uint64_t hash_bytes(std::string_view s, uint64_t seed) {
  const auto load = [&](size_t at, size_t n) {
    uint64_t v = 0;
    std::memcpy(&v, s.data() + at, n);
    return v;
  };
  uint64_t h = seed ^ s.size() * 0x9E3779B97F4A7C15u;
  size_t at = 0;
  for (; at + 8 <= s.size(); at += 8) h = fold_multiply(h ^ load(at, 8), 0xA0761D6478BD642Fu);
  if (at < s.size()) h = fold_multiply(h ^ load(at, s.size() - at), 0xE7037ED1A0B428DBu);
  return fold_multiply(h ^ 0x8EBC6AF09C88C6E3u, 0x589965CC75374CC3u);
}

inline uint64_t hash_number(uint64_t n, uint64_t seed) {
  return fold_multiply(n ^ seed, 0x9E3779B97F4A7C15u) ^ fold_multiply(n, 0xD6E8FEB86659FD93u);
}

}  // namespace llamay::tokenizer
