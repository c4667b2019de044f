#include <math.h>

#include "formats/blocks_iq.hpp"
#include "formats/codebook.hpp"
#include "formats/codec.hpp"
#include "formats/quantize/quantize_k.hpp"
#include "formats/quantize/search.hpp"

namespace llamay {
namespace {

void join_nibbles(const uint8_t* code, uint8_t* qs) {
  for (int i = 0; i < 16; ++i) qs[i] = static_cast<uint8_t>(code[i] | code[i + 16] << 4);
}

constexpr Codebook kNonlinear = codebook(Format::IQ4_NL);

/// The code whose value is nearest: how many midpoints lie below. NaN gives 0.
uint8_t nearest_code(float v) {
  int code = 0;
  for (int i = 0; i < 15; ++i)
    code += v > 0.5f * static_cast<float>(kNonlinear.value[i] + kNonlinear.value[i + 1]);
  return static_cast<uint8_t>(code);
}

/// The 32 codes for a scale, and their weighted error.
float choose_codes(const float* x, const float* weight, float scale, uint8_t* code) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  float error = 0;
  for (int i = 0; i < 32; ++i) {
    code[i] = nearest_code(x[i] * inverse);
    const float off = scale * static_cast<float>(kNonlinear.value[code[i]]) - x[i];
    error += weight[i] * off * off;
  }
  return error;
}

/// The scale of least weighted error for 32 values: the extreme value is put near either end of the codebook,
/// then the scale is refit to the resulting codes.
float fit_codes(const float* x, const float* weight) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(extreme)) extreme = x[i];
  if (extreme == 0) return 0;
  float best = 0, best_gain = -1;
  for (int end = 0; end < 2; ++end)
    for (int step = -8; step <= 8; ++step) {
      const float inverse = static_cast<float>(kNonlinear.value[end ? 15 : 0] + 4 * step) / extreme;
      float sum_qx = 0, sum_qq = 0;
      for (int i = 0; i < 32; ++i) {
        const float q = static_cast<float>(kNonlinear.value[nearest_code(x[i] * inverse)]);
        sum_qx += weight[i] * q * x[i];
        sum_qq += weight[i] * q * q;
      }
      if (!(sum_qq > 0)) continue;
      const float gain = sum_qx * sum_qx / sum_qq;
      if (gain > best_gain) {
        best_gain = gain;
        best = sum_qx / sum_qq;
      }
    }
  return best;
}

void round_block(const float* x, BlockIQ4_NL& b) {
  float weight[32];
  uint8_t code[32];
  weigh(x, 32, weight);
  choose_codes(x, weight, read_back(fit_codes(x, weight), b.d), code);
  join_nibbles(code, b.qs);
}

void round_block(const float* x, BlockIQ4_XS& b) {
  float weight[256], scales[8], top = 0;
  for (int s = 0; s < 8; ++s) {
    weigh(x + 32 * s, 32, weight + 32 * s);
    scales[s] = fit_codes(x + 32 * s, weight + 32 * s);
    if (__builtin_fabsf(scales[s]) > __builtin_fabsf(top)) top = scales[s];
  }
  const float d = read_back(top / -32, b.d);  // -32 has no opposite
  uint32_t high = 0;
  for (int s = 0; s < 8; ++s) {
    const int near_scale = d != 0 ? nearest(scales[s] / d, -32, 31) : 0;
    float best_error = -1;
    uint8_t code[32] = {};
    int chosen = 0;
    for (int ds = -1; ds <= 1; ++ds) {
      const int sc = clamp(near_scale + ds, -32, 31);
      uint8_t trial[32];
      const float error = choose_codes(x + 32 * s, weight + 32 * s, d * static_cast<float>(sc), trial);
      if (best_error >= 0 && !(error < best_error)) continue;
      best_error = error;
      chosen = sc + 32;
      memcpy(code, trial, sizeof code);
    }
    const int low = (chosen & 15) << (s % 2 * 4);
    b.scales_l[s / 2] = static_cast<uint8_t>(s % 2 ? b.scales_l[s / 2] | low : low);
    high |= static_cast<uint32_t>(chosen >> 4) << 2 * s;
    join_nibbles(code, b.qs + 16 * s);
  }
  store_u16(b.scales_h, static_cast<uint16_t>(high));
}

