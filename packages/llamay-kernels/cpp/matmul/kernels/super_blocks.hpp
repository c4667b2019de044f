#pragma once

#include "matmul/kernels/bits.hpp"
#include "matmul/kernels/portable.hpp"
#include "matmul/kernels/tiles.hpp"

// The common parts of the products of formats with super-blocks of 256.

namespace llamay {
namespace {

#ifdef LLAMAY_VECTOR

/// -kOffset * (sum of the 16 activations that start at sub-block `sub` of 16), in every lane.
template <int offset>
LLAMAY_INLINE Ints offset_of(const Activation256& a, size_t sub) {
  const Ints by32 = repeat4(a.offset32 + sub);
  if constexpr (offset == 0)
    return zero();
  else if constexpr (offset == 32)
    return by32;
  else if constexpr (offset > 32)
    return shift_left32<(offset == 64 ? 1 : 2)>(by32);
  else
    return shift_right32<(offset == 16 ? 1 : offset == 4 ? 3 : 5)>(by32);
}

/// isum[g][n] += scale * (start + weights times activations), over fours [from, to) of sub-block s. Without a
/// byte dot product the caller has to add `start`.
template <class Bits, int from, int to, int G, int N>
LLAMAY_INLINE void add_scaled_dots(const uint8_t* const (&vectors)[G], size_t s, const Ints (&scale)[G],
                                   const Activation256* const (&a)[N], const Ints (&start)[N],
                                   Ints (&isum)[G][N]) {
#ifdef LLAMAY_DOT32
  Ints sum[G][N];
  for (int g = 0; g < G; ++g)
    for (int n = 0; n < N; ++n) sum[g][n] = start[n];
  const int8_t* q[N];
  for (int n = 0; n < N; ++n) q[n] = a[n]->q + 32 * s;
  add_byte_dots<Bits, from, to>(vectors, s, q, sum);
  for (int g = 0; g < G; ++g)
    for (int n = 0; n < N; ++n) isum[g][n] = add32(isum[g][n], mul32(scale[g], sum[g][n]));
#else
  // The instruction that widens the 16-bit sums multiplies them with the scale, which stands in both halves
  // of a lane.
  (void)start;
  constexpr bool in_halves = Bits::kHighest == 255;
  constexpr int fours = in_halves ? 8 : fours_in_16_bits(Bits::kHighest);
  constexpr int at_once = fours > to - from ? to - from : fours;
  static_assert((to - from) % at_once == 0);
  Bytes part[G][N], upper[G][N];
  unrolled<to - from>([&](auto four) __attribute__((always_inline)) {
    constexpr int at = from + decltype(four)::value;
    Nibbles w[G];
    for (int g = 0; g < G; ++g)
      if constexpr (in_halves)
        w[g] = Bits::template halves<at>(vectors[g], s);
      else
        w[g].low = Bits::template weight<at>(vectors[g], s);
    for (int n = 0; n < N; ++n) {
      const Bytes x = repeat4(a[n]->q + 32 * s + 4 * at);
      for (int g = 0; g < G; ++g) {
        part[g][n] = at % at_once ? add16(part[g][n], mul_bytes(w[g].low, x)) : mul_bytes(w[g].low, x);
        if constexpr (in_halves)
          upper[g][n] = at % at_once ? add16(upper[g][n], mul_bytes(w[g].high, x)) : mul_bytes(w[g].high, x);
      }
    }
    if constexpr (at % at_once == at_once - 1)
      for (int g = 0; g < G; ++g) {
        const Bytes pair = pair_of(scale[g]);
        for (int n = 0; n < N; ++n) {
          isum[g][n] = add32(isum[g][n], mul_pairs(part[g][n], pair));
          if constexpr (in_halves)
            isum[g][n] = add32(isum[g][n], mul_pairs(upper[g][n], shift_left16<4>(pair)));
        }
      }
  });
#endif
}

/// Like add_scaled_dots, over a whole sub-block and without a scale.
template <class Bits, int G, int N>
LLAMAY_INLINE void add_dots(const uint8_t* const (&vectors)[G], size_t s, const Activation256* const (&a)[N],
                            Ints (&isum)[G][N]) {
#ifdef LLAMAY_DOT32
  const int8_t* q[N];
  for (int n = 0; n < N; ++n) q[n] = a[n]->q + 32 * s;
  add_byte_dots<Bits, 0, 8>(vectors, s, q, isum);
#else
  Ints one[G], none[N];
  for (int g = 0; g < G; ++g) one[g] = repeat_i16(1);
  for (int n = 0; n < N; ++n) none[n] = zero();
  add_scaled_dots<Bits, 0, 8>(vectors, s, one, a, none, isum);
#endif
}

/// acc[g][n] += d_w * d_a * isum, the products of a super-block.
template <class Levels, int G, int N>
LLAMAY_INLINE void add_block(const Levels* const (&levels)[G], const Activation256* const (&a)[N],
                             const Ints (&isum)[G][N], Floats (&acc)[G][N], float unit = 1) {
  for (int g = 0; g < G; ++g) {
    Floats d = widen_f16(levels[g]->d + g % kSlices * kLanes);
    if (unit != 1) d = mul(d, repeat(unit));
    for (int n = 0; n < N; ++n) acc[g][n] = fma(mul(d, repeat(a[n]->d)), to_float(isum[g][n]), acc[g][n]);
  }
}

/// acc[g][n] -= dmin_w * d_a * imin, its minima.
template <class Levels, int G, int N>
LLAMAY_INLINE void subtract_minima(const Levels* const (&levels)[G], const Activation256* const (&a)[N],
                                   const Ints (&imin)[G][N], Floats (&acc)[G][N]) {
  for (int g = 0; g < G; ++g) {
    const Floats dmin = widen_f16(levels[g]->dmin + g % kSlices * kLanes);
    for (int n = 0; n < N; ++n) acc[g][n] = fnma(mul(dmin, repeat(a[n]->d)), to_float(imin[g][n]), acc[g][n]);
  }
}

/// Evenly spread, because only a limited number of lines can be in flight at once.
template <int N, size_t vector_bytes, int G>
LLAMAY_INLINE void fetch_eighth(const uint8_t* const (&vectors)[G], size_t s, size_t ahead) {
  for (int g = 0; g < G; g += kSlices)
    fetch_ahead<N, vector_bytes / 8>(vectors[g] + s * (vector_bytes / 8), ahead);
}

/// Prefetches scales before the vectors behind them. Scales are used one by one, and a hardware prefetcher
/// that sees them read now and then in the middle of a stream loses the stream: Q6_K then ran at half the
/// speed.
template <size_t bytes>
LLAMAY_INLINE void touch(const uint8_t* scales) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(scales + i);
}

template <class Kernel, Format format, int G, int N>
LLAMAY_INLINE void walk(const Slice (&slice)[G], const Rows& rows, const Output& o) {
  using Place = Layout<format>;
  using Levels = typename Place::Scales;
  Floats acc[G][N];
  const Activation256* a[N];
  for (int n = 0; n < N; ++n) a[n] = reinterpret_cast<const Activation256*>(rows.first + n * rows.stride);
  for (int g = 0; g < G; ++g)
    for (int n = 0; n < N; ++n) acc[g][n] = zero_floats();
  for (size_t b = 0; b < rows.blocks; ++b) {
    if (N <= kStreamedRows && b % Place::kTogether == 0)
      for (int g = 0; g < G; g += kSlices)
        touch<Place::kTogether * sizeof(Levels)>(slice[g].group + Place::scales(b));
    const uint8_t* vectors[G];
    const Levels* levels[G];
    for (int g = 0; g < G; ++g) {
      vectors[g] = slice[g].group + Place::vectors(b, rows.blocks) + slice_bytes(g);
      const uint8_t* scales = slice[g].group + Place::scales(b);
      levels[g] = reinterpret_cast<const Levels*>(scales);
      if (g % kSlices == 0) fetch_ahead<N, sizeof(Levels)>(scales, rows.ahead);
    }
    Kernel::add(vectors, levels, a, rows.ahead, acc);
    for (int n = 0; n < N; ++n) ++a[n];
  }
  store_tile(acc, slice, rows.t, o);
}

struct SuperBlockTiles {
  static constexpr size_t kBlock = 256;
  static constexpr int kManyGroups = kSlices > 2 ? kSlices : 2;
  template <int G>
  static constexpr int rows() {
    return kLanes < 16 || G == 2 ? 4 : 8;
  }
  static size_t stride(size_t cols) { return round_up(cols / 256 * sizeof(Activation256), 64); }
};

#else

inline int dot(const int16_t (*q)[16], int lane, const int8_t* a, int from, int to) {
  int sum = 0;
  for (int k = from; k < to; ++k) sum += q[k][lane] * a[k];
  return sum;
}

/// One super-block for sixteen rows, in the order of docs/arithmetic.md: sub-blocks of 16 with a scale each.
template <Format format>
struct PortableSuperBlock {
  using Activation = Activation256;
  using Scales = ScalesOf<format>;

  static void add(const int16_t (*q)[16], const Scales& scales, const Activation& a, float* acc) {
    for (int lane = 0; lane < 16; ++lane) {
      int isum = 0, imin = 0;
      for (int s = 0; s < 16; ++s) {
        isum += scale_at(scales, s, lane) * dot(q, lane, a.q, 16 * s, 16 * s + 16);
        if constexpr (requires { scales.dmin; }) imin += min_at(scales, s, lane) * a.sums16[s];
      }
      const float d = scale_of_block<format>(scales, lane) * a.d;
      acc[lane] = __builtin_fmaf(d, static_cast<float>(isum), acc[lane]);
      if constexpr (requires { scales.dmin; }) {
        const float dmin = f16_to_f32(scales.dmin[lane]) * a.d;
        acc[lane] = __builtin_fmaf(-dmin, static_cast<float>(imin), acc[lane]);
      }
    }
  }
};

template <Format format>
constexpr MatmulFunction portable_super_block = portable_matmul<format, PortableSuperBlock<format> >;

#endif

}  // namespace
}  // namespace llamay
