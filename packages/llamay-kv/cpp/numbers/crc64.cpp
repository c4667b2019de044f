#include "numbers/crc64.hpp"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llamay::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "pages and files are little-endian");

constexpr uint64_t kPolynomial = 0x9a6c9329ac4bc9b5;  // bit-reversed

constexpr auto kTables = [] {
  std::array<std::array<uint64_t, 256>, 8> t{};
  for (uint64_t b = 0; b < 256; ++b) {
    uint64_t crc = b;
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    t[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b) t[k][b] = t[k - 1][b] >> 8 ^ t[0][t[k - 1][b] & 255];
  return t;
}();

/// Eight bytes at a time by table look-up (Kounavis and Berry, "slicing-by-8").
uint64_t update(uint64_t crc, const unsigned char* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> 8 * k & 255];
  }
  for (; n; ++p, --n) crc = crc >> 8 ^ kTables[0][(crc ^ *p) & 255];
  return crc;
}

#if defined(__x86_64__)

/// x^n modulo the polynomial, bit-reversed.
constexpr uint64_t x_to_the(unsigned n) {
  uint64_t value = uint64_t(1) << 63;
  for (unsigned i = 0; i < n; ++i) value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
  return value;
}

// Folding (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009): 128
// bits of the message are carried over a distance of `bits` by two multiplications. The low half comes first
// in the message, so it is 64 bits further away; a product of bit-reversed values is one bit short, hence the
// - 1.
template <unsigned bits>
struct Distance {
  static constexpr uint64_t low = x_to_the(bits + 64 - 1), high = x_to_the(bits - 1);
};

#define LLAMAY_PCLMUL __attribute__((target("pclmul,sse4.1")))
#define LLAMAY_VPCLMUL __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

template <unsigned bits>
LLAMAY_PCLMUL inline __m128i fold(__m128i a, __m128i next) {
  const __m128i k = _mm_set_epi64x(int64_t(Distance<bits>::high), int64_t(Distance<bits>::low));
  return _mm_xor_si128(next,
                       _mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00), _mm_clmulepi64_si128(a, k, 0x11)));
}

LLAMAY_PCLMUL inline __m128i load(const unsigned char* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

/// The lanes of the accumulators hold consecutive 16-byte words: bring them together and reduce by table.
LLAMAY_PCLMUL uint64_t finish(const unsigned char* lanes, size_t n_lanes, const unsigned char* p, size_t n) {
  __m128i a = load(lanes);
  for (size_t i = 1; i < n_lanes; ++i) a = fold<128>(a, load(lanes + 16 * i));
  for (; n >= 16; p += 16, n -= 16) a = fold<128>(a, load(p));
  alignas(16) unsigned char rest[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(rest), a);
  return update(update(0, rest, 16), p, n);
}

LLAMAY_PCLMUL uint64_t update_pclmul(uint64_t crc, const unsigned char* p, size_t n) {
  constexpr size_t kLanes = 8;
  __m128i a[kLanes];
  for (size_t i = 0; i < kLanes; ++i) a[i] = load(p + 16 * i);
  a[0] = _mm_xor_si128(a[0], _mm_cvtsi64_si128(int64_t(crc)));
  p += 16 * kLanes;
  n -= 16 * kLanes;
  for (; n >= 16 * kLanes; p += 16 * kLanes, n -= 16 * kLanes)
    for (size_t i = 0; i < kLanes; ++i) a[i] = fold<128 * kLanes>(a[i], load(p + 16 * i));
  alignas(16) unsigned char lanes[16 * kLanes];
  for (size_t i = 0; i < kLanes; ++i) _mm_store_si128(reinterpret_cast<__m128i*>(lanes + 16 * i), a[i]);
  return finish(lanes, kLanes, p, n);
}

LLAMAY_VPCLMUL uint64_t update_vpclmul(uint64_t crc, const unsigned char* p, size_t n) {
  constexpr size_t kVectors = 4, kStep = 64 * kVectors;
  using D = Distance<8 * kStep>;
  const auto high = int64_t(D::high), low = int64_t(D::low);
  const __m512i k = _mm512_set_epi64(high, low, high, low, high, low, high, low);
  __m512i a[kVectors];
  for (size_t i = 0; i < kVectors; ++i) a[i] = _mm512_loadu_si512(p + 64 * i);
  a[0] = _mm512_xor_si512(a[0], _mm512_zextsi128_si512(_mm_cvtsi64_si128(int64_t(crc))));
  p += kStep;
  n -= kStep;
  for (; n >= kStep; p += kStep, n -= kStep)
    for (size_t i = 0; i < kVectors; ++i)
      a[i] = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a[i], k, 0x00),
                                       _mm512_clmulepi64_epi128(a[i], k, 0x11),
                                       _mm512_loadu_si512(p + 64 * i), 0x96);  // three-way XOR
  alignas(64) unsigned char lanes[kStep];
  for (size_t i = 0; i < kVectors; ++i) _mm512_store_si512(lanes + 64 * i, a[i]);
  return finish(lanes, kStep / 16, p, n);
}

using Update = uint64_t (*)(uint64_t, const unsigned char*, size_t);

Update choose() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
      __builtin_cpu_supports("pclmul"))
    return update_vpclmul;
  if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) return update_pclmul;
  return update;
}

#endif

}  // namespace

uint64_t crc64_portable(const void* data, size_t size, uint64_t previous) {
  return ~update(~previous, static_cast<const unsigned char*>(data), size);
}

uint64_t crc64(const void* data, size_t size, uint64_t previous) {
#if defined(__x86_64__)
  static const Update best = choose();
  if (size >= 256) return ~best(~previous, static_cast<const unsigned char*>(data), size);
#endif
  return crc64_portable(data, size, previous);
}

}  // namespace llamay::kv
