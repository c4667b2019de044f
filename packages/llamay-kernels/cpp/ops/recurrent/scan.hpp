#pragma once

#include <stddef.h>

#include "kernel_tables.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// The values that one head reads or writes in each row: those of the first row, and the floats from one row
/// to the next.
struct ScanRows {
  const float* first;
  size_t stride;

  constexpr const float* row(size_t t) const { return first + t * stride; }
};

/// A linear recurrence over the rows of one text for one head with the state S, v_dim by k_dim. For each row
/// in order: S <- S diag(w) + v k^T, where a and b are there + (S_old a) b^T, and then y = S r.
struct Scan {
  size_t k_dim, v_dim;
  ScanRows r, k, v;       // k_dim, k_dim and v_dim values
  ScanRows w;             // one value, or k_dim of them
  bool w_by_column;       // whether w has k_dim values
  ScanRows a, b;          // k_dim values each; a.first null: without a and b
  const float* state_in;  // (v_dim, k_dim), the state before the first row; null: zeros. May be state_out
  float* state_out;       // the state after the last row. Not read, unless it is state_in
  float* out;             // y of the first row, v_dim values
  size_t out_stride;
};

struct ScanTable {
  /// Scans n rows, n >= 1, for rows [v_from, v_to) of the state. Rows of the state do not depend on one
  /// another, so threads may share a head. Only v[v_from, v_to), these rows of both states and y[v_from,
  /// v_to) are read or written.
  void (*rows)(const Scan& scan, size_t n, size_t v_from, size_t v_to);
};

}  // namespace llamay

LLAMAY_KERNEL_TABLES(ScanTable, scan);
