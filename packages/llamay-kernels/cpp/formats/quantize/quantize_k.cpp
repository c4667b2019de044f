#include "formats/quantize/quantize_k.hpp"

#include "formats/quantize/search.hpp"

// Candidates for the scale of each sub-block, each with its best fitting line, then the scales rounded to
// their own 4, 6 or 8 bits, then the integers again for the scales as they will be read.

namespace llamay {
namespace {

struct Line {
  float scale = 0, min = 0;  // x is near scale * q - min, both not negative
};

float line_error(const float* x, const float* weight, int n, float highest, const Line& line) {
  const float inverse = 1 / line.scale;
  Four error{};
  for (int i = 0; i < n; i += 4) {
    const Four v = load(x + i);
    const Four off = line.scale * levels((v + line.min) * inverse, 0, highest) - line.min - v;
    error += load(weight + i) * off * off;
  }
  return total(error);
}

/// The line of least weighted error over integers 0..highest.
Line fit_line(const float* x, const float* weight, int n, float highest) {
  float low = 0, high = x[0], sum_w = 0, sum_x = 0;
  for (int i = 0; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    sum_w += weight[i];
    sum_x += weight[i] * x[i];
  }
  const float range = high - low, plain = range / highest;
  if (!(plain > 0)) return {0, -low};
  Line best{plain, -low};
  float best_error = line_error(x, weight, n, highest, best);
  // Stretching the range a little lets the ends be clipped, shrinking it leaves a level unused; the rest is
  // refit.
  for (int step = -8; step <= 12; ++step) {
    const float inverse = (highest + 0.1f * static_cast<float>(step)) / range;
    Four sums_q{}, sums_qq{}, sums_qx{};
    for (int i = 0; i < n; i += 4) {
      const Four v = load(x + i), q = levels((v - low) * inverse, 0, highest),
                 weighted = load(weight + i) * q;
      sums_q += weighted;
      sums_qq += weighted * q;
      sums_qx += weighted * v;
    }
    const float sum_q = total(sums_q), sum_qq = total(sums_qq), sum_qx = total(sums_qx);
    const float determinant = sum_w * sum_qq - sum_q * sum_q;
    if (!(determinant > 1e-5f * sum_w * sum_qq)) continue;
    Line line{(sum_w * sum_qx - sum_q * sum_x) / determinant,
              -(sum_qq * sum_x - sum_q * sum_qx) / determinant};
    if (line.min < 0) line = {sum_qx / sum_qq, 0};
    // With few distinct values a far steeper line may fit them exactly, but its large scale or minimum would
    // make the 6-bit steps of the whole super-block coarse.
    if (!(line.scale > 0) || line.scale > 1.2f * plain || line.min > 0.1f * range - low) continue;
    const float error = line_error(x, weight, n, highest, line);
    if (error < best_error) {
      best_error = error;
      best = line;
    }
  }
  return best;
}

/// n values as scale * q - min with q in low..high; q is written less low.
float round_values(const float* x, const float* weight, int n, float scale, float min, float low, float high,
                   uint8_t* q) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  Four error{};
  for (int i = 0; i < n; i += 4) {
    const Four v = load(x + i), level = levels((v + min) * inverse, low, high);
    const Four off = scale * level - min - v;
    error += load(weight + i) * off * off;
    for (int j = 0; j < 4; ++j) q[i + j] = static_cast<uint8_t>(level[j] - low);
  }
  return total(error);
}

/// Scales and minima (0..top) for the sub-blocks of n values of a super-block, and its integers (0..highest).
template <int n, int top>
void choose_two_levels(const float* x, int highest, uint8_t* d_out, uint8_t* dmin_out, uint8_t* scale,
                       uint8_t* min, uint8_t* q) {
  constexpr int subs = 256 / n;
  float weight[256];
  Line lines[subs];
  float top_scale = 0, top_min = 0;
  for (int s = 0; s < subs; ++s) {
    weigh(x + n * s, n, weight + n * s);
    lines[s] = fit_line(x + n * s, weight + n * s, n, static_cast<float>(highest));
    if (lines[s].scale > top_scale) top_scale = lines[s].scale;
    if (lines[s].min > top_min) top_min = lines[s].min;
  }
  const float d = read_back(top_scale / top, d_out), dmin = read_back(top_min / top, dmin_out);
  uint8_t trial[n];
  for (int s = 0; s < subs; ++s) {
    const float* block = x + n * s;
    const int near_scale = d > 0 ? nearest(lines[s].scale / d, 0, top) : 0;
    const int near_min = dmin > 0 ? nearest(lines[s].min / dmin, 0, top) : 0;
    float best_error = -1;
    // Rounding both to the nearest is not the best pair: a coarser slope wants another offset.
    for (int ds = -1; ds <= 1; ++ds)
      for (int dm = -1; dm <= 1; ++dm) {
        const int sc = clamp(near_scale + ds, 0, top), mn = clamp(near_min + dm, 0, top);
        const float error =
            round_values(block, weight + n * s, n, d * static_cast<float>(sc), dmin * static_cast<float>(mn),
                         0, static_cast<float>(highest), trial);
        if (best_error >= 0 && !(error < best_error)) continue;
        best_error = error;
        scale[s] = static_cast<uint8_t>(sc);
        min[s] = static_cast<uint8_t>(mn);
        memcpy(q + n * s, trial, n);
      }
  }
}

/// 2 bits of 128 integers in 32 bytes.
void join_pairs_of_bits(const uint8_t* q, uint8_t* qs) {
  for (int i = 0; i < 32; ++i)
    qs[i] =
        static_cast<uint8_t>((q[i] & 3) | (q[32 + i] & 3) << 2 | (q[64 + i] & 3) << 4 | (q[96 + i] & 3) << 6);
}

void round_block(const float* x, BlockQ2_K& b) {
  uint8_t q[256], scale[16], min[16];
  choose_two_levels<16, 15>(x, 3, b.d, b.dmin, scale, min, q);
  for (int s = 0; s < 16; ++s) b.scales[s] = static_cast<uint8_t>(scale[s] | min[s] << 4);
  for (int h = 0; h < 2; ++h) join_pairs_of_bits(q + 128 * h, b.qs + 32 * h);
}

void join_nibbles(const uint8_t* q, uint8_t* qs) {
  for (int c = 0; c < 4; ++c)
    for (int i = 0; i < 32; ++i)
      qs[32 * c + i] = static_cast<uint8_t>((q[64 * c + i] & 15) | (q[64 * c + 32 + i] & 15) << 4);
}

void round_block(const float* x, BlockQ4_K& b) {
  uint8_t q[256], scale[8], min[8];
  choose_two_levels<32, 63>(x, 15, b.d, b.dmin, scale, min, q);
  join_scales(scale, min, b.scales);
  join_nibbles(q, b.qs);
}
void round_block(const float* x, BlockQ5_K& b) {
  uint8_t q[256], scale[8], min[8];
  choose_two_levels<32, 63>(x, 31, b.d, b.dmin, scale, min, q);
  join_scales(scale, min, b.scales);
  join_nibbles(q, b.qs);
  for (int i = 0; i < 32; ++i) {
    b.qh[i] = 0;
    for (int s = 0; s < 8; ++s) b.qh[i] = static_cast<uint8_t>(b.qh[i] | (q[32 * s + i] >> 4) << s);
  }
}

/// The scale of least weighted error for integers low..-low - 1 around zero.
float fit_scale(const float* x, const float* weight, int n, float low) {
  float extreme = 0;
  for (int i = 0; i < n; ++i)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(extreme)) extreme = x[i];
  if (extreme == 0) return 0;
  float best = 0, best_gain = -1;
  for (int step = -9; step <= 9; ++step) {
    // The extreme value may take `low`, the one integer without an opposite: hence the negative scale.
    const float inverse = (low - 0.1f * static_cast<float>(step)) / extreme;
    Four sums_qx{}, sums_qq{};
    for (int i = 0; i < n; i += 4) {
      const Four v = load(x + i), q = levels(v * inverse, low, -low - 1), weighted = load(weight + i) * q;
      sums_qx += weighted * v;
      sums_qq += weighted * q;
    }
    const float sum_qx = total(sums_qx), sum_qq = total(sums_qq);
    if (!(sum_qq > 0)) continue;
    const float gain = sum_qx * sum_qx / sum_qq;
    if (gain > best_gain) {
      best_gain = gain;
      best = sum_qx / sum_qq;
    }
  }
  return best;
}

