// Matrix products of the formats with super-blocks of 256: Q4_K, Q5_K, Q6_K.
#include "matmul/kernels/super_blocks.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

#ifdef LLAMAY_VECTOR

template <Format format, class Bits>
struct TwoLevelKernel : SuperBlockTiles {
  static constexpr size_t kVectorBytes = Layout<format>::kVectors;

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
      fetch_eighth<N, kVectorBytes>(vectors, s, ahead);
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
    add_block(levels, a, isum, acc);
    subtract_minima(levels, a, imin, acc);
  }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    walk<TwoLevelKernel, format, G, N>(slice, rows, o);
  }
};

struct SixBitKernel : SuperBlockTiles {
  static constexpr size_t kVectorBytes = Layout<Format::Q6_K>::kVectors;

  template <int G, int N>
  static LLAMAY_INLINE void add(const uint8_t* const (&vectors)[G], const SignedScales* const (&levels)[G],
                                const Activation256* const (&a)[N], size_t ahead, Floats (&acc)[G][N]) {
    Ints isum[G][N];
    for (int n = 0; n < N; ++n)
      for (int g = 0; g < G; ++g) isum[g][n] = zero();
#pragma GCC unroll 1
    for (size_t s = 0; s < 8; ++s) {
      fetch_eighth<N, kVectorBytes>(vectors, s, ahead);
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
    add_block(levels, a, isum, acc);
  }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    walk<SixBitKernel, Format::Q6_K, G, N>(slice, rows, o);
  }
};

constexpr SuperBlockMatmuls kMatmuls = {
    matmul<TwoLevelKernel<Format::Q4_K, FourBits>>,
    matmul<TwoLevelKernel<Format::Q5_K, FiveBits>>,
    matmul<SixBitKernel>,
};

#else

constexpr SuperBlockMatmuls kMatmuls = {
    portable_super_block<Format::Q4_K>,
    portable_super_block<Format::Q5_K>,
    portable_super_block<Format::Q6_K>,
};

#endif

}  // namespace
}  // namespace llamay

extern "C" const llamay::SuperBlockMatmuls LLAMAY_TABLE(matmul_super_blocks);
const llamay::SuperBlockMatmuls LLAMAY_TABLE(matmul_super_blocks) = llamay::kMatmuls;
