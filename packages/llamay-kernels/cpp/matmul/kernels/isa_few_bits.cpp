// Matrix products of the formats with super-blocks of 256 and few bits: Q2_K, Q3_K, TQ1_0, TQ2_0, and those
// whose codes are looked up (IQ).
#include "matmul/kernels/super_blocks.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

#ifdef LLAMAY_VECTOR

/// Splits pairs of 16-bit integers: the even ones belong to the first, the odd ones to the second sixteen k.
template <int G>
LLAMAY_INLINE void split_pairs(const Bytes (&pairs)[G], Ints (&first)[G], Ints (&second)[G]) {
  for (int g = 0; g < G; ++g) {
    first[g] = first_of_pair(pairs[g]);
    second[g] = second_of_pair(pairs[g]);
  }
}

struct TwoBitKernel : SuperBlockTiles {  // Q2_K
  static constexpr size_t kVectorBytes = Layout<Format::Q2_K>::kVectors;

  template <int G, int N>
  static LLAMAY_INLINE void add(const uint8_t* const (&vectors)[G], const NibbleLevels* const (&levels)[G],
                                const Activation256* const (&a)[N], size_t ahead, Floats (&acc)[G][N]) {
    Ints isum[G][N], imin[G][N], start[N];
    for (int n = 0; n < N; ++n) {
      start[n] = zero();
      for (int g = 0; g < G; ++g) isum[g][n] = imin[g][n] = zero();
    }
#pragma GCC unroll 1
    for (size_t s = 0; s < 8; ++s) {
      fetch_eighth<N, kVectorBytes>(vectors, s, ahead);
      Bytes scale[G];
      for (int g = 0; g < G; ++g) {
        const Bytes both = widen_u8_pairs(levels[g]->scale_min[s][g % kSlices * kLanes]);
        scale[g] = and_(both, repeat_i16(15));
        const Bytes min = shift_right16<4>(both);
        for (int n = 0; n < N; ++n) imin[g][n] = add_pairs(imin[g][n], min, repeat4(a[n]->sums16 + 2 * s));
      }
      Ints first[G], second[G];
      split_pairs(scale, first, second);
      add_scaled_dots<TwoBits, 0, 4>(vectors, s, first, a, start, isum);
      add_scaled_dots<TwoBits, 4, 8>(vectors, s, second, a, start, isum);
    }
    add_block(levels, a, isum, acc);
    subtract_minima(levels, a, imin, acc);
  }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    walk<TwoBitKernel, Format::Q2_K, G, N>(slice, rows, o);
  }
};

/// Scales of sub-blocks of 16.
template <Format format, class Bits>
struct SixteenthKernel : SuperBlockTiles {
  static constexpr size_t kVectorBytes = Layout<format>::kVectors;
  static constexpr int kOffset = Bits::kOffset;

  template <int G, int N>
  static LLAMAY_INLINE void add(const uint8_t* const (&vectors)[G], const SixteenthScales* const (&levels)[G],
                                const Activation256* const (&a)[N], size_t ahead, Floats (&acc)[G][N]) {
    Ints isum[G][N];
    for (int n = 0; n < N; ++n)
      for (int g = 0; g < G; ++g) isum[g][n] = zero();
#ifndef LLAMAY_DOT32
    // The offset of the bytes, subtracted beforehand.
    for (size_t s = 0; s < 8; ++s)
      for (int g = 0; g < G; ++g) {
        const Bytes pairs = widen_i8_pairs(levels[g]->scale[s][g % kSlices * kLanes]);
        for (int n = 0; n < N; ++n) isum[g][n] = add_pairs(isum[g][n], pairs, repeat4(a[n]->sums16 + 2 * s));
      }
    for (int n = 0; n < N; ++n)
      for (int g = 0; g < G; ++g) isum[g][n] = sub32(zero(), shift_left32<log2_of(kOffset)>(isum[g][n]));
#endif
#pragma GCC unroll 1
    for (size_t s = 0; s < 8; ++s) {
      fetch_eighth<N, kVectorBytes>(vectors, s, ahead);
      Bytes pairs[G];
      for (int g = 0; g < G; ++g) pairs[g] = widen_i8_pairs(levels[g]->scale[s][g % kSlices * kLanes]);
      Ints first[G], second[G], start[N];
      split_pairs(pairs, first, second);
      for (int n = 0; n < N; ++n) start[n] = offset_of<kOffset>(*a[n], 2 * s);
      add_scaled_dots<Bits, 0, 4>(vectors, s, first, a, start, isum);
      for (int n = 0; n < N; ++n) start[n] = offset_of<kOffset>(*a[n], 2 * s + 1);
      add_scaled_dots<Bits, 4, 8>(vectors, s, second, a, start, isum);
    }
    add_block(levels, a, isum, acc, unit(format));
  }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    walk<SixteenthKernel, format, G, N>(slice, rows, o);
  }
};

