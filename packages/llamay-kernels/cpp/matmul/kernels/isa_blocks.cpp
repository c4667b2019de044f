// Matrix products of the formats with blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4.
#include "matmul/kernels/bits.hpp"
#include "matmul/kernels/portable.hpp"
#include "matmul/kernels/tiles.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

#ifdef LLAMAY_VECTOR

template <Format format>
LLAMAY_INLINE Floats widen_scale(const uint16_t* at) {
  if constexpr (format == Format::MXFP4)
    return widen_bf16(at);
  else
    return widen_f16(at);
}

/// start + weights times activations over the 32 k of a block.
template <class Bits, int G, int N>
LLAMAY_INLINE void dots(const uint8_t* const (&vectors)[G], const Activation32* const (&a)[N],
                        const Ints (&start)[N], Ints (&sum)[G][N]) {
#ifdef LLAMAY_DOT32
  for (int g = 0; g < G; ++g)
    for (int n = 0; n < N; ++n) sum[g][n] = start[n];
  const int8_t* q[N];
  for (int n = 0; n < N; ++n) q[n] = a[n]->q;
  add_byte_dots<Bits, 0, 8>(vectors, 0, q, sum);
#else
  constexpr bool in_halves = Bits::kHighest == 255;
  constexpr int at_once = in_halves ? 8 : fours_in_16_bits(Bits::kHighest);
  Bytes low[G][N], high[G][N];
  unrolled<8>([&](auto four) __attribute__((always_inline)) {
    constexpr int at = decltype(four)::value;
    Nibbles w[G];
    for (int g = 0; g < G; ++g)
      if constexpr (in_halves)
        w[g] = Bits::template halves<at>(vectors[g], 0);
      else
        w[g].low = Bits::template weight<at>(vectors[g], 0);
    for (int n = 0; n < N; ++n) {
      const Bytes x = repeat4(a[n]->q + 4 * at);
      for (int g = 0; g < G; ++g) {
        low[g][n] = at % at_once ? add16(low[g][n], mul_bytes(w[g].low, x)) : mul_bytes(w[g].low, x);
        if constexpr (in_halves)
          high[g][n] = at ? add16(high[g][n], mul_bytes(w[g].high, x)) : mul_bytes(w[g].high, x);
      }
    }
    if constexpr (at % at_once == at_once - 1)
      for (int g = 0; g < G; ++g)
        for (int n = 0; n < N; ++n) {
          const Ints part = mul_pairs(low[g][n], repeat_i16(1));
          sum[g][n] = add32(at < at_once ? start[n] : sum[g][n], part);
          if constexpr (in_halves) sum[g][n] = add32(sum[g][n], mul_pairs(high[g][n], repeat_i16(16)));
        }
  });
#endif
}

