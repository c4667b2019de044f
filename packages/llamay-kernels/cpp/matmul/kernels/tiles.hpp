#pragma once

#include "matmul/kernels/output.hpp"
#include "matmul/vectors/vector.hpp"
#include "matmul/weights/packed.hpp"

#ifdef LLAMAY_VECTOR

// A tile is G slices (vectors of kLanes weight rows) times N activation rows, kept in registers while k runs
// once from left to right. Larger tiles reuse loaded values more often; they never change the order of any
// output's sum.

namespace llamay {
namespace {

/// The part of a 1 MiB second-level cache for activations, which stay there while the groups of the matrix
/// pass.
constexpr size_t kActivationBudget = size_t{512} << 10;

/// The start of a slice's group, and the first of its rows in the output.
struct Slice {
  const uint8_t* group;
  size_t row;
};
/// The first byte of slice g in each of a group's vectors.
constexpr size_t slice_bytes(int g) { return static_cast<size_t>(g % kSlices) * (64 / kSlices); }

/// With at most this many rows of activations, weights are multiplied as fast as memory delivers them, and
/// anything that disturbs the hardware prefetcher costs up to a third of the speed. With more rows the
/// hardware prefetcher stops while multiplications are slower than memory, so the next weights are prefetched
/// explicitly.
constexpr size_t kStreamedRows = 3;

/// Prefetches the bytes that lie `ahead` bytes behind the current position: the same place in the next
/// groups. ahead 0: this is a later tile of the same groups, which are in the cache already.
template <int N, size_t bytes>
LLAMAY_INLINE void fetch_ahead(const uint8_t* at, size_t ahead) {
  if (N > kStreamedRows && ahead)
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + ahead + i, 0, 2);
}

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

/// The N rows of activations that a tile multiplies its slices with.
struct Rows {
  const uint8_t* first;
  size_t stride;
  size_t blocks;  // blocks in a row
  size_t t;       // index of the first row
  size_t ahead;   // for fetch_ahead
};

/// Kernel: `kManyGroups` slices at once (a multiple of kSlices), then kSlices for what remains; rows<G>()
/// rows of activations at once, then 4, 2 and 1; tile<G, N>(slices, rows, output).
template <class Kernel, int G, int N>
LLAMAY_INLINE void row_tiles(const Slice (&slice)[G], Rows& rows, size_t end, const Output& o) {
  for (; end - rows.t >= static_cast<size_t>(N); rows.t += N) {
    Kernel::template tile<G, N>(slice, rows, o);
    rows.first += N * rows.stride;
    rows.ahead = 0;
  }
  if constexpr (N > 1) row_tiles<Kernel, G, (N > 4 ? 4 : N / 2)>(slice, rows, end, o);
}

template <class Kernel, int G>
LLAMAY_INLINE size_t group_tiles(const PackedMatrix& m, const uint8_t* activations, size_t t, size_t end,
                                 size_t group, size_t group_end, const Output& o) {
  static_assert(G % kSlices == 0);
  constexpr size_t groups = G / kSlices;
  const size_t blocks = m.cols / Kernel::kBlock, stride = Kernel::stride(m.cols);
  const size_t tiles = (group_end - group) / groups;
  // While weights stream by, each of the groups of a tile passes through a contiguous range of groups of its
  // own.
  const bool streamed = end - t <= kStreamedRows;
  const size_t apart = streamed ? tiles : 1, step = streamed ? 1 : groups;
  for (size_t i = 0; i < tiles; ++i) {
    Slice slice[G];
    for (int g = 0; g < G; ++g) {
      const size_t at = group + i * step + g / kSlices * apart;
      slice[g] = {m.data + at * m.group_bytes, 16 * at + g % kSlices * kLanes};
    }
    Rows rows{activations + t * stride, stride, blocks, t, step * m.group_bytes};
    row_tiles<Kernel, G, Kernel::template rows<G>()>(slice, rows, end, o);
  }
  return group + tiles * groups;
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
      group = group_tiles<Kernel, Kernel::kManyGroups>(m, activations, t, end, group, group_end, o);
    group_tiles<Kernel, kSlices>(m, activations, t, end, group, group_end, o);
  }
}

}  // namespace
}  // namespace llamay
#endif
