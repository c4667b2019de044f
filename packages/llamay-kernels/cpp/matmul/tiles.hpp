#pragma once

#include "output.hpp"
#include "packed.hpp"
#include "vector.hpp"

#ifdef LLAMAY_VECTOR

// A tile is G slices (vectors of kLanes weight rows) times N activation rows, kept in registers while k runs
// once from left to right. Larger tiles reuse what is loaded; they never change the order of any output's
// sum.

namespace llamay {
namespace {

/// Of a 1 MiB second-level cache: the activations that stay there while the groups of the matrix pass.
constexpr size_t kActivationBudget = size_t{512} << 10;

/// Where a slice's vectors and scales start, and where its rows go.
struct Slice {
  const uint8_t* vectors;
  const uint8_t* scales;
  size_t row;
};

template <int G, int N>
LLAMAY_INLINE void store_tile(const Floats (&acc)[G][N], const Slice (&slice)[G], size_t t, const Output& o) {
  for (int g = 0; g < G; ++g) {
    const size_t row = slice[g].row;
    if (row >= o.rows) continue;
    const int lanes = o.rows - row < static_cast<size_t>(kLanes) ? static_cast<int>(o.rows - row) : kLanes;
    for (int n = 0; n < N; ++n) {
      Floats y = acc[g][n];
      if (o.bias) y = add(y, load_some(o.bias + row, lanes));
      if (o.residual) y = add(load_some(o.residual + (t + n) * o.residual_stride + row, lanes), y);
      store_some(o.out + (t + n) * o.stride + row, y, lanes);
    }
  }
}

/// Walks the tiles. Kernel: `kGroups` slices at once (a multiple of kSlices), `kRows` activation rows at
/// once, a power of two times something that the halvings below reach 1 from; `tile<G, N>(slices,
/// activations, stride, blocks, t, output)`.
template <class Kernel, int G, int N>
LLAMAY_INLINE void row_tiles(const Slice (&slice)[G], const uint8_t* activations, size_t stride,
                             size_t blocks, size_t t, size_t end, const Output& o) {
  for (; end - t >= static_cast<size_t>(N); t += N)
    Kernel::template tile<G, N>(slice, activations + t * stride, stride, blocks, t, o);
  if constexpr (N > 1)
    row_tiles<Kernel, G, (N > 4 ? 4 : N / 2)>(slice, activations, stride, blocks, t, end, o);
}

template <class Kernel, int G>
LLAMAY_INLINE size_t group_tiles(const PackedMatrix& m, const uint8_t* activations, size_t stride, size_t t,
                                 size_t end, size_t group, size_t group_end, const Output& o) {
  static_assert(G % kSlices == 0);
  constexpr size_t groups = G / kSlices;
  const size_t blocks = m.cols / Kernel::kBlock;
  for (; group_end - group >= groups; group += groups) {
    Slice slice[G];
    for (int g = 0; g < G; ++g) {
      const size_t at = group + g / kSlices;
      const uint8_t* start = m.data + at * m.group_bytes;
      slice[g] = {start + g % kSlices * (64 / kSlices), start + blocks * Kernel::kVectorBytes,
                  16 * at + g % kSlices * kLanes};
    }
    row_tiles<Kernel, G, Kernel::template rows<G>()>(slice, activations, stride, blocks, t, end, o);
  }
  return group;
}

template <class Kernel>
void matmul(const PackedMatrix& m, const uint8_t* activations, size_t n_rows, size_t group_begin,
            size_t group_end, const Output& o) {
  const size_t stride = Kernel::stride(m.cols);
  size_t step = kActivationBudget / stride;
  step = step < 32 ? 32 : step / 16 * 16;
  for (size_t t = 0; t < n_rows; t += step) {
    const size_t end = n_rows - t < step ? n_rows : t + step;
    size_t group = group_begin;
    if constexpr (Kernel::kManyGroups > kSlices)
      group = group_tiles<Kernel, Kernel::kManyGroups>(m, activations, stride, t, end, group, group_end, o);
    group_tiles<Kernel, kSlices>(m, activations, stride, t, end, group, group_end, o);
  }
}

}  // namespace
}  // namespace llamay
#endif
