// Matrix products of the formats with super-blocks of 256: Q4_K, Q5_K, Q6_K.
#include "../simd/isa.hpp"
#include "dot.hpp"
#include "portable.hpp"
#include "tiles.hpp"

namespace llamay {
namespace {

#ifdef LLAMAY_VECTOR

/// weight<four>: the bytes for k = 4 * four..4 * four + 3 of sub-block s (32 k). Its nibbles stand at 256 s;
/// the planes of fifth bits or of two high bits follow all nibbles.
struct FourBits {
  [[maybe_unused]] static constexpr int kHighest = 15;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    return nibbles<four>(vectors + 256 * s);
  }
};
struct FiveBits {
  [[maybe_unused]] static constexpr int kHighest = 31;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    return with_high_bits<four, 1>(nibbles<four>(vectors + 256 * s), load_once(vectors + 2048 + 64 * s));
  }
};
struct SixBits {
  [[maybe_unused]] static constexpr int kHighest = 63;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    const uint8_t* high = vectors + 2048 + 128 * s + 64 * (four / 4);
    return with_high_bits<four % 4 * 2, 2>(nibbles<four>(vectors + 256 * s), load_once(high));
  }
};

/// isum[g][n] += scale * (start + weights times activations), over fours [from, to) of sub-block s.
template <class Bits, int from, int to, int G, int N>
LLAMAY_INLINE void add_scaled_dots(const uint8_t* const (&vectors)[G], size_t s, const Ints (&scale)[G],
                                   const Activation256* const (&a)[N], const Ints (&start)[N],
                                   Ints (&isum)[G][N]) {
#ifdef LLAMAY_DOT32
  Ints sum[G][N];
  for (int g = 0; g < G; ++g)
    for (int n = 0; n < N; ++n) sum[g][n] = start[n];
  unrolled<to - from>([&](auto four) __attribute__((always_inline)) {
    constexpr int at = from + decltype(four)::value;
    Bytes w[G];
    for (int g = 0; g < G; ++g) w[g] = Bits::template weight<at>(vectors[g], s);
    for (int n = 0; n < N; ++n) {
      const Bytes x = repeat4(a[n]->q + 32 * s + 4 * at);
      for (int g = 0; g < G; ++g) sum[g][n] = dot4(sum[g][n], w[g], x);
    }
  });
  for (int g = 0; g < G; ++g)
    for (int n = 0; n < N; ++n) isum[g][n] = add32(isum[g][n], mul32(scale[g], sum[g][n]));
#else
  // The 16-bit sums meet the scale, which stands in both halves of a lane, in the instruction that widens
  // them.
  (void)start;
  constexpr int at_once = fours_in_16_bits(Bits::kHighest);
  Bytes part[G][N];
  unrolled<to - from>([&](auto four) __attribute__((always_inline)) {
    constexpr int at = from + decltype(four)::value;
    Bytes w[G];
    for (int g = 0; g < G; ++g) w[g] = Bits::template weight<at>(vectors[g], s);
    for (int n = 0; n < N; ++n) {
      const Bytes x = repeat4(a[n]->q + 32 * s + 4 * at);
      for (int g = 0; g < G; ++g)
        part[g][n] = at % at_once ? add16(part[g][n], mul_bytes(w[g], x)) : mul_bytes(w[g], x);
    }
    if constexpr (at % at_once == at_once - 1)
      for (int g = 0; g < G; ++g) {
        const Bytes pair = pair_of(scale[g]);
        for (int n = 0; n < N; ++n) {
          isum[g][n] = add32(isum[g][n], mul_pairs(part[g][n], pair));
        }
      }
  });
#endif
}

/// Evenly spread, because only so many lines can be under way at once.
template <size_t vector_bytes, int G>
LLAMAY_INLINE void fetch_eighth(const uint8_t* const (&vectors)[G], size_t s, size_t ahead) {
  for (int g = 0; g < G; g += kSlices)
    fetch_ahead<vector_bytes / 8>(vectors[g] + s * (vector_bytes / 8), ahead);
}

