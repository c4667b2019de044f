#include "quantize_k.hpp"

#include "blocks.hpp"
#include "half.hpp"

// GGML fixes only how these formats are read. What is written is a choice of integers, made here to make the
// squared error of the values that will be read small: candidates for the scale of each sub-block, each with
// its best fitting line, then the scales rounded to their own 6 or 8 bits, then the integers again for the
// scales as they will be read.

namespace llamay {
namespace {

int clamp(int v, int low, int high) { return v < low ? low : v > high ? high : v; }
/// To the nearest integer, for any float: what is out of range or NaN is clamped first.
int nearest(float v, int low, int high) {
  if (!(v > static_cast<float>(low))) return low;
  if (v >= static_cast<float>(high)) return high;
  return static_cast<int>(v + (v < 0 ? -0.5f : 0.5f));
}

/// What a value counts: large ones more, because they dominate the products they enter.
void weigh(const float* x, int n, float* weight) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  const float mean = __builtin_sqrtf(sum / static_cast<float>(n));
  for (int i = 0; i < n; ++i) weight[i] = mean + __builtin_fabsf(x[i]);
}

struct Line {
  float scale = 0, min = 0;  // x is near scale * q - min, both not negative
};

float line_error(const float* x, const float* weight, int n, int highest, const Line& line) {
  const float inverse = 1 / line.scale;
  float error = 0;
  for (int i = 0; i < n; ++i) {
    const float off =
        line.scale * static_cast<float>(nearest((x[i] + line.min) * inverse, 0, highest)) - line.min - x[i];
    error += weight[i] * off * off;
  }
  return error;
}

/// The line of least weighted error over integers 0..highest.
Line fit_line(const float* x, const float* weight, int n, int highest) {
  float low = 0, high = x[0], sum_w = 0, sum_x = 0;
  for (int i = 0; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    sum_w += weight[i];
    sum_x += weight[i] * x[i];
  }
  const float range = high - low, plain = range / static_cast<float>(highest);
  if (!(plain > 0)) return {0, -low};
  Line best{plain, -low};
  float best_error = line_error(x, weight, n, highest, best);
  // Stretching the range a little lets the ends be clipped, shrinking it leaves a level unused; the rest is
  // refit.
  for (int step = -8; step <= 12; ++step) {
    const float inverse = (static_cast<float>(highest) + 0.1f * static_cast<float>(step)) / range;
    float sum_q = 0, sum_qq = 0, sum_qx = 0;
    for (int i = 0; i < n; ++i) {
      const float q = static_cast<float>(nearest((x[i] - low) * inverse, 0, highest));
      sum_q += weight[i] * q;
      sum_qq += weight[i] * q * q;
      sum_qx += weight[i] * q * x[i];
    }
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

float read_back(float value, uint8_t* half) {
  const uint16_t bits = f32_to_f16(value);
  store_u16(half, bits);
  return f16_to_f32(bits);
}

float sub_block_error(const float* x, const float* weight, float scale, float min, int highest, uint8_t* q) {
  const float inverse = scale > 0 ? 1 / scale : 0;
  float error = 0;
  for (int i = 0; i < 32; ++i) {
    const int level = nearest((x[i] + min) * inverse, 0, highest);
    const float off = scale * static_cast<float>(level) - min - x[i];
    error += weight[i] * off * off;
    q[i] = static_cast<uint8_t>(level);
  }
  return error;
}

/// Scales and minima for a super-block, and its integers. highest: 15 (Q4_K), 31 (Q5_K).
void choose_two_levels(const float* x, int highest, uint8_t* d_out, uint8_t* dmin_out, uint8_t* packed_scales,
                       uint8_t* q) {
  float weight[256];
  Line lines[8];
  float top_scale = 0, top_min = 0;
  for (int s = 0; s < 8; ++s) {
    weigh(x + 32 * s, 32, weight + 32 * s);
    lines[s] = fit_line(x + 32 * s, weight + 32 * s, 32, highest);
    if (lines[s].scale > top_scale) top_scale = lines[s].scale;
    if (lines[s].min > top_min) top_min = lines[s].min;
  }
  const float d = read_back(top_scale / 63, d_out), dmin = read_back(top_min / 63, dmin_out);
  uint8_t scale[8], min[8], trial[32];
  for (int s = 0; s < 8; ++s) {
    const float* block = x + 32 * s;
    const int near_scale = d > 0 ? nearest(lines[s].scale / d, 0, 63) : 0;
    const int near_min = dmin > 0 ? nearest(lines[s].min / dmin, 0, 63) : 0;
    float best_error = -1;
    // Rounding both to the nearest is not the best pair: a coarser slope wants another offset.
    for (int ds = -1; ds <= 1; ++ds)
      for (int dm = -1; dm <= 1; ++dm) {
        const int sc = clamp(near_scale + ds, 0, 63), mn = clamp(near_min + dm, 0, 63);
        const float error = sub_block_error(block, weight + 32 * s, d * static_cast<float>(sc),
                                            dmin * static_cast<float>(mn), highest, trial);
        if (best_error >= 0 && !(error < best_error)) continue;
        best_error = error;
        scale[s] = static_cast<uint8_t>(sc);
        min[s] = static_cast<uint8_t>(mn);
        memcpy(q + 32 * s, trial, 32);
      }
  }
  join_scales(scale, min, packed_scales);
}

void join_nibbles(const uint8_t* q, uint8_t* qs) {
  for (int c = 0; c < 4; ++c)
    for (int i = 0; i < 32; ++i)
      qs[32 * c + i] = static_cast<uint8_t>((q[64 * c + i] & 15) | (q[64 * c + 32 + i] & 15) << 4);
}

void round_block(const float* x, BlockQ4_K& b) {
  uint8_t q[256];
  choose_two_levels(x, 15, b.d, b.dmin, b.scales, q);
  join_nibbles(q, b.qs);
}
void round_block(const float* x, BlockQ5_K& b) {
  uint8_t q[256];
  choose_two_levels(x, 31, b.d, b.dmin, b.scales, q);
  join_nibbles(q, b.qs);
  for (int i = 0; i < 32; ++i) {
    b.qh[i] = 0;
    for (int s = 0; s < 8; ++s) b.qh[i] = static_cast<uint8_t>(b.qh[i] | (q[32 * s + i] >> 4) << s);
  }
}

/// The scale of least weighted error for integers -32..31 around zero.
float fit_scale(const float* x, const float* weight, int n) {
  float extreme = 0;
  for (int i = 0; i < n; ++i)
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(extreme)) extreme = x[i];
  if (extreme == 0) return 0;
  float best = 0, best_gain = -1;
  for (int step = -9; step <= 9; ++step) {
    // The extreme value may take -32, the one integer without an opposite: hence the negative scale.
    const float inverse = -(32 + 0.1f * static_cast<float>(step)) / extreme;
    float sum_qx = 0, sum_qq = 0;
    for (int i = 0; i < n; ++i) {
      const float q = static_cast<float>(nearest(x[i] * inverse, -32, 31));
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

void round_block(const float* x, BlockQ6_K& b) {
  float weight[256], scales[16], top = 0;
  for (int s = 0; s < 16; ++s) {
    weigh(x + 16 * s, 16, weight + 16 * s);
    scales[s] = fit_scale(x + 16 * s, weight + 16 * s, 16);
    if (__builtin_fabsf(scales[s]) > __builtin_fabsf(top)) top = scales[s];
  }
  // -128 has no opposite either.
  const float d = read_back(top / -128, b.d);
  uint8_t q[256];
  for (int s = 0; s < 16; ++s) {
    const int near_scale = d != 0 ? nearest(scales[s] / d, -128, 127) : 0;
    float best_error = -1;
    for (int ds = -1; ds <= 1; ++ds) {
      const int sc = clamp(near_scale + ds, -128, 127);
      const float scale = d * static_cast<float>(sc), inverse = scale != 0 ? 1 / scale : 0;
      int trial[16];
      float error = 0;
      for (int i = 0; i < 16; ++i) {
        trial[i] = nearest(x[16 * s + i] * inverse, -32, 31);
        const float off = scale * static_cast<float>(trial[i]) - x[16 * s + i];
        error += weight[16 * s + i] * off * off;
      }
      if (best_error >= 0 && !(error < best_error)) continue;
      best_error = error;
      b.scales[s] = static_cast<int8_t>(sc);
      for (int i = 0; i < 16; ++i) q[16 * s + i] = static_cast<uint8_t>(trial[i] + 32);
    }
  }
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
  if (format == Format::Q4_K) return quantize_blocks<BlockQ4_K>(values, count, out);
  if (format == Format::Q5_K) return quantize_blocks<BlockQ5_K>(values, count, out);
  quantize_blocks<BlockQ6_K>(values, count, out);
}

}  // namespace llamay
