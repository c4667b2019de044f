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

// Four lanes: every baseline has them, and the order of a sum is then the same everywhere.
using Four = float __attribute__((vector_size(16)));
using FourInts = int32_t __attribute__((vector_size(16)));

Four load(const float* at) {
  Four v;
  memcpy(&v, at, sizeof v);
  return v;
}
float total(Four v) { return (v[0] + v[2]) + (v[1] + v[3]); }

/// The nearest integers in low..high, as floats; NaN gives low.
Four levels(Four v, float low, float high) {
  const Four bottom = Four{} + low, top = Four{} + high;
  v = v > bottom ? v : bottom;
  v = v < top ? v : top;
  // Truncation rounds down what is not negative.
  return __builtin_convertvector(__builtin_convertvector(v - low + 0.5f, FourInts), Four) + low;
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

float read_back(float value, uint8_t* half) {
  const uint16_t bits = f32_to_f16(value);
  store_u16(half, bits);
  return f16_to_f32(bits);
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

/// Scales and minima for a super-block, and its integers. highest: 15 (Q4_K), 31 (Q5_K).
void choose_two_levels(const float* x, int highest, uint8_t* d_out, uint8_t* dmin_out, uint8_t* packed_scales,
                       uint8_t* q) {
  float weight[256];
  Line lines[8];
  float top_scale = 0, top_min = 0;
  for (int s = 0; s < 8; ++s) {
    weigh(x + 32 * s, 32, weight + 32 * s);
    lines[s] = fit_line(x + 32 * s, weight + 32 * s, 32, static_cast<float>(highest));
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
        const float error =
            round_values(block, weight + 32 * s, 32, d * static_cast<float>(sc),
                         dmin * static_cast<float>(mn), 0, static_cast<float>(highest), trial);
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
    Four sums_qx{}, sums_qq{};
    for (int i = 0; i < n; i += 4) {
      const Four v = load(x + i), q = levels(v * inverse, -32, 31), weighted = load(weight + i) * q;
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
      uint8_t trial[16];
      const float error =
          round_values(x + 16 * s, weight + 16 * s, 16, d * static_cast<float>(sc), 0, -32, 31, trial);
      if (best_error >= 0 && !(error < best_error)) continue;
      best_error = error;
      b.scales[s] = static_cast<int8_t>(sc);
      memcpy(q + 16 * s, trial, 16);
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
