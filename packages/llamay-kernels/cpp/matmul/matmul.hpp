#pragma once

#include <stddef.h>
#include <stdint.h>

#include "formats/format.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Runs body(context, i) for every i < count, in any order, on any threads; returns when all are done.
struct ParallelFor {
  void* self;
  void (*run)(void* self, size_t count, void (*body)(void* context, size_t index), void* context);
};
/// Runs the bodies one after the other, on the calling thread.
extern const ParallelFor serial_for;

/// A weight in the layout that the kernels read, the same bytes for every kernel set. Sixteen rows lie side
/// by side, so that each row has a lane (layouts: packed.hpp); rows beyond the last are zero. Owns its bytes;
/// can be moved, not copied.
struct PackedMatrix {
  Format format = Format::F32;
  size_t rows = 0;
  size_t cols = 0;
  size_t groups = 0;       // of 16 rows
  size_t group_bytes = 0;  // of one group; groups follow each other without gaps
  uint8_t* data = nullptr;

  PackedMatrix();
  /// All bytes zero. Throws std::bad_alloc.
  PackedMatrix(Format format, size_t rows, size_t cols);
  PackedMatrix(PackedMatrix&& other) noexcept;
  PackedMatrix& operator=(PackedMatrix&& other) noexcept;
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;
  ~PackedMatrix();
};

/// Packs rows x cols, given row by row exactly as in a file: rows * cols / traits.block * traits.block_bytes
/// bytes. rows >= 1; cols is a positive multiple of traits.block. done: called from any thread with long
/// ranges of the source that are not needed again; the last range may be left out. Throws std::bad_alloc.
PackedMatrix pack(Format format, size_t rows, size_t cols, const void* source,
                  ParallelFor parallel = serial_for, void (*done)(const void* rows, size_t bytes) = nullptr);

/// Bytes of one row of activations; a multiple of 64. Rows of a batch follow each other without gaps, 64-byte
/// aligned.
size_t activation_bytes(ActivationKind kind, size_t cols);

/// The matrix products of one kernel set. Every function gives the same bits in every set
/// (docs/arithmetic.md).
struct MatmulTable {
  const char* isa;

  /// Writes n_rows rows of activations. x: n_rows x cols, x_stride floats from row to row; cols a multiple of
  /// the kind's block (1, 32, 256). dst: n_rows * activation_bytes(kind, cols), 64-byte aligned. Any split of
  /// the rows over calls gives the same bytes.
  void (*quantize_rows)(ActivationKind kind, const float* x, size_t x_stride, size_t n_rows, size_t cols,
                        void* dst);

  /// out[t * out_stride + r] = sum over k of matrix[r][k] * activations[t][k], for t < n_rows and the rows r
  /// of the groups [group_begin, group_end), that is r in [16 * group_begin, min(16 * group_end, rows)).
  /// Then, where given: the sum + bias[r], then residual[t * residual_stride + r] + that. residual may be out
  /// itself. Any split of t and groups over calls and threads gives the same bits.
  void (*matmul)(const PackedMatrix& matrix, const void* activations, size_t n_rows, size_t group_begin,
                 size_t group_end, float* out, size_t out_stride, const float* bias, const float* residual,
                 size_t residual_stride);

  /// out[i * cols ...] = row rows[i] of the matrix, dequantized; 0 <= rows[i] < matrix.rows, which the caller
  /// has checked.
  void (*dequantize_rows)(const PackedMatrix& matrix, const int32_t* rows, size_t n, float* out);
};

// The tables are llamay_matmul_<set>: LLAMAY_DECLARE_TABLES(llamay::MatmulTable, matmul).

}  // namespace llamay
