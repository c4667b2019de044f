#include "numbers/half.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace llamay::kv {
namespace {

void widen_plain(const uint16_t* in, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = half_to_float(in[i]);
}

void narrow_plain(const float* in, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i) out[i] = float_to_half(in[i]);
}

#if defined(__x86_64__)
// The instructions do exactly what half.hpp does, bit for bit.
__attribute__((target("avx,f16c"))) void widen_f16c(const uint16_t* in, size_t n, float* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
  widen_plain(in + i, n - i, out + i);
}

__attribute__((target("avx,f16c"))) void narrow_f16c(const float* in, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
  narrow_plain(in + i, n - i, out + i);
}

const bool kF16c = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
const auto kWiden = kF16c ? widen_f16c : widen_plain;
const auto kNarrow = kF16c ? narrow_f16c : narrow_plain;
#else
const auto kWiden = widen_plain;
const auto kNarrow = narrow_plain;
#endif

}  // namespace

void halves_to_floats(const uint16_t* in, size_t n, float* out) { kWiden(in, n, out); }

void floats_to_halves(const float* in, size_t n, uint16_t* out) { kNarrow(in, n, out); }

}  // namespace llamay::kv
