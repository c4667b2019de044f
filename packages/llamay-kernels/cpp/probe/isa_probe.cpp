#include <string.h>

#include "probe/table.hpp"
#include "simd/isa.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(LLAMAY_NEON)
#include <arm_neon.h>
#endif

namespace {

/// Keeps the compiler from seeing through a register.
template <class T>
inline void opaque(T& x) {
#if defined(__AVX2__)
  asm volatile("" : "+v"(x));
#elif defined(LLAMAY_NEON)
  asm volatile("" : "+w"(x));
#else
  asm volatile("" : "+r"(x));
#endif
}

#if defined(__AVX512F__)
using Vector = __m512i;
Vector load(const void* p) { return _mm512_load_si512(p); }
Vector add(Vector a, Vector b) { return _mm512_add_epi64(a, b); }
Vector zero() { return _mm512_setzero_si512(); }
#elif defined(__AVX2__)
using Vector = __m256i;
Vector load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
Vector add(Vector a, Vector b) { return _mm256_add_epi64(a, b); }
Vector zero() { return _mm256_setzero_si256(); }
#elif defined(LLAMAY_NEON)
using Vector = int32x4_t;
Vector load(const void* p) { return vld1q_s32(static_cast<const int32_t*>(p)); }
Vector add(Vector a, Vector b) { return vaddq_s32(a, b); }
Vector zero() { return vdupq_n_s32(0); }
#else
using Vector = uint64_t;
Vector load(const void* p) {
  Vector x;
  memcpy(&x, p, sizeof x);
  return x;
}
Vector add(Vector a, Vector b) { return a + b; }
Vector zero() { return 0; }
#endif

uint64_t sum(const Vector& a) {
  uint64_t x[sizeof a / 8], total = 0;
  memcpy(x, &a, sizeof x);
  for (const uint64_t part : x) total += part;
  return total;
}

uint64_t read(const void* data, size_t bytes) {
  constexpr int streams = 8;
  const char* p = static_cast<const char*>(data);
  Vector sums[streams];
  for (Vector& s : sums) s = zero();
  for (size_t at = 0; at + streams * sizeof(Vector) <= bytes; at += streams * sizeof(Vector))
    for (int i = 0; i < streams; ++i)
      sums[i] = add(sums[i], load(p + at + static_cast<size_t>(i) * sizeof(Vector)));
  uint64_t total = 0;
  for (const Vector& s : sums) total += sum(s);
  return total;
}

#if defined(__AVX512VNNI__)
#define LLAMAY_DOT(acc, a, b) acc = _mm512_dpbusd_epi32(acc, a, b)
#elif defined(__AVX512F__)
#define LLAMAY_DOT(acc, a, b) acc = _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), ones))
#elif defined(__AVXVNNI__)
#define LLAMAY_DOT(acc, a, b) acc = _mm256_dpbusd_avx_epi32(acc, a, b)
#elif defined(__AVX2__)
#define LLAMAY_DOT(acc, a, b) acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones))
#elif defined(LLAMAY_NEON) && defined(__ARM_FEATURE_MATMUL_INT8)
#define LLAMAY_DOT(acc, a, b) acc = vmmlaq_s32(acc, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
#elif defined(LLAMAY_NEON) && defined(__ARM_FEATURE_DOTPROD)
#define LLAMAY_DOT(acc, a, b) acc = vdotq_s32(acc, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
#elif defined(LLAMAY_NEON)
#define LLAMAY_DOT(acc, a, b)                                                                               \
  acc = vpadalq_s16(                                                                                        \
      acc, vpaddq_s16(vmull_s8(vget_low_s8(vreinterpretq_s8_s32(a)), vget_low_s8(vreinterpretq_s8_s32(b))), \
                      vmull_high_s8(vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))))
#endif

uint64_t dot(uint64_t rounds, uint64_t* sink) {
#if defined(LLAMAY_DOT)
#if defined(__AVX512F__)
  constexpr int accumulators = 16;
  [[maybe_unused]] const Vector ones = _mm512_set1_epi16(1);
#elif defined(__AVX2__)
  constexpr int accumulators = 8;
  [[maybe_unused]] const Vector ones = _mm256_set1_epi16(1);
#else
  constexpr int accumulators = 16;
#endif
  Vector sums[accumulators], a = zero(), b = zero();
#pragma GCC unroll 16
  for (int i = 0; i < accumulators; ++i) sums[i] = zero();
  opaque(a);
  opaque(b);
  for (uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < accumulators; ++i) {
      LLAMAY_DOT(sums[i], a, b);
      opaque(sums[i]);
    }
  }
  uint64_t total = 0;
#pragma GCC unroll 16
  for (int i = 0; i < accumulators; ++i) total += sum(sums[i]);
  *sink = total;
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return rounds * accumulators * sizeof(Vector) * 4;  // two rows by two
#else
  return rounds * accumulators * sizeof(Vector) * 2;
#endif
#else
  // The work of the portable products: plain multiplications, as the compiler arranges them.
  constexpr int n = 256;
  int8_t a[n], b[n];
  memset(a, 1, sizeof a);
  memset(b, 2, sizeof b);
  int32_t total = 0;
  for (uint64_t r = 0; r < rounds; ++r) {
    asm volatile("" : : "r"(a), "r"(b) : "memory");
    int32_t part = 0;
    for (int i = 0; i < n; ++i) part += a[i] * b[i];
    total += part & 1;
  }
  *sink = static_cast<uint64_t>(total);
  return rounds * n * 2;
#endif
}

}  // namespace

extern "C" const llamay::ProbeTable LLAMAY_TABLE(probe);
const llamay::ProbeTable LLAMAY_TABLE(probe) = {read, dot};
