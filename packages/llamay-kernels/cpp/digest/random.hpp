#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace llamay {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>((z ^ z >> 31) >> 32);
  }
  size_t below(size_t n) { return next() % n; }
  /// A number of many magnitudes; one in `odd` is hostile.
  float value(size_t odd) {
    static constexpr uint32_t hostile[] = {0,          0x80000000, 1,          0x80000001, 0x7fffff,
                                           0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                           0x7fc00000, 0x3f800000, 0x42b20000, 0xc2d00000, 0x3f0ccccd};
    uint32_t bits = hostile[below(sizeof hostile / sizeof *hostile)];
    if (odd == 0 || below(odd) != 0)
      bits = (next() & 0x807fffffu) | static_cast<uint32_t>(115 + below(20)) << 23;
    float v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
  }

 private:
  uint64_t state_;
};

class Digest {
 public:
  void add(const float* values, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      uint32_t bits;
      std::memcpy(&bits, values + i, sizeof bits);
      if (values[i] != values[i]) bits = 0x7fc00000;
      hash_ = (hash_ ^ bits) * 0x100000001b3u;
    }
  }
  unsigned long long value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace llamay
