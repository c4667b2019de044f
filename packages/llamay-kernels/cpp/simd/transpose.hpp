#pragma once

#include "simd/f32x16.hpp"

namespace llamay {
namespace {

/// to[i * to_stride + j] = from[j * from_stride + i] for i, j < 8.
LLAMAY_LANES void transpose8(const float* from, size_t from_stride, float* to, size_t to_stride) {
#if defined(__AVX2__)
  // Columns 0..3 of rows i and i + 4 side by side, then columns 4..7: the remaining steps stay within halves
  // of a register.
  __m256 low[4], high[4];
  for (size_t i = 0; i < 4; ++i) {
    const float *a = from + i * from_stride, *b = from + (i + 4) * from_stride;
    low[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1);
    high[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a + 4)), _mm_loadu_ps(b + 4), 1);
  }
  const auto four = [&](const __m256(&row)[4], float* at) {
    const __m256 a = _mm256_unpacklo_ps(row[0], row[1]), b = _mm256_unpackhi_ps(row[0], row[1]);
    const __m256 c = _mm256_unpacklo_ps(row[2], row[3]), d = _mm256_unpackhi_ps(row[2], row[3]);
    _mm256_storeu_ps(at, _mm256_shuffle_ps(a, c, 0x44));
    _mm256_storeu_ps(at + to_stride, _mm256_shuffle_ps(a, c, 0xee));
    _mm256_storeu_ps(at + 2 * to_stride, _mm256_shuffle_ps(b, d, 0x44));
    _mm256_storeu_ps(at + 3 * to_stride, _mm256_shuffle_ps(b, d, 0xee));
  };
  four(low, to);
  four(high, to + 4 * to_stride);
#elif defined(LLAMAY_NEON)
  for (size_t i = 0; i < 8; i += 4)
    for (size_t j = 0; j < 8; j += 4) {
      const float* at = from + j * from_stride + i;
      const float32x4x2_t a = vtrnq_f32(vld1q_f32(at), vld1q_f32(at + from_stride));
      const float32x4x2_t b = vtrnq_f32(vld1q_f32(at + 2 * from_stride), vld1q_f32(at + 3 * from_stride));
      float* out = to + i * to_stride + j;
      vst1q_f32(out, vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0])));
      vst1q_f32(out + to_stride, vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1])));
      vst1q_f32(out + 2 * to_stride, vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0])));
      vst1q_f32(out + 3 * to_stride, vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1])));
    }
#else
  for (size_t i = 0; i < 8; ++i)
    for (size_t j = 0; j < 8; ++j) to[i * to_stride + j] = from[j * from_stride + i];
#endif
}

}  // namespace
}  // namespace llamay