template <class Kernel, class Levels, int G, int N>
LLAMAY_INLINE void walk(const Slice (&slice)[G], const Rows& rows, const Output& o) {
  Floats acc[G][N];
  const Activation256* a[N];
  for (int n = 0; n < N; ++n) a[n] = reinterpret_cast<const Activation256*>(rows.first + n * rows.stride);
  for (int g = 0; g < G; ++g)
    for (int n = 0; n < N; ++n) acc[g][n] = zero_floats();
  for (size_t b = 0; b < rows.blocks; ++b) {
    const uint8_t* vectors[G];
    const Levels* levels[G];
    for (int g = 0; g < G; ++g) {
      vectors[g] = slice[g].vectors + b * Kernel::kVectorBytes;
      levels[g] = reinterpret_cast<const Levels*>(slice[g].scales) + b;
      if (g % kSlices == 0) {
        fetch_ahead<sizeof(Levels)>(slice[g].scales + b * sizeof(Levels), rows.ahead);
      }
    }
    Kernel::add(vectors, levels, a, rows.ahead, acc);
    for (int n = 0; n < N; ++n) ++a[n];
  }
  store_tile(acc, slice, rows.t, o);
}

struct SuperBlockTiles {
  static constexpr size_t kBlock = 256;
  static constexpr int kManyGroups = 2;
  template <int G>
  static constexpr int rows() {
    return kLanes == 8 || G == 2 ? 4 : 8;
  }
  static size_t stride(size_t cols) { return round_up(cols / 256 * sizeof(Activation256), 64); }
};

template <Format format, class Bits>
struct TwoLevelKernel : SuperBlockTiles {
  static constexpr size_t kVectorBytes = vector_bytes(format);

  template <int G, int N>
  static LLAMAY_INLINE void add(const uint8_t* const (&vectors)[G], const TwoLevels* const (&levels)[G],
                                const Activation256* const (&a)[N], size_t ahead, Floats (&acc)[G][N]) {
    Ints isum[G][N], start[N];
    for (int n = 0; n < N; ++n) {
      start[n] = zero();
      for (int g = 0; g < G; ++g) isum[g][n] = zero();
    }
#pragma GCC unroll 1
    for (size_t s = 0; s < 8; ++s) {
      fetch_eighth<kVectorBytes>(vectors, s, ahead);
      Ints scale[G];
      for (int g = 0; g < G; ++g) scale[g] = widen_u8(levels[g]->scale[s] + g % kSlices * kLanes);
      add_scaled_dots<Bits, 0, 8>(vectors, s, scale, a, start, isum);
    }
    Ints imin[G][N] = {};
    for (int p = 0; p < 4; ++p)
      for (int g = 0; g < G; ++g) {
        const Bytes min = widen_u8_pairs(levels[g]->min[p][g % kSlices * kLanes]);
        for (int n = 0; n < N; ++n) imin[g][n] = add_pairs(imin[g][n], min, repeat4(a[n]->sums + 2 * p));
      }
    for (int g = 0; g < G; ++g) {
      const Floats d = widen_f16(levels[g]->d + g % kSlices * kLanes);
      const Floats dmin = widen_f16(levels[g]->dmin + g % kSlices * kLanes);
      for (int n = 0; n < N; ++n) {
        const Floats d_a = repeat(a[n]->d);
        acc[g][n] = fma(mul(d, d_a), to_float(isum[g][n]), acc[g][n]);
        acc[g][n] = fnma(mul(dmin, d_a), to_float(imin[g][n]), acc[g][n]);
      }
    }
  }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    walk<TwoLevelKernel, TwoLevels, G, N>(slice, rows, o);
  }
};

struct SixBitKernel : SuperBlockTiles {
  static constexpr size_t kVectorBytes = vector_bytes(Format::Q6_K);

