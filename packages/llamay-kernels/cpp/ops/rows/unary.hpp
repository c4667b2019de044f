#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernel_tables.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Functions of one value. docs/arithmetic.md says what each computes.
enum class UnaryKind : uint8_t {
  silu,
  gelu_tanh,
  sigmoid,
  tanh,
  relu,
  relu2,
  gelu_erf,
  gelu_quick,
  softplus,
  exp
};
/// The values of a record's `kind` and `act`, in the enumeration's order.
inline constexpr const char* kUnaryNames[] = {"silu",  "gelu_tanh", "sigmoid",    "tanh",     "relu",
                                              "relu2", "gelu_erf",  "gelu_quick", "softplus", "exp"};

struct UnaryTable {
  /// out[i] = f(x[i]) for i < n. out may be x.
  void (*apply)(UnaryKind kind, const float* x, float* out, size_t n);
  /// out[i] = f(a[i]) * b[i] for i < n: the activation of a gate times the gated values. out may be a or b.
  void (*apply_mul)(UnaryKind kind, const float* a, const float* b, float* out, size_t n);
  /// Functions that some of the kinds consist of, for tests of their accuracy. log1p: x must not be negative.
  void (*erf)(const float* x, float* out, size_t n);
  void (*log1p)(const float* x, float* out, size_t n);
};

}  // namespace llamay

LLAMAY_KERNEL_TABLES(UnaryTable, unary);
