#pragma once

#include <array>
#include <cstdint>

namespace llamay {

/// Philox 4x32 with 10 rounds: 128 random bits that are a function of a counter and a key, so that any draw
/// can be repeated, in any order. Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * counter[0], b = uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return counter;
}

/// Two random numbers for one position of one sequence, multiples of 2^-53 in [0, 1): one for a stage that
/// takes a chance, one for the draw.
struct Uniforms {
  double chance, draw;
};
inline Uniforms uniforms(uint64_t seed, uint64_t sequence, uint64_t position) {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto bits =
      philox4x32({low(position), high(position), low(sequence), high(sequence)}, {low(seed), high(seed)});
  const auto number = [](uint32_t first, uint32_t second) {
    return static_cast<double>((uint64_t{first} << 32 | second) >> 11) * 0x1p-53;
  };
  return {number(bits[2], bits[3]), number(bits[0], bits[1])};
}

}  // namespace llamay
