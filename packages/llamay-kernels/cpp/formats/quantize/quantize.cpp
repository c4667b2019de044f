#include "formats/blocks.hpp"
#include "formats/codec.hpp"
#include "formats/half.hpp"
#include "formats/quantize/quantize_k.hpp"

namespace llamay {
namespace {

/// The level below v in 0..highest; NaN gives 0, so that no conversion is undefined.
uint8_t level(float v, int highest) {
  if (!(v >= 0)) return 0;
  return static_cast<uint8_t>(v < static_cast<float>(highest) ? static_cast<int>(v) : highest);
}

float inverse(float d) { return d == 0 ? 0 : 1 / d; }

/// The value of largest magnitude, with its sign; the first of equals.
float extreme(const float* x) {
  float best = x[0];
  for (int i = 1; i < 32; ++i)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(best)) best = x[i];
  return best;
}

/// Levels 0..2^bits-1 around 2^(bits-1); the extreme value takes level 0, so that it is kept exactly.
float symmetric_levels(const float* x, int bits, uint8_t* q) {
  const float half = static_cast<float>(1 << (bits - 1));
  const float d = extreme(x) / -half, id = inverse(d);
  for (int i = 0; i < 32; ++i) q[i] = level(x[i] * id + (half + 0.5f), (1 << bits) - 1);
  return d;
}

float affine_levels(const float* x, int bits, uint8_t* q, float* min) {
  float low = x[0], high = x[0];
  for (int i = 1; i < 32; ++i) {
    if (x[i] < low) low = x[i];
    if (x[i] > high) high = x[i];
  }
  const int highest = (1 << bits) - 1;
  const float d = (high - low) / static_cast<float>(highest), id = inverse(d);
  for (int i = 0; i < 32; ++i) q[i] = level((x[i] - low) * id + 0.5f, highest);
  *min = low;
  return d;
}

void join_nibbles(const uint8_t* q, uint8_t* qs) {
  for (int i = 0; i < 16; ++i) qs[i] = static_cast<uint8_t>((q[i] & 15) | (q[i + 16] & 15) << 4);
}
void join_fifth_bits(const uint8_t* q, uint8_t* qh) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(q[i] >> 4) << i;
  memcpy(qh, &bits, sizeof bits);
}

void round_block(const float* x, BlockQ4_0& b) {
  uint8_t q[32];
  store_u16(b.d, f32_to_f16(symmetric_levels(x, 4, q)));
  join_nibbles(q, b.qs);
}
void round_block(const float* x, BlockQ5_0& b) {
  uint8_t q[32];
  store_u16(b.d, f32_to_f16(symmetric_levels(x, 5, q)));
  join_nibbles(q, b.qs);
  join_fifth_bits(q, b.qh);
}
void round_block(const float* x, BlockQ4_1& b) {
  uint8_t q[32];
  float min;
  store_u16(b.d, f32_to_f16(affine_levels(x, 4, q, &min)));
  store_u16(b.m, f32_to_f16(min));
  join_nibbles(q, b.qs);
}
void round_block(const float* x, BlockQ5_1& b) {
  uint8_t q[32];
  float min;
  store_u16(b.d, f32_to_f16(affine_levels(x, 5, q, &min)));
  store_u16(b.m, f32_to_f16(min));
  join_nibbles(q, b.qs);
  join_fifth_bits(q, b.qh);
}
void round_block(const float* x, BlockQ8_0& b) {
  const float d = __builtin_fabsf(extreme(x)) / 127, id = inverse(d);
  for (int i = 0; i < 32; ++i) {
    // Half away from zero, as the format's reference rounds.
    const float v = x[i] * id, magnitude = __builtin_fabsf(v);
    const uint8_t whole = level(magnitude, 127);
    const int q = whole < 127 && magnitude - static_cast<float>(whole) >= 0.5f ? whole + 1 : whole;
    b.qs[i] = static_cast<int8_t>(v < 0 ? -q : q);
  }
  store_u16(b.d, f32_to_f16(d));
}

template <class Block>
void quantize_blocks(const float* values, size_t count, void* out) {
  for (size_t i = 0; i < count / 32; ++i) {
    Block block;
    round_block(values + 32 * i, block);
    memcpy(static_cast<uint8_t*>(out) + i * sizeof block, &block, sizeof block);
  }
}

}  // namespace

void quantize(Format format, const float* values, size_t count, void* out) {
  auto* bytes = static_cast<uint8_t*>(out);
  switch (format) {
    case Format::F32:
      memcpy(out, values, count * sizeof(float));
      return;
    case Format::F16:
      for (size_t i = 0; i < count; ++i) store_u16(bytes + 2 * i, f32_to_f16(values[i]));
      return;
    case Format::BF16:
      for (size_t i = 0; i < count; ++i) store_u16(bytes + 2 * i, f32_to_bf16(values[i]));
      return;
    case Format::Q4_0:
      return quantize_blocks<BlockQ4_0>(values, count, out);
    case Format::Q4_1:
      return quantize_blocks<BlockQ4_1>(values, count, out);
    case Format::Q5_0:
      return quantize_blocks<BlockQ5_0>(values, count, out);
    case Format::Q5_1:
      return quantize_blocks<BlockQ5_1>(values, count, out);
    case Format::Q8_0:
      return quantize_blocks<BlockQ8_0>(values, count, out);
    case Format::Q2_K:
    case Format::Q3_K:
    case Format::Q4_K:
    case Format::Q5_K:
    case Format::Q6_K:
      return quantize_super_blocks(format, values, count, out);
    default:
      return quantize_codes(format, values, count, out);
  }
}

}  // namespace llamay
