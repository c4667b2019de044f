#include <string.h>

#include "ops/rows/rows.hpp"
#include "ops/rows/table.hpp"
#include "simd/isa.hpp"
#include "simd/math.hpp"

namespace llamay {
namespace {

void elementwise(Elementwise op, const float* a, const float* b, float by, float* out, size_t n) {
  const f32x16 c = splat(by);
  switch (op) {
    case Elementwise::add:
      return map(a, b, out, n, [](f32x16 x, f32x16 y) { return x + y; });
    case Elementwise::mul:
      return map(a, b, out, n, [](f32x16 x, f32x16 y) { return x * y; });
    case Elementwise::scale:
      return map(a, out, n, [c](f32x16 x) { return x * c; });
    case Elementwise::softcap:
      return map(a, out, n, [c](f32x16 x) { return softcap(x, c); });
    case Elementwise::copy:
      memmove(out, a, n * sizeof *a);
      return;
  }
}

/// Sum of squares: element i goes to lane i % 16, in increasing i.
float squares(const float* x, size_t n) {
  f32x16 sum = zero();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const f32x16 v = load(x + i);
    sum = fma(v, v, sum);
  }
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    const f32x16 v = load(x + i, rest);
    sum = select(first_lanes(rest), fma(v, v, sum), sum);
  }
  return tree16(sum);
}

/// x * inverse, times w where there is one.
void normalise(const float* x, const float* w, float* out, size_t n, f32x16 inverse) {
  if (w)
    map(x, w, out, n, [inverse](f32x16 v, f32x16 weight) { return (v * inverse) * weight; });
  else
    map(x, out, n, [inverse](f32x16 v) { return v * inverse; });
}

void rms_norm(const float* x, const float* w, size_t groups, size_t width, float eps, float* out) {
  for (size_t g = 0; g < groups; ++g, x += width, out += width) {
    const float mean = squares(x, width) / static_cast<float>(width);
    const f32x16 inverse = splat(1.0f / __builtin_sqrtf(mean + eps));
    normalise(x, w, out, width, inverse);
  }
}

void layer_norm(const float* x, const float* w, const float* b, size_t rows, size_t width, float eps,
                float* out) {
  for (size_t r = 0; r < rows; ++r, x += width, out += width) {
    const float n = static_cast<float>(width);
    const f32x16 mean = splat(sum_of(x, width) / n);
    map(x, out, width, [mean](f32x16 v) { return v - mean; });
    const f32x16 inverse = splat(1.0f / __builtin_sqrtf(squares(out, width) / n + eps));
    normalise(out, w, out, width, inverse);
    if (b) map(out, b, out, width, [](f32x16 v, f32x16 bias) { return v + bias; });
  }
}

#if defined(LLAMAY_NEON) && defined(__ARM_FEATURE_MATMUL_INT8)
constexpr const char* compiled_for = "neon_i8mm";
#elif defined(LLAMAY_NEON) && defined(__ARM_FEATURE_DOTPROD)
constexpr const char* compiled_for = "neon_dotprod";
#elif defined(LLAMAY_NEON)
constexpr const char* compiled_for = "neon";
#elif defined(__AVX512VNNI__)
constexpr const char* compiled_for = "avx512_vnni";
#elif defined(__AVX512F__)
constexpr const char* compiled_for = "avx512";
#elif defined(__AVXVNNI__)
constexpr const char* compiled_for = "avx_vnni";
#elif defined(__AVX2__)
constexpr const char* compiled_for = "avx2";
#else
constexpr const char* compiled_for = "portable";
#endif

void rope_half(const float* x, const float* table, size_t heads, size_t head_dim, size_t half, float* out) {
  for (size_t h = 0; h < heads; ++h, x += head_dim, out += head_dim) {
    for (size_t i = 0; i < half; i += 16) {
      const int n = half - i < 16 ? static_cast<int>(half - i) : 16;
      const f32x16 a = load(x + i, n), b = load(x + half + i, n);
      const f32x16 c = load(table + i, n), s = load(table + half + i, n);
      store(out + i, fma(a, c, negate(b * s)), n);
      store(out + half + i, fma(b, c, a * s), n);
    }
    if (out != x) memmove(out + 2 * half, x + 2 * half, (head_dim - 2 * half) * sizeof *x);
  }
}

void rope_pairs(const float* x, const float* table, size_t heads, size_t head_dim, size_t half, float* out) {
  const size_t width = 2 * half;
  for (size_t h = 0; h < heads; ++h, x += head_dim, out += head_dim) {
    for (size_t i = 0; i < width; i += 16) {
      const int n = width - i < 16 ? static_cast<int>(width - i) : 16;
      const f32x16 v = load(x + i, n), c = load(table + i, n), s = load(table + width + i, n);
      store(out + i, fma(v, c, swap_pairs(v) * s), n);
    }
    if (out != x) memmove(out + width, x + width, (head_dim - width) * sizeof *x);
  }
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::OpsTable LLAMAY_TABLE(ops);
const llamay::OpsTable LLAMAY_TABLE(ops) = {llamay::compiled_for, llamay::elementwise, llamay::rms_norm,
                                            llamay::layer_norm,   llamay::rope_half,   llamay::rope_pairs};