/// Like the reference: the exponent that brings the largest value to 4..8 units of the code, then the nearest
/// of the sixteen values, the first of equals.
void round_block(const float* x, BlockMXFP4& b) {
  constexpr Codebook book = codebook(Format::MXFP4);
  float amax = 0;
  for (int i = 0; i < 32; ++i)
    if (__builtin_fabsf(x[i]) > amax) amax = __builtin_fabsf(x[i]);
  // Rounded to binary32 like in the reference: a value just below a power of two counts as that power.
  const int e =
      amax > 0 ? static_cast<int>(floorf(static_cast<float>(log2(static_cast<double>(amax))))) + 125 : 0;
  b.e = static_cast<uint8_t>(clamp(e, 0, 254));
  const float d = bf16_to_f32(scale_bits(b));
  uint8_t code[32];
  for (int i = 0; i < 32; ++i) {
    float least = __builtin_inff();
    code[i] = 0;
    for (int c = 0; c < 16; ++c) {
      const float off = __builtin_fabsf(d * static_cast<float>(book.value[c]) - x[i]);
      if (off < least) {
        least = off;
        code[i] = static_cast<uint8_t>(c);
      }
    }
  }
  join_nibbles(code, b.qs);
}

/// Like the reference: the largest magnitude is the scale, and values of at least half of it become -1 or 1.
/// Digits are written plus 1.
void round_ternary(const float* x, uint8_t* d_out, uint8_t* digit) {
  float amax = 0;
  for (int i = 0; i < 256; ++i)
    if (__builtin_fabsf(x[i]) > amax) amax = __builtin_fabsf(x[i]);
  const float inverse = amax == 0 ? 0 : 1 / amax;
  for (int i = 0; i < 256; ++i) {
    const float v = x[i] * inverse;
    digit[i] = static_cast<uint8_t>(1 + (v >= 0.5f) - (v <= -0.5f));
  }
  store_u16(d_out, f32_to_f16(amax));
}

/// Packs n base-3 digits, bytes apart, into a fraction of 256, rounded up so that the same digits are read
/// back.
uint8_t join_digits(const uint8_t* digit, int digits, int bytes) {
  int sum = 0;
  for (int j = 0; j < 5; ++j) sum = 3 * sum + (j < digits ? digit[bytes * j] : 0);
  return static_cast<uint8_t>((sum * 256 + 242) / 243);
}

void round_block(const float* x, BlockTQ1_0& b) {
  uint8_t digit[256];
  round_ternary(x, b.d, digit);
  for (int i = 0; i < 32; ++i) b.qs[i] = join_digits(digit + i, 5, 32);
  for (int i = 0; i < 16; ++i) b.qs[32 + i] = join_digits(digit + 160 + i, 5, 16);
  for (int i = 0; i < 4; ++i) b.qh[i] = join_digits(digit + 240 + i, 4, 4);
}

void round_block(const float* x, BlockTQ2_0& b) {
  uint8_t digit[256];
  round_ternary(x, b.d, digit);
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < 32; ++i) {
      const uint8_t* p = digit + 128 * h + i;
      b.qs[32 * h + i] = static_cast<uint8_t>(p[0] | p[32] << 2 | p[64] << 4 | p[96] << 6);
    }
}

template <class Block, size_t n>
void quantize_blocks(const float* values, size_t count, void* out) {
  for (size_t i = 0; i < count / n; ++i) {
    Block block;
    round_block(values + n * i, block);
    memcpy(static_cast<uint8_t*>(out) + i * sizeof block, &block, sizeof block);
  }
}

}  // namespace

void quantize_codes(Format format, const float* values, size_t count, void* out) {
  switch (format) {
    case Format::IQ4_NL:
      return quantize_blocks<BlockIQ4_NL, 32>(values, count, out);
    case Format::IQ4_XS:
      return quantize_blocks<BlockIQ4_XS, 256>(values, count, out);
    case Format::MXFP4:
      return quantize_blocks<BlockMXFP4, 32>(values, count, out);
    case Format::TQ1_0:
      return quantize_blocks<BlockTQ1_0, 256>(values, count, out);
    case Format::TQ2_0:
      return quantize_blocks<BlockTQ2_0, 256>(values, count, out);
    default:
      return quantize_grids(format, values, count, out);
  }
}

}  // namespace llamay
