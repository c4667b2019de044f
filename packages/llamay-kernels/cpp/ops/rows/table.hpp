#pragma once

#include <stddef.h>
#include <stdint.h>

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Operations from one row, or from two, to a row of the same width.
enum class Elementwise : uint8_t { add, mul, scale, softcap, copy };

/// Row operations, one table for each kernel set; docs/arithmetic.md has the order of work of each.
struct OpsTable {
  /// The set that the compiler's own macros report, so that a test sees that forcing a set took effect.
  const char* compiled_for;

  /// out[i] = op(a[i], b[i]) or op(a[i]) for i < n; `by` is scale's factor or softcap's cap. out
  /// may be a or b.
  void (*elementwise)(Elementwise op, const float* a, const float* b, float by, float* out, size_t n);

  /// For each of `groups` groups: `width` values of x, divided by their root mean square and multiplied by w
  /// unless that is null. out may be x. Groups with weights of their own need a call each.
  void (*rms_norm)(const float* x, const float* w, size_t groups, size_t width, float eps, float* out);

  /// For each row: `width` values of x less their mean, divided by their standard deviation, times w, plus b,
  /// unless these are null. out may be x.
  void (*layer_norm)(const float* x, const float* w, const float* b, size_t rows, size_t width, float eps,
                     float* out);

  /// Rotates pairs (i, i + half) of each of `heads` heads of `head_dim` values. table: cosines, then sines,
  /// half values each. out may be x.
  void (*rope_half)(const float* x, const float* table, size_t heads, size_t head_dim, size_t half,
                    float* out);
  /// Like rope_half, for pairs (2i, 2i + 1); the table holds each cosine twice, then each sine, its first
  /// copy negated.
  void (*rope_pairs)(const float* x, const float* table, size_t heads, size_t head_dim, size_t half,
                     float* out);
};

}  // namespace llamay
