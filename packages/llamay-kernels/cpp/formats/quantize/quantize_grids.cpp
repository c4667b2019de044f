#include "formats/blocks_iq.hpp"
#include "formats/codebook.hpp"
#include "formats/quantize/quantize_k.hpp"
#include "formats/quantize/search.hpp"

// The formats that encode eight weights, or four, at once by their index in a grid. For a scale, the best
// entry is found by trying all: the cost of each level of each element is summed beforehand for the two
// halves of an entry, so that an entry costs two look-ups. Scales are tried around the one that brings the
// largest value to the largest level, and each is refit to the entries that it gives.

namespace llamay {
namespace {

/// The meaning of a format's grid. `sub`: values with one scale. `even`: the eighth sign of eight makes the
/// number of signs even. `shifted`: eight values are shifted by an eighth, up or down, and have signs of
/// their own.
struct Grid {
  const uint16_t* entries;
  int count, sub;
  bool fours, even, shifted;
  int top;         // the largest scale of a sub-block
  float from, to;  // the range of scales to try, relative to the scale that is described above
};

template <Format format>
constexpr Grid grid_of() {
  switch (format) {
    case Format::IQ2_XXS:
      return {kGridIQ2_XXS, 256, 32, false, true, false, 31, 0.7f, 1.3f};
    case Format::IQ2_XS:
      return {kGridIQ2_XS, 512, 16, false, true, false, 31, 0.7f, 1.3f};
    case Format::IQ2_S:
      return {kGridIQ2_S, 1024, 16, false, false, false, 31, 0.7f, 1.3f};
    case Format::IQ3_XXS:
      return {kGridIQ3_XXS, 256, 32, true, true, false, 31, 0.7f, 1.3f};
    case Format::IQ3_S:
      return {kGridIQ3_S, 512, 32, true, false, false, 31, 0.7f, 1.3f};
    case Format::IQ1_S:
      return {kGridIQ1, 2048, 32, false, false, true, 15, 0.4f, 1.0f};
    default:
      return {kGridIQ1, 2048, 16, false, false, true, 15, 0.4f, 1.0f};
  }
}

/// Entries with the same high byte are adjacent: grids are sorted.
struct Runs {
  struct Run {
    uint8_t high;
    uint16_t begin, end;
  } run[81];
  int count;
  bool sorted;
};
template <Format format>
constexpr Runs runs_of() {
  constexpr Grid grid = grid_of<format>();
  Runs runs{{}, 0, true};
  for (int e = 0; e < grid.count; ++e) {
    const auto high = static_cast<uint8_t>(grid.entries[e] >> 8);
    if (e && grid.entries[e] <= grid.entries[e - 1]) runs.sorted = false;
    if (!e || high != runs.run[runs.count - 1].high)
      runs.run[runs.count++] = {high, static_cast<uint16_t>(e), 0};
    runs.run[runs.count - 1].end = static_cast<uint16_t>(e + 1);
  }
  return runs;
}

/// The choice for eight values.
struct Choice {
  uint16_t entry[2];  // indices in the grid; the second one for grids of four only
  uint8_t signs;      // sign of each value; for a shifted grid, all ones where the shift is down
  float value[8];     // the decoded value, before the scale
};

/// The best entry for costs[i][level]: elements 0..3 (0, 1 of fours) are the low byte of an entry, the others
/// the high.
template <Format format>
int best_entry(const float (*costs)[8], float& least) {
  constexpr Grid grid = grid_of<format>();
  constexpr int elements = grid.fours ? 2 : 4, bits = grid.fours ? 4 : 2, levels = grid.fours ? 8 : 3;
  float sums[2][256];
  for (int half = 0; half < 2; ++half) {
    // All combinations, one element at a time: the fields of an index are the levels of the elements so far.
    uint8_t numbers[81] = {0};
    int used = 1;
    sums[half][0] = 0;
    for (int i = 0; i < elements; ++i) {
      const float* cost = costs[half * elements + i];
      for (int level = levels - 1; level >= 0;
           --level)  // level 0 last: it overwrites the sum that the others start from
        for (int k = 0; k < used; ++k) {
          const int number = numbers[k] | level << bits * i;
          sums[half][number] = sums[half][numbers[k]] + cost[level];
          if (level) numbers[level * used + k] = static_cast<uint8_t>(number);
        }
      used *= levels;
    }
  }
  // The cheapest high byte comes first; most of the others then cost more alone.
  static constexpr Runs runs = runs_of<format>();
  static_assert(runs.sorted);
  int cheapest = 0;
  for (int r = 1; r < runs.count; ++r)
    if (sums[1][runs.run[r].high] < sums[1][runs.run[cheapest].high]) cheapest = r;
  int best = 0;
  least = __builtin_inff();
  for (int r = -1; r < runs.count; ++r) {
    const Runs::Run run = runs.run[r < 0 ? cheapest : r];
    const float high = sums[1][run.high];
    if (!(high < least)) continue;
    for (int e = run.begin; e < run.end; ++e) {
      const float cost = high + sums[0][grid.entries[e] & 255];
      if (cost < least) {
        least = cost;
        best = e;
      }
    }
  }
  return best;
}

/// The level of an element in an entry.
template <Format format>
int level_at(uint16_t entry, int i) {
  return grid_of<format>().fours ? entry >> 4 * i & 7 : entry >> 2 * i & 3;
}

/// The choice of least weighted error for eight values and a scale, signs being chosen or, of a shifted grid,
/// given.
template <Format format>
float choose(const float* x, const float* weight, float scale, uint8_t shift, Choice& out) {
  constexpr Grid grid = grid_of<format>();
  constexpr Codebook book = codebook(format);
  constexpr int levels = grid.fours ? 8 : 3;
  const int down = shift ? 4 : 0;
  float size[8], costs[8][8], total_cost = 0;
  out.signs = shift;
  for (int i = 0; i < 8; ++i) size[i] = x[i];
  if constexpr (!grid.shifted) {
    int cheapest = 0;
    for (int i = 0; i < 8; ++i) {
      size[i] = __builtin_fabsf(x[i]);
      if (x[i] < 0) out.signs = static_cast<uint8_t>(out.signs | 1 << i);
      if (weight[i] * size[i] < weight[cheapest] * size[cheapest]) cheapest = i;
    }
    if (grid.even &&
        __builtin_parity(out.signs)) {  // one value has to take the wrong sign: the one with the least error
      out.signs = static_cast<uint8_t>(out.signs ^ 1 << cheapest);
      size[cheapest] = -size[cheapest];
    }
  }
  for (int i = 0; i < 8; ++i)
    for (int level = 0; level < levels; ++level) {
      const float off = scale * static_cast<float>(book.value[level + down]) - size[i];
      costs[i][level] = weight[i] * off * off;
    }
  constexpr int parts = grid.fours ? 2 : 1, each = 8 / parts;
  for (int part = 0; part < parts; ++part) {
    float least;
    const int number = best_entry<format>(costs + part * each, least);
    total_cost += least;
    out.entry[part] = static_cast<uint16_t>(number);
    for (int i = 0; i < each; ++i) {
      const float value = static_cast<float>(book.value[level_at<format>(grid.entries[number], i) + down]);
      out.value[part * each + i] = !grid.shifted && out.signs >> (part * each + i) & 1 ? -value : value;
    }
  }
  return total_cost;
}

/// The choices for a sub-block. A shift is for eight values in IQ1_M, for all 32 in IQ1_S.
template <Format format>
float choose_all(const float* x, const float* weight, float scale, Choice* out) {
  constexpr Grid grid = grid_of<format>();
  constexpr int groups = grid.sub / 8;
  float cost = 0;
  if constexpr (!grid.shifted) {
    for (int g = 0; g < groups; ++g) cost += choose<format>(x + 8 * g, weight + 8 * g, scale, 0, out[g]);
  } else {
    Choice down[groups];
    float up_cost[groups], down_cost[groups], up_sum = 0, down_sum = 0;
    for (int g = 0; g < groups; ++g) {
      up_sum += up_cost[g] = choose<format>(x + 8 * g, weight + 8 * g, scale, 0, out[g]);
      down_sum += down_cost[g] = choose<format>(x + 8 * g, weight + 8 * g, scale, 255, down[g]);
    }
    for (int g = 0; g < groups; ++g) {
      const bool lower = format == Format::IQ1_S ? down_sum < up_sum : down_cost[g] < up_cost[g];
      cost += lower ? down_cost[g] : up_cost[g];
      if (lower) out[g] = down[g];
    }
  }
  return cost;
}

/// The scale of least weighted error for a sub-block.
template <Format format>
float fit(const float* x, const float* weight) {
  constexpr Grid grid = grid_of<format>();
  constexpr Codebook book = codebook(format);
  constexpr int kTries = 6;
  const float top = static_cast<float>(book.value[grid.fours ? 7 : 2]);
  float extreme = 0;
  for (int i = 0; i < grid.sub; ++i)
    extreme = __builtin_fabsf(x[i]) > extreme ? __builtin_fabsf(x[i]) : extreme;
  if (extreme == 0) return 0;
  float best = 0, best_gain = -1;
  for (int i = 0; i < kTries; ++i) {
    const float part = grid.from + (grid.to - grid.from) * static_cast<float>(i) / (kTries - 1);
    Choice chosen[grid.sub / 8];
    choose_all<format>(x, weight, part * extreme / top, chosen);
    float sum_vx = 0, sum_vv = 0;
    for (int k = 0; k < grid.sub; ++k) {
      const float v = chosen[k / 8].value[k % 8];
      sum_vx += weight[k] * v * x[k];
      sum_vv += weight[k] * v * v;
    }
    if (!(sum_vv > 0) || !(sum_vx > 0)) continue;
    const float gain = sum_vx * sum_vx / sum_vv;
    if (gain > best_gain) {
      best_gain = gain;
      best = sum_vx / sum_vv;
    }
  }
  return best;
}

void put_half(uint16_t bits, BlockIQ1_M& b) {
  for (int i = 0; i < 4; ++i)
    b.scales[i][1] = static_cast<uint8_t>((b.scales[i][1] & 15) | (bits >> 4 * i & 15) << 4);
}
template <class Block>
void put_half(uint16_t bits, Block& b) {
  store_u16(b.d, bits);
}

// Writing of choices and scales; the block is zero before.
uint32_t seven_signs(const Choice* four) {
  return static_cast<uint32_t>(four[0].signs & 127) | static_cast<uint32_t>(four[1].signs & 127) << 7 |
         static_cast<uint32_t>(four[2].signs & 127) << 14 | static_cast<uint32_t>(four[3].signs & 127) << 21;
}
void put_nibble(uint8_t* at, int i, int scale) {
  at[i / 2] = static_cast<uint8_t>(at[i / 2] | scale << (i % 2 * 4));
}

void write(const Choice* c, const uint8_t* scale, BlockIQ2_XXS& b) {
  for (int s = 0; s < 8; ++s) {
    for (int i = 0; i < 4; ++i) b.qs[s][i] = static_cast<uint8_t>(c[4 * s + i].entry[0]);
    const uint32_t signs = seven_signs(c + 4 * s) | static_cast<uint32_t>(scale[s]) << 28;
    memcpy(b.qs[s] + 4, &signs, 4);
  }
}
void write(const Choice* c, const uint8_t* scale, BlockIQ2_XS& b) {
  for (int i = 0; i < 32; ++i)
    store_u16(b.qs + 2 * i, static_cast<uint16_t>(c[i].entry[0] | (c[i].signs & 127) << 9));
  for (int s = 0; s < 16; ++s) put_nibble(b.scales, s, scale[s]);
}
void write(const Choice* c, const uint8_t* scale, BlockIQ2_S& b) {
  for (int i = 0; i < 32; ++i) {
    b.qs[i] = static_cast<uint8_t>(c[i].entry[0]);
    b.qh[i / 4] = static_cast<uint8_t>(b.qh[i / 4] | c[i].entry[0] >> 8 << (i % 4 * 2));
    b.signs[i] = c[i].signs;
  }
  for (int s = 0; s < 16; ++s) put_nibble(b.scales, s, scale[s]);
}
void write(const Choice* c, const uint8_t* scale, BlockIQ3_XXS& b) {
  for (int s = 0; s < 8; ++s) {
    for (int i = 0; i < 8; ++i) b.qs[8 * s + i] = static_cast<uint8_t>(c[4 * s + i / 2].entry[i % 2]);
    const uint32_t signs = seven_signs(c + 4 * s) | static_cast<uint32_t>(scale[s]) << 28;
    memcpy(b.signs[s], &signs, 4);
  }
}
void write(const Choice* c, const uint8_t* scale, BlockIQ3_S& b) {
  for (int i = 0; i < 32; ++i) {
    for (int k = 0; k < 2; ++k) {
      b.qs[2 * i + k] = static_cast<uint8_t>(c[i].entry[k]);
      b.qh[i / 4] = static_cast<uint8_t>(b.qh[i / 4] | c[i].entry[k] >> 8 << (i % 4 * 2 + k));
    }
    b.signs[i] = c[i].signs;
  }
  for (int s = 0; s < 8; ++s) put_nibble(b.scales, s, scale[s]);
}
void write(const Choice* c, const uint8_t* scale, BlockIQ1_S& b) {
  for (int s = 0; s < 8; ++s) {
    uint32_t high = static_cast<uint32_t>(scale[s]) << 12 | (c[4 * s].signs ? 0x8000u : 0u);
    for (int i = 0; i < 4; ++i) {
      b.qs[4 * s + i] = static_cast<uint8_t>(c[4 * s + i].entry[0]);
      high |= static_cast<uint32_t>(c[4 * s + i].entry[0] >> 8) << 3 * i;
    }
    store_u16(b.qh[s], static_cast<uint16_t>(high));
  }
}
void write(const Choice* c, const uint8_t* scale, BlockIQ1_M& b) {
  for (int i = 0; i < 32; ++i) {
    b.qs[i] = static_cast<uint8_t>(c[i].entry[0]);
    b.qh[i / 2] =
        static_cast<uint8_t>(b.qh[i / 2] | (c[i].entry[0] >> 8 | (c[i].signs ? 8 : 0)) << (i % 2 * 4));
  }
  for (int s = 0; s < 16; ++s)
    store_u16(b.scales[s / 4], static_cast<uint16_t>(load_u16(b.scales[s / 4]) | scale[s] << (s % 4 * 3)));
}

template <Format format, class Block>
void round_block(const float* x, Block& b) {
  constexpr Grid grid = grid_of<format>();
  constexpr int subs = 256 / grid.sub, groups = grid.sub / 8;
  float weight[256], fitted[subs], top = 0;
  for (int s = 0; s < subs; ++s) {
    weigh(x + grid.sub * s, grid.sub, weight + grid.sub * s);
    fitted[s] = fit<format>(x + grid.sub * s, weight + grid.sub * s);
    if (fitted[s] > top) top = fitted[s];
  }
  memset(&b, 0, sizeof b);
  // Scales are odd numbers up to `top`, in units of the format times one binary16 scale of the block.
  uint16_t bits = f32_to_f16(top / static_cast<float>(grid.top) / unit(format));
  float d = f16_to_f32(bits) * unit(format);
  if (d == 0) return;      // every value is then read as zero
  Choice chosen[32] = {};  // kept where no cost is a number
  uint8_t scale[subs] = {};
  float sum_ux = 0, sum_uu = 0;
  for (int s = 0; s < subs; ++s) {
    const float *xs = x + grid.sub * s, *ws = weight + grid.sub * s;
    const int near_scale = nearest((fitted[s] / d - 1) / 2, 0, (grid.top - 1) / 2);
    float least = __builtin_inff();
    for (int ds = -1; ds <= 1; ++ds) {
      const int trial = near_scale + ds;
      if (trial < 0 || trial > (grid.top - 1) / 2) continue;
      Choice choices[groups];
      const float cost = choose_all<format>(xs, ws, d * static_cast<float>(2 * trial + 1), choices);
      if (!(cost < least)) continue;
      least = cost;
      scale[s] = static_cast<uint8_t>(trial);
      memcpy(chosen + groups * s, choices, sizeof choices);
    }
    for (int k = 0; k < grid.sub; ++k) {
      const float u = static_cast<float>(2 * scale[s] + 1) * chosen[groups * s + k / 8].value[k % 8];
      sum_ux += ws[k] * u * xs[k];
      sum_uu += ws[k] * u * u;
    }
  }
  // The scale of the block is refit to the choices.
  if (sum_ux > 0) bits = f32_to_f16(sum_ux / sum_uu / unit(format));
  write(chosen, scale, b);
  put_half(bits, b);
}

template <Format format, class Block>
void quantize_blocks(const float* values, size_t count, void* out) {
  for (size_t i = 0; i < count / 256; ++i) {
    Block block;
    round_block<format>(values + 256 * i, block);
    memcpy(static_cast<uint8_t*>(out) + i * sizeof block, &block, sizeof block);
  }
}

}  // namespace

void quantize_grids(Format format, const float* values, size_t count, void* out) {
  switch (format) {
    case Format::IQ2_XXS:
      return quantize_blocks<Format::IQ2_XXS, BlockIQ2_XXS>(values, count, out);
    case Format::IQ2_XS:
      return quantize_blocks<Format::IQ2_XS, BlockIQ2_XS>(values, count, out);
    case Format::IQ2_S:
      return quantize_blocks<Format::IQ2_S, BlockIQ2_S>(values, count, out);
    case Format::IQ3_XXS:
      return quantize_blocks<Format::IQ3_XXS, BlockIQ3_XXS>(values, count, out);
    case Format::IQ3_S:
      return quantize_blocks<Format::IQ3_S, BlockIQ3_S>(values, count, out);
    case Format::IQ1_S:
      return quantize_blocks<Format::IQ1_S, BlockIQ1_S>(values, count, out);
    case Format::IQ1_M:
      return quantize_blocks<Format::IQ1_M, BlockIQ1_M>(values, count, out);
    default:
      return;
  }
}

}  // namespace llamay