  template <int G, int N>
  static LLAMAY_INLINE void add(const uint8_t* const (&vectors)[G], const SignedScales* const (&levels)[G],
                                const Activation256* const (&a)[N], size_t ahead, Floats (&acc)[G][N]) {
    Ints isum[G][N];
    for (int n = 0; n < N; ++n)
      for (int g = 0; g < G; ++g) isum[g][n] = zero();
#pragma GCC unroll 1
    for (size_t s = 0; s < 8; ++s) {
      fetch_eighth<kVectorBytes>(vectors, s, ahead);
      unrolled<2>([&](auto half) __attribute__((always_inline)) {
        constexpr int h = decltype(half)::value;
        Ints scale[G], start[N];
        for (int g = 0; g < G; ++g) scale[g] = widen_i8(levels[g]->scale[2 * s + h] + g % kSlices * kLanes);
        for (int n = 0; n < N; ++n) start[n] = repeat4(a[n]->offset32 + 2 * s + h);
#ifndef LLAMAY_DOT32
        for (int g = 0; g < G; ++g)
          for (int n = 0; n < N; ++n) isum[g][n] = add32(isum[g][n], mul32(scale[g], start[n]));
#endif
        add_scaled_dots<SixBits, 4 * h, 4 * h + 4>(vectors, s, scale, a, start, isum);
      });
    }
    for (int g = 0; g < G; ++g) {
      const Floats d = widen_f16(levels[g]->d + g % kSlices * kLanes);
      for (int n = 0; n < N; ++n) acc[g][n] = fma(mul(d, repeat(a[n]->d)), to_float(isum[g][n]), acc[g][n]);
    }
  }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    walk<SixBitKernel, SignedScales, G, N>(slice, rows, o);
  }
};

constexpr SuperBlockMatmuls kMatmuls = {
    matmul<TwoLevelKernel<Format::Q4_K, FourBits>>,
    matmul<TwoLevelKernel<Format::Q5_K, FiveBits>>,
    matmul<SixBitKernel>,
};

#else

int dot(const int16_t (*q)[16], int lane, const int8_t* a, int from, int to) {
  int sum = 0;
  for (int k = from; k < to; ++k) sum += q[k][lane] * a[k];
  return sum;
}

struct PortableTwoLevels {
  using Activation = Activation256;

  static void add(const int16_t (*q)[16], const TwoLevels& levels, const Activation& a, float* acc) {
    for (int lane = 0; lane < 16; ++lane) {
      int isum = 0, imin = 0;
      for (int s = 0; s < 8; ++s) {
        isum += levels.scale[s][lane] * dot(q, lane, a.q, 32 * s, 32 * s + 32);
        imin += levels.min[s / 2][lane][s % 2] * a.sums[s];
      }
      const float d = f16_to_f32(levels.d[lane]) * a.d, dmin = f16_to_f32(levels.dmin[lane]) * a.d;
      acc[lane] = __builtin_fmaf(d, static_cast<float>(isum), acc[lane]);
      acc[lane] = __builtin_fmaf(-dmin, static_cast<float>(imin), acc[lane]);
    }
  }
};

struct PortableSixBits {
  using Activation = Activation256;

  static void add(const int16_t (*q)[16], const SignedScales& levels, const Activation& a, float* acc) {
    for (int lane = 0; lane < 16; ++lane) {
      int isum = 0;
      for (int s = 0; s < 16; ++s) isum += levels.scale[s][lane] * dot(q, lane, a.q, 16 * s, 16 * s + 16);
      acc[lane] = __builtin_fmaf(f16_to_f32(levels.d[lane]) * a.d, static_cast<float>(isum), acc[lane]);
    }
  }
};

constexpr SuperBlockMatmuls kMatmuls = {
    portable_matmul<Format::Q4_K, TwoLevels, PortableTwoLevels>,
    portable_matmul<Format::Q5_K, TwoLevels, PortableTwoLevels>,
    portable_matmul<Format::Q6_K, SignedScales, PortableSixBits>,
};

#endif

}  // namespace
}  // namespace llamay

extern "C" const llamay::SuperBlockMatmuls LLAMAY_TABLE(matmul_super_blocks);
const llamay::SuperBlockMatmuls LLAMAY_TABLE(matmul_super_blocks) = llamay::kMatmuls;