/// Scales (lowest..-lowest - 1) for the sub-blocks of 16 values of a super-block, and its integers (low..-low
/// - 1), which are written less low.
void choose_signed(const float* x, int low, int lowest, uint8_t* d_out, int8_t* scale, uint8_t* q) {
  float weight[256], scales[16], top = 0;
  for (int s = 0; s < 16; ++s) {
    weigh(x + 16 * s, 16, weight + 16 * s);
    scales[s] = fit_scale(x + 16 * s, weight + 16 * s, 16, static_cast<float>(low));
    if (__builtin_fabsf(scales[s]) > __builtin_fabsf(top)) top = scales[s];
  }
  // The lowest scale has no opposite either.
  const float d = read_back(top / static_cast<float>(lowest), d_out);
  for (int s = 0; s < 16; ++s) {
    const int near_scale = d != 0 ? nearest(scales[s] / d, lowest, -lowest - 1) : 0;
    float best_error = -1;
    for (int ds = -1; ds <= 1; ++ds) {
      const int sc = clamp(near_scale + ds, lowest, -lowest - 1);
      uint8_t trial[16];
      const float error = round_values(x + 16 * s, weight + 16 * s, 16, d * static_cast<float>(sc), 0,
                                       static_cast<float>(low), static_cast<float>(-low - 1), trial);
      if (best_error >= 0 && !(error < best_error)) continue;
      best_error = error;
      scale[s] = static_cast<int8_t>(sc);
      memcpy(q + 16 * s, trial, 16);
    }
  }
}

