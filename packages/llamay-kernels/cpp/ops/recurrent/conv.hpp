#pragma once

#include <stddef.h>

#include "kernel_tables.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// A causal depthwise convolution: y_t[c] = bias[c] + sum over j < taps of weight[c][j] x_{t - taps + 1 +
/// j}[c].
struct Conv {
  size_t taps, channels;  // both at least 1
  const float* weight;    // (taps, channels), as pack_conv writes it
  const float* bias;      // (channels); null: none
};

/// Rows of one text, in order.
struct ConvRows {
  const float* x;  // the first row, all channels
  size_t x_stride;
  const float* carried;  // (taps - 1, channels): the inputs before the first row, oldest first; null: zeros
  float* out;            // must not be x
  size_t out_stride;
};

struct ConvTable {
  /// Computes out of n rows for channels [from, to). Threads may share the channels of the same rows.
  void (*rows)(const Conv& conv, const ConvRows& rows, size_t n, size_t from, size_t to);
};

/// Transposes a weight (channels, taps), as files have it, to (taps, channels).
void pack_conv(const float* weight, size_t channels, size_t taps, float* packed);

/// Writes the state after the first n of the rows, n >= 0: the last taps - 1 inputs, oldest first, to state
/// (taps - 1, channels), channels [from, to) only. state may be rows.carried, and rows.carried null.
void conv_state(const Conv& conv, const ConvRows& rows, size_t n, size_t from, size_t to, float* state);

}  // namespace llamay

LLAMAY_KERNEL_TABLES(ConvTable, conv);
