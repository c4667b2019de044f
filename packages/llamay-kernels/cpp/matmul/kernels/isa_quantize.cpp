// Activations rounded to bytes: docs/arithmetic.md, "Activation quantization".
#include "formats/half.hpp"
#include "matmul/kernels/output.hpp"
#include "matmul/vectors/vector.hpp"
#include "matmul/weights/packed.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

struct Scale {
  float d, inverse;  // inverse 0: every integer is 0
};

inline Scale scale_for(uint32_t amax_bits) {
  if (amax_bits >= 0x7f800000u) return {__builtin_nanf(""), 0};
  const float amax = float_of(amax_bits), inverse = 127 / amax;
  if (bits_of(inverse) >= 0x7f800000u) return {0, 0};  // amax is 0, or so small that its inverse overflows
  return {amax / 127, inverse};
}

#ifdef __AVX512BW__

/// n = 32 or 256 values; sums: of each sixteen.
template <int n>
LLAMAY_INLINE float quantize_block(const float* x, int8_t* q, int32_t* sums) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i top = _mm512_setzero_si512();
  for (int i = 0; i < n; i += 16)
    top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + i)), magnitude));
  const Scale scale = scale_for(static_cast<uint32_t>(_mm512_reduce_max_epi32(top)));
  if (scale.inverse == 0) {
    __builtin_memset(q, 0, n);
    for (int i = 0; i < n / 16; ++i) sums[i] = 0;
    return scale.d;
  }
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  for (int i = 0; i < n / 16; ++i) {
    const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * i), _mm512_cvtepi32_epi8(v));
    sums[i] = _mm512_reduce_add_epi32(v);
  }
  return scale.d;
}

#elif defined(__AVX2__)

LLAMAY_INLINE __m128i max_of_halves(__m256i v) {
  return _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

template <int n>
LLAMAY_INLINE float quantize_block(const float* x, int8_t* q, int32_t* sums) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i top = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 8)
    top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + i)), magnitude));
  __m128i half = max_of_halves(top);
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  const Scale scale = scale_for(static_cast<uint32_t>(_mm_cvtsi128_si32(half)));
  if (scale.inverse == 0) {
    __builtin_memset(q, 0, n);
    for (int i = 0; i < n / 16; ++i) sums[i] = 0;
    return scale.d;
  }
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  for (int i = 0; i < n / 16; ++i) {
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i), inverse));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16 * i + 8), inverse));
    const __m128i a16 = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i b16 = _mm_packs_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * i), _mm_packs_epi16(a16, b16));
    const __m256i both = _mm256_add_epi32(a, b);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    sums[i] = _mm_cvtsi128_si32(sum);
  }
  return scale.d;
}

#elif defined(LLAMAY_NEON)

template <int n>
LLAMAY_INLINE float quantize_block(const float* x, int8_t* q, int32_t* sums) {
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffffu);
  uint32x4_t top = vdupq_n_u32(0);
  for (int i = 0; i < n; i += 4)
    top = vmaxq_u32(top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), magnitude));
  const Scale scale = scale_for(vmaxvq_u32(top));
  if (scale.inverse == 0) {
    __builtin_memset(q, 0, n);
    for (int i = 0; i < n / 16; ++i) sums[i] = 0;
    return scale.d;
  }
  for (int i = 0; i < n / 16; ++i) {
    int32x4_t v[4];
    for (int j = 0; j < 4; ++j)
      v[j] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * i + 4 * j), scale.inverse));
    const int16x8_t low = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
    vst1q_s8(q + 16 * i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    sums[i] = vaddvq_s32(vaddq_s32(vaddq_s32(v[0], v[1]), vaddq_s32(v[2], v[3])));
  }
  return scale.d;
}

#else

template <int n>
float quantize_block(const float* x, int8_t* q, int32_t* sums) {
  uint32_t top = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
    top = magnitude > top ? magnitude : top;
  }
  const Scale scale = scale_for(top);
  for (int i = 0; i < n / 16; ++i) sums[i] = 0;
  for (int i = 0; i < n; ++i) {
    // Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits.
    int32_t v = 0;
    if (scale.inverse != 0) v = static_cast<int32_t>(bits_of(x[i] * scale.inverse + 0x1.8p23f) - 0x4b400000u);
    q[i] = static_cast<int8_t>(v);
    sums[i / 16] += v;
  }
  return scale.d;
}

#endif

void q8_32(const float* x, size_t cols, void* dst) {
  Activation32* out = static_cast<Activation32*>(dst);
  for (size_t b = 0; b < cols / 32; ++b) {
    int32_t sums[2];
    out[b].d = quantize_block<32>(x + 32 * b, out[b].q, sums);
    const int32_t sum = sums[0] + sums[1];
    out[b].s = out[b].d * static_cast<float>(sum);
    out[b].offset8 = -8 * sum;
    out[b].unused = 0;
  }
}

void q8_256(const float* x, size_t cols, void* dst) {
  Activation256* out = static_cast<Activation256*>(dst);
  for (size_t b = 0; b < cols / 256; ++b) {
    int32_t sums[16];
    out[b].d = quantize_block<256>(x + 256 * b, out[b].q, sums);
    int32_t all = 0;
    for (int i = 0; i < 16; ++i) {
      out[b].offset32[i] = -32 * sums[i];
      out[b].sums16[i] = static_cast<int16_t>(sums[i]);
      all += sums[i];
    }
    for (int i = 0; i < 8; ++i) out[b].sums[i] = static_cast<int16_t>(sums[2 * i] + sums[2 * i + 1]);
    out[b].offset1 = -all;
    for (int32_t& word : out[b].unused) word = 0;
  }
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::Quantizers LLAMAY_TABLE(matmul_quantize);
const llamay::Quantizers LLAMAY_TABLE(matmul_quantize) = {llamay::q8_32, llamay::q8_256};