/// offset: the difference between the bytes and the format's integers, 0 or a power of two from 8 on.
template <Format format, class Bits, int offset>
struct BlockKernel {
  using Place = Layout<format>;
  using Scales = typename Place::Scales;
  static constexpr bool kWithMin = sizeof(Scales) == sizeof(ScaleAndMin);
  static constexpr size_t kBlock = 32;
  static constexpr int kManyGroups = kSlices > 2 ? kSlices : 2;
  template <int G>
  static constexpr int rows() {
    if (kLanes == 16) return G == 1 ? 8 : 6;
    return !kByteDot && Bits::kHighest == 255 ? 2 : 4;
  }
  static size_t stride(size_t cols) { return round_up(cols / 32 * sizeof(Activation32), 64); }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    Floats acc[G][N];
    const Activation32* a[N];
    for (int n = 0; n < N; ++n) a[n] = reinterpret_cast<const Activation32*>(rows.first + n * rows.stride);
    for (int g = 0; g < G; ++g)
      for (int n = 0; n < N; ++n) acc[g][n] = zero_floats();
    for (size_t b = 0; b < rows.blocks; ++b) {
      const size_t vectors_at = Place::vectors(b, rows.blocks), scales_at = Place::scales(b);
      const uint8_t* vectors[G];
      for (int g = 0; g < G; ++g) {
        vectors[g] = slice[g].group + vectors_at + slice_bytes(g);
        if (g % kSlices == 0) {
          fetch_ahead<N, Place::kVectors>(vectors[g], rows.ahead);
          fetch_ahead<N, Place::kScales>(slice[g].group + scales_at, rows.ahead);
        }
      }
      Ints sum[G][N], start[N];
      for (int n = 0; n < N; ++n) {
        start[n] = zero();
        if constexpr (offset > 0) start[n] = shift_left32<log2_of(offset / 8)>(repeat4(&a[n]->offset8));
      }
      dots<Bits>(vectors, a, start, sum);
      for (int g = 0; g < G; ++g) {
        const Scales& s = *reinterpret_cast<const Scales*>(slice[g].group + scales_at);
        const Floats d = widen_scale<format>(s.d + g % kSlices * kLanes);
        for (int n = 0; n < N; ++n) acc[g][n] = fma(mul(d, repeat(a[n]->d)), to_float(sum[g][n]), acc[g][n]);
        if constexpr (kWithMin) {
          const Floats m = widen_f16(s.m + g % kSlices * kLanes);
          for (int n = 0; n < N; ++n) acc[g][n] = fma(m, repeat(a[n]->s), acc[g][n]);
        }
      }
      for (int n = 0; n < N; ++n) ++a[n];
    }
    store_tile(acc, slice, rows.t, o);
  }
};

using Iq4Nl = CodeBits<FourBits, Format::IQ4_NL>;
using Mxfp4 = CodeBits<FourBits, Format::MXFP4>;

constexpr BlockMatmuls kMatmuls = {
    matmul<BlockKernel<Format::Q4_0, FourBits, 8>>,
    matmul<BlockKernel<Format::Q4_1, FourBits, 0>>,
    matmul<BlockKernel<Format::Q5_0, FiveBits, 16>>,
    matmul<BlockKernel<Format::Q5_1, FiveBits, 0>>,
    matmul<BlockKernel<Format::Q8_0, EightBits, EightBits::kOffset>>,
    matmul<BlockKernel<Format::IQ4_NL, Iq4Nl, Iq4Nl::kOffset>>,
    matmul<BlockKernel<Format::MXFP4, Mxfp4, Mxfp4::kOffset>>,
};

#else

/// One block for sixteen rows, in the order of docs/arithmetic.md.
template <Format format>
struct PortableBlock {
  using Activation = Activation32;
  using Scales = ScalesOf<format>;

  static void add(const int16_t (*q)[16], const Scales& s, const Activation& a, float* acc) {
    int32_t sum[16] = {};
    for (int k = 0; k < 32; ++k)
      for (int lane = 0; lane < 16; ++lane) sum[lane] += q[k][lane] * a.q[k];
    for (int lane = 0; lane < 16; ++lane) {
      const float d = scale_of_block<format>(s, lane) * a.d;
      acc[lane] = __builtin_fmaf(d, static_cast<float>(sum[lane]), acc[lane]);
      if constexpr (sizeof(Scales) == sizeof(ScaleAndMin))
        acc[lane] = __builtin_fmaf(f16_to_f32(s.m[lane]), a.s, acc[lane]);
    }
  }
};

template <Format format>
constexpr MatmulFunction portable_block = portable_matmul<format, PortableBlock<format>>;

constexpr BlockMatmuls kMatmuls = {
    portable_block<Format::Q4_0>,  portable_block<Format::Q4_1>, portable_block<Format::Q5_0>,
    portable_block<Format::Q5_1>,  portable_block<Format::Q8_0>, portable_block<Format::IQ4_NL>,
    portable_block<Format::MXFP4>,
};

#endif

}  // namespace
}  // namespace llamay

extern "C" const llamay::BlockMatmuls LLAMAY_TABLE(matmul_blocks);
const llamay::BlockMatmuls LLAMAY_TABLE(matmul_blocks) = llamay::kMatmuls;
