#include "sampling/chain/table.hpp"
#include "simd/isa.hpp"
#include "simd/math.hpp"

namespace llamay {
namespace {

constexpr size_t kBlock = SamplingTable::kBlock;

int lanes(size_t left) { return left < 16 ? static_cast<int>(left) : 16; }

#if defined(__AVX512F__)
mask16 from_bits16(uint32_t bits) { return static_cast<mask16>(bits); }
uint32_t to_bits16(mask16 m) { return m; }
#elif defined(__AVX2__)
mask16 from_bits16(uint32_t bits) {
  const __m256i one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const auto half = [one](uint32_t eight) {
    return _mm256_castsi256_ps(
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(eight)), one), one));
  };
  return {half(bits & 255), half(bits >> 8)};
}
uint32_t to_bits16(mask16 m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo)) | static_cast<uint32_t>(_mm256_movemask_ps(m.hi))
                                                               << 8;
}
#elif defined(LLAMAY_NEON)
mask16 from_bits16(uint32_t bits) {
  const uint32x4_t one = {1, 2, 4, 8};
  return each_mask([=](int i) { return vtstq_u32(vdupq_n_u32(bits >> 4 * i), one); });
}
uint32_t to_bits16(mask16 m) { return lane_bits(m); }
#else
mask16 from_bits16(uint32_t bits) {
  return each_mask([=](int i) { return (bits >> i & 1) != 0; });
}
uint32_t to_bits16(mask16 m) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(m.v[i]) << i;
  return bits;
}
#endif

uint32_t lane_bits_of(int k) { return (1u << k) - 1; }
/// The mask's bits of the 16 values from i on.
uint32_t bits_of(const uint32_t* mask, size_t i) { return mask[i / 32] >> i % 32 & 0xffff; }
bool none(const uint32_t* mask, size_t from, size_t to) {
  uint32_t any = 0;
  for (size_t word = from / 32; word < (to + 31) / 32; ++word) any |= mask[word];
  return any == 0;
}

void masked(const float* logits, const uint32_t* mask, size_t n, float* out) {
  const f32x16 nothing = splat(-__builtin_inff());
  for (size_t i = 0; i < n; i += 16) {
    const int k = lanes(n - i);
    f32x16 x = load(logits + i, k);
    if (mask) x = select(from_bits16(bits_of(mask, i)), x, nothing);
    store(out + i, x, k);
  }
}

bool maxima(const float* logits, const uint32_t* mask, size_t n, float* block_max) {
  const f32x16 nothing = splat(-__builtin_inff()), infinity = splat(__builtin_inff());
  uint32_t below = 0xffff;
  for (size_t block = 0; block < n; block += kBlock) {
    const size_t end = n - block < kBlock ? n : block + kBlock;
    // A mask usually allows few tokens: blocks that it excludes need not be read.
    if (mask && none(mask, block, end)) {
      *block_max++ = -__builtin_inff();
      continue;
    }
    f32x16 largest = nothing;
    for (size_t i = block; i < end; i += 16) {
      const int k = lanes(end - i);
      mask16 counts = first_lanes(k);
      if (mask) counts = from_bits16(bits_of(mask, i) & lane_bits_of(k));
      const f32x16 x = select(counts, load(logits + i, k), nothing);
      below &= to_bits16(less(x, infinity));
      largest = max(largest, x);
    }
    *block_max++ = max16(largest);
  }
  return below == 0xffff;
}

size_t at_least(const float* logits, const uint32_t* mask, const float* block_max, size_t n, float threshold,
                uint32_t* ids) {
  const f32x16 t = splat(threshold);
  size_t count = 0;
  for (size_t block = 0; block < n; block += kBlock) {
    if (*block_max++ < threshold) continue;
    const size_t end = n - block < kBlock ? n : block + kBlock;
    for (size_t i = block; i < end; i += 16) {
      const int k = lanes(end - i);
      uint32_t bits = ~to_bits16(less(load(logits + i, k), t)) & lane_bits_of(k);
      if (mask) bits &= bits_of(mask, i);
      for (; bits; bits &= bits - 1)
        ids[count++] = static_cast<uint32_t>(i) + static_cast<uint32_t>(__builtin_ctz(bits));
    }
  }
  return count;
}

void weights(const float* logits, size_t n, float largest, float by, float* out) {
  const f32x16 m = splat(largest), scale = splat(by);
  for (size_t i = 0; i < n; i += 16) {
    const int k = lanes(n - i);
    store(out + i, exp((load(logits + i, k) - m) * scale), k);
  }
}

void sums(const float* values, size_t n, float* block_sum) {
  for (size_t block = 0; block < n; block += kBlock) {
    const size_t end = n - block < kBlock ? n : block + kBlock;
    f32x16 sum = zero();
    for (size_t i = block; i < end; i += 16)
      sum = sum + load(values + i, lanes(end - i));  // absent lanes add +0
    *block_sum++ = tree16(sum);
  }
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::SamplingTable LLAMAY_TABLE(sampling);
const llamay::SamplingTable LLAMAY_TABLE(sampling) = {llamay::masked, llamay::maxima, llamay::at_least,
                                                      llamay::weights, llamay::sums};
