#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace llamay::kv {

// Tiles of one cache line's width or less, in registers: element by element a transposition is bound by its
// loads and stores, four to eight times slower than memory.
namespace tile {

using U16 = uint16_t __attribute__((vector_size(16)));
using U32 = uint32_t __attribute__((vector_size(16)));
using U64 = uint64_t __attribute__((vector_size(16)));

template <class V, class E>
V load(const E* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void transpose(const uint16_t* in, size_t in_stride, uint16_t* out, size_t out_stride) {
  U16 r[8];
  U32 a[8];
  U64 b[8];
  for (size_t i = 0; i < 8; ++i) r[i] = load<U16>(in + i * in_stride);
  for (size_t i = 0; i < 8; i += 2) {
    a[i] = (U32)__builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 2, 10, 3, 11);
    a[i + 1] = (U32)__builtin_shufflevector(r[i], r[i + 1], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (size_t i : {0, 4})
    for (size_t j : {0, 1}) {
      b[i + 2 * j] = (U64)__builtin_shufflevector(a[i + j], a[i + j + 2], 0, 4, 1, 5);
      b[i + 2 * j + 1] = (U64)__builtin_shufflevector(a[i + j], a[i + j + 2], 2, 6, 3, 7);
    }
  for (size_t i = 0; i < 4; ++i) {
    const U64 low = __builtin_shufflevector(b[i], b[i + 4], 0, 2);
    const U64 high = __builtin_shufflevector(b[i], b[i + 4], 1, 3);
    std::memcpy(out + 2 * i * out_stride, &low, sizeof low);
    std::memcpy(out + (2 * i + 1) * out_stride, &high, sizeof high);
  }
}

inline void transpose(const uint32_t* in, size_t in_stride, uint32_t* out, size_t out_stride) {
  U32 r[4];
  U64 a[4];
  for (size_t i = 0; i < 4; ++i) r[i] = load<U32>(in + i * in_stride);
  for (size_t i = 0; i < 4; i += 2) {
    a[i] = (U64)__builtin_shufflevector(r[i], r[i + 1], 0, 4, 1, 5);
    a[i + 1] = (U64)__builtin_shufflevector(r[i], r[i + 1], 2, 6, 3, 7);
  }
  for (size_t i = 0; i < 2; ++i) {
    const U64 low = __builtin_shufflevector(a[i], a[i + 2], 0, 2);
    const U64 high = __builtin_shufflevector(a[i], a[i + 2], 1, 3);
    std::memcpy(out + 2 * i * out_stride, &low, sizeof low);
    std::memcpy(out + (2 * i + 1) * out_stride, &high, sizeof high);
  }
}

}  // namespace tile

/// out[c * out_stride + r] = in[r * in_stride + c] for rows x columns elements of 2 or 4 bytes.
template <class E>
void transpose(const E* in, size_t in_stride, E* out, size_t out_stride, size_t rows, size_t columns) {
  constexpr size_t T = 16 / sizeof(E);
  const size_t whole_rows = rows / T * T, whole_columns = columns / T * T;
  for (size_t r = 0; r < whole_rows; r += T)
    for (size_t c = 0; c < whole_columns; c += T)
      tile::transpose(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      out[c * out_stride + r] = in[r * in_stride + c];
}

}  // namespace llamay::kv