void round_block(const float* x, BlockQ3_K& b) {
  uint8_t q[256];
  int8_t scale[16];
  choose_signed(x, -4, -32, b.d, scale, q);
  for (int i = 0; i < 4; ++i) b.scales[8 + i] = 0;
  for (int s = 0; s < 16; ++s) {
    const int bits = scale[s] + 32, shift = s / 8 * 4;
    b.scales[s % 8] = static_cast<uint8_t>(shift ? b.scales[s % 8] | (bits & 15) << 4 : bits & 15);
    b.scales[8 + s % 4] = static_cast<uint8_t>(b.scales[8 + s % 4] | (bits >> 4) << (s / 4 * 2));
  }
  for (int h = 0; h < 2; ++h) join_pairs_of_bits(q + 128 * h, b.qs + 32 * h);
  for (int i = 0; i < 32; ++i) {
    b.qh[i] = 0;
    for (int s = 0; s < 8; ++s) b.qh[i] = static_cast<uint8_t>(b.qh[i] | (q[32 * s + i] >> 2) << s);
  }
}

void round_block(const float* x, BlockQ6_K& b) {
  uint8_t q[256];
  choose_signed(x, -32, -128, b.d, b.scales, q);
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < 32; ++i) {
      const uint8_t* p = q + 128 * h + i;
      b.ql[64 * h + i] = static_cast<uint8_t>((p[0] & 15) | (p[64] & 15) << 4);
      b.ql[64 * h + 32 + i] = static_cast<uint8_t>((p[32] & 15) | (p[96] & 15) << 4);
      b.qh[32 * h + i] =
          static_cast<uint8_t>(p[0] >> 4 | (p[32] >> 4) << 2 | (p[64] >> 4) << 4 | (p[96] >> 4) << 6);
    }
}

template <class Block>
void quantize_blocks(const float* values, size_t count, void* out) {
  for (size_t i = 0; i < count / 256; ++i) {
    Block block;
    round_block(values + 256 * i, block);
    memcpy(static_cast<uint8_t*>(out) + i * sizeof block, &block, sizeof block);
  }
}

}  // namespace

void quantize_super_blocks(Format format, const float* values, size_t count, void* out) {
  switch (format) {
    case Format::Q2_K:
      return quantize_blocks<BlockQ2_K>(values, count, out);
    case Format::Q3_K:
      return quantize_blocks<BlockQ3_K>(values, count, out);
    case Format::Q4_K:
      return quantize_blocks<BlockQ4_K>(values, count, out);
    case Format::Q5_K:
      return quantize_blocks<BlockQ5_K>(values, count, out);
    default:
      return quantize_blocks<BlockQ6_K>(values, count, out);
  }
}

}  // namespace llamay