/// Scales of sub-blocks of 32.
template <Format format, class Bits>
struct EighthKernel : SuperBlockTiles {
  static constexpr size_t kVectorBytes = Layout<format>::kVectors;
  static constexpr int kOffset = Bits::kOffset;

  template <int G, int N>
  static LLAMAY_INLINE void add(const uint8_t* const (&vectors)[G], const EighthScales* const (&levels)[G],
                                const Activation256* const (&a)[N], size_t ahead, Floats (&acc)[G][N]) {
    Ints isum[G][N], start[N];
    for (int n = 0; n < N; ++n) {
      start[n] = zero();
      for (int g = 0; g < G; ++g) isum[g][n] = zero();
    }
    // One pair product covers the offset of the bytes of two sub-blocks, so it is subtracted for both at
    // once.
    if constexpr (kOffset > 0) {
      for (size_t p = 0; p < 4; ++p)
        for (int g = 0; g < G; ++g) {
          const Bytes pairs = widen_i8_pairs(levels[g]->scale[p][g % kSlices * kLanes]);
          for (int n = 0; n < N; ++n) isum[g][n] = add_pairs(isum[g][n], pairs, repeat4(a[n]->sums + 2 * p));
        }
      for (int n = 0; n < N; ++n)
        for (int g = 0; g < G; ++g) isum[g][n] = sub32(zero(), shift_left32<log2_of(kOffset)>(isum[g][n]));
    }
#pragma GCC unroll 1
    for (size_t p = 0; p < 4; ++p) {
      Bytes pairs[G];
      for (int g = 0; g < G; ++g) pairs[g] = widen_i8_pairs(levels[g]->scale[p][g % kSlices * kLanes]);
      Ints first[G], second[G];
      split_pairs(pairs, first, second);
      fetch_eighth<N, kVectorBytes>(vectors, 2 * p, ahead);
      add_scaled_dots<Bits, 0, 8>(vectors, 2 * p, first, a, start, isum);
      fetch_eighth<N, kVectorBytes>(vectors, 2 * p + 1, ahead);
      add_scaled_dots<Bits, 0, 8>(vectors, 2 * p + 1, second, a, start, isum);
    }
    add_block(levels, a, isum, acc, unit(format));
  }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    walk<EighthKernel, format, G, N>(slice, rows, o);
  }
};

/// -1, 0, 1 and one scale: TQ1_0, TQ2_0.
struct TernaryKernel : SuperBlockTiles {
  static constexpr size_t kVectorBytes = Layout<Format::TQ2_0>::kVectors;

  template <int G, int N>
  static LLAMAY_INLINE void add(const uint8_t* const (&vectors)[G], const ScaleOnly* const (&levels)[G],
                                const Activation256* const (&a)[N], size_t ahead, Floats (&acc)[G][N]) {
    Ints isum[G][N];
    for (int n = 0; n < N; ++n)
      for (int g = 0; g < G; ++g) isum[g][n] = repeat4(&a[n]->offset1);
#pragma GCC unroll 1
    for (size_t s = 0; s < 8; ++s) {
      fetch_eighth<N, kVectorBytes>(vectors, s, ahead);
      add_dots<TwoBits>(vectors, s, a, isum);
    }
    add_block(levels, a, isum, acc);
  }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    walk<TernaryKernel, Format::TQ2_0, G, N>(slice, rows, o);
  }
};

template <Format format>
using Three = SixteenthKernel<format, CodeBits<ThreeBits, format>>;
template <Format format>
using Four = EighthKernel<format, CodeBits<FourBits, format>>;

constexpr FewBitMatmuls kMatmuls = {
    matmul<TwoBitKernel>,           matmul<SixteenthKernel<Format::Q3_K, ThreeBits>>,
    matmul<Three<Format::IQ2_XXS>>, matmul<Three<Format::IQ1_S>>,
    matmul<Four<Format::IQ3_XXS>>,  matmul<Four<Format::IQ3_S>>,
    matmul<Four<Format::IQ4_XS>>,   matmul<TernaryKernel>,
};

#else

constexpr FewBitMatmuls kMatmuls = {
    portable_super_block<Format::Q2_K>,    portable_super_block<Format::Q3_K>,
    portable_super_block<Format::IQ2_XXS>, portable_super_block<Format::IQ1_S>,
    portable_super_block<Format::IQ3_XXS>, portable_super_block<Format::IQ3_S>,
    portable_super_block<Format::IQ4_XS>,  portable_super_block<Format::TQ2_0>,
};

#endif

}  // namespace
}  // namespace llamay

extern "C" const llamay::FewBitMatmuls LLAMAY_TABLE(matmul_few_bits);
const llamay::FewBitMatmuls LLAMAY_TABLE(matmul_few_bits) = llamay::kMatmuls;
