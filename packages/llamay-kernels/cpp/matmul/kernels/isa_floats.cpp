// Matrix products of F32, F16 and BF16 weights: one chain of fma for each output, k increasing.
#include "matmul/kernels/portable.hpp"
#include "matmul/kernels/tiles.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

#ifdef LLAMAY_VECTOR

struct Float32 {
  using Value = float;
  static LLAMAY_INLINE Floats widen(const float* at) { return load_floats(at); }
};
struct Float16 {
  using Value = uint16_t;
  static LLAMAY_INLINE Floats widen(const uint16_t* at) { return widen_f16(at); }
};
struct BFloat16 {
  using Value = uint16_t;
  static LLAMAY_INLINE Floats widen(const uint16_t* at) { return widen_bf16(at); }
};

/// Each chain of fma waits for its last result at every k, so a tile needs several chains to keep the
/// multipliers busy.
template <class Type>
struct FloatKernel {
  using Value = typename Type::Value;
  static constexpr size_t kBlock = 1;
  static constexpr int kManyGroups = 4;
  template <int G>
  static constexpr int rows() {
    return kLanes == 8 ? (G == 4 ? 2 : 6) : (G == 4 ? 6 : 8);  // sixteen registers with AVX2
  }
  static size_t stride(size_t cols) { return round_up(cols * sizeof(float), 64); }

  template <int G, int N>
  static __attribute__((noinline)) void tile(const Slice (&slice)[G], const Rows& rows, const Output& o) {
    Floats acc[G][N];
    const float* x[N];
    const Value* w[G];
    for (int n = 0; n < N; ++n) x[n] = reinterpret_cast<const float*>(rows.first + n * rows.stride);
    for (int g = 0; g < G; ++g) {
      // A group holds sixteen consecutive values for each k; a slice is a part of these.
      w[g] = reinterpret_cast<const Value*>(slice[g].group) + g % kSlices * kLanes;
      for (int n = 0; n < N; ++n) acc[g][n] = zero_floats();
    }
    for (size_t k = 0; k < rows.blocks; ++k) {
      Floats weights[G];
      for (int g = 0; g < G; ++g) weights[g] = Type::widen(w[g] + 16 * k);
      for (int n = 0; n < N; ++n) {
        const Floats value = repeat(x[n][k]);
        for (int g = 0; g < G; ++g) acc[g][n] = fma(weights[g], value, acc[g][n]);
      }
    }
    store_tile(acc, slice, rows.t, o);
  }
};

constexpr FloatMatmuls kMatmuls = {
    matmul<FloatKernel<Float32>>,
    matmul<FloatKernel<Float16>>,
    matmul<FloatKernel<BFloat16>>,
};

#else

inline float widen(float value) { return value; }
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
inline float widen(Half value) { return f16_to_f32(value.bits); }
inline float widen(Brain value) { return bf16_to_f32(value.bits); }

template <class Value>
void matmul(const PackedMatrix& m, const uint8_t* activations, size_t n_rows, size_t group_begin,
            size_t group_end, const Output& o) {
  const size_t stride = round_up(m.cols * sizeof(float), 64);
  for (size_t group = group_begin; group < group_end; ++group) {
    const Value* w = reinterpret_cast<const Value*>(m.data + group * m.group_bytes);
    for (size_t t = 0; t < n_rows; ++t) {
      const float* x = reinterpret_cast<const float*>(activations + t * stride);
      float acc[16] = {};
      for (size_t k = 0; k < m.cols; ++k)
        for (int lane = 0; lane < 16; ++lane)
          acc[lane] = __builtin_fmaf(widen(w[16 * k + lane]), x[k], acc[lane]);
      portable_store(acc, group, t, o);
    }
  }
}

constexpr FloatMatmuls kMatmuls = {matmul<float>, matmul<Half>, matmul<Brain>};

#endif

}  // namespace
}  // namespace llamay

extern "C" const llamay::FloatMatmuls LLAMAY_TABLE(matmul_floats);
const llamay::FloatMatmuls LLAMAY_TABLE(matmul_floats) = llamay::kMatmuls;
