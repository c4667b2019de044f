#pragma once

#include "simd/f32x16.hpp"

namespace llamay {
namespace {

// The rows and vectors of columns that share their operands in registers: as many as there are registers for.
#if defined(__AVX512F__)
constexpr int kTileRows = 7;
constexpr int tile_vectors(int) { return 4; }
#elif defined(__AVX2__)
constexpr int kTileRows = 6;
constexpr int tile_vectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
#elif defined(LLAMAY_NEON)
constexpr int kTileRows = 6;
constexpr int tile_vectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
#else
constexpr int kTileRows = 4;
constexpr int tile_vectors(int) { return 1; }
#endif

/// c[r][j] = fma(a[r][i], b[i * stride + j], c[r][j]) for i increasing, starting from c's values or from +0.
/// The last of the vectors reads `last` lanes only. ahead: bytes from the current position to the data to
/// prefetch; 0 for no prefetch.
template <int rows, int vectors, class T>
LLAMAY_LANES void tile(const float* const* a, const T* b, size_t stride, size_t depth, float* const* c,
                       size_t at, int last, bool accumulate, ptrdiff_t ahead) {
  f32x16 sum[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vectors; ++j) sum[r][j] = accumulate ? load(c[r] + at + 16 * j) : zero();
  const auto walk = [&](auto fetch, auto load_last) LLAMAY_LAMBDA {
    for (size_t i = 0; i < depth; ++i, b += stride) {
      fetch(b);
      for (int j = 0; j < vectors; ++j) {
        const f32x16 v = j + 1 < vectors ? load_lanes(b + 16 * j) : load_last(b + 16 * j);
        for (int r = 0; r < rows; ++r) sum[r][j] = fma(splat(a[r][i]), v, sum[r][j]);
      }
    }
  };
  const auto nothing = [](const T*) {};
  const auto fetch = [&](const T* at) {
    for (size_t line = 0; line < 16 * vectors * sizeof(T); line += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(at) + ahead + line, 0, 2);
  };
  const auto all = [](const T* at) { return load_lanes(at); };
  const auto some = [&](const T* at) { return load_lanes(at, last); };
  if (last == 16 && ahead)
    walk(fetch, all);
  else if (last == 16)
    walk(nothing, all);
  else if (ahead)
    walk(fetch, some);
  else
    walk(nothing, some);
  for (int r = 0; r < rows; ++r)
    for (int j = 0; j < vectors; ++j) store(c[r] + at + 16 * j, sum[r][j]);
}

template <int rows, class T>
void product_rows(const float* const* a, const T* b, size_t stride, size_t depth, float* const* c,
                  size_t columns, bool accumulate, ptrdiff_t ahead) {
  constexpr int vectors = tile_vectors(rows);
  size_t at = 0;
  for (; at + 16 * (vectors - 1) < columns; at += 16 * vectors) {
    const size_t left = columns - at - 16 * (vectors - 1);
    tile<rows, vectors>(a, b + at, stride, depth, c, at, left < 16 ? static_cast<int>(left) : 16, accumulate,
                        ahead);
  }
  for (; at < columns; at += 16) {
    const size_t left = columns - at;
    tile<rows, 1>(a, b + at, stride, depth, c, at, left < 16 ? static_cast<int>(left) : 16, accumulate,
                  ahead);
  }
}

/// c = a b, or c + a b, each element one chain of fma over increasing depth. rows: 1..kTileRows, each with an
/// address of its own. Rows of c have room for whole vectors; rows of b are read up to `columns` only.
template <class T>
void product(int rows, const float* const* a, const T* b, size_t stride, size_t depth, float* const* c,
             size_t columns, bool accumulate, ptrdiff_t ahead = 0) {
  switch (rows) {
    case 1:
      return product_rows<1>(a, b, stride, depth, c, columns, accumulate, ahead);
    case 2:
      return product_rows<2>(a, b, stride, depth, c, columns, accumulate, ahead);
    case 3:
      return product_rows<3>(a, b, stride, depth, c, columns, accumulate, ahead);
    case 4:
      return product_rows<4>(a, b, stride, depth, c, columns, accumulate, ahead);
#if defined(__AVX2__) || defined(LLAMAY_NEON)
    case 5:
      return product_rows<5>(a, b, stride, depth, c, columns, accumulate, ahead);
    case 6:
      return product_rows<6>(a, b, stride, depth, c, columns, accumulate, ahead);
#endif
#if defined(__AVX512F__)
    case 7:
      return product_rows<7>(a, b, stride, depth, c, columns, accumulate, ahead);
#endif
  }
}

}  // namespace
}  // namespace llamay
