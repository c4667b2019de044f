#pragma once

#include "formats/half.hpp"
#include "matmul/kernels/output.hpp"
#include "matmul/kernels/unpacked.hpp"
#include "matmul/vectors/vector.hpp"

#ifndef LLAMAY_VECTOR

// The portable kernel set: plain loops over the packed layout.

namespace llamay {
namespace {

inline void portable_store(const float* acc, size_t group, size_t t, const Output& o) {
  for (size_t row = 16 * group; row < o.rows && row < 16 * group + 16; ++row) {
    float y = acc[row % 16];
    if (o.bias) y = y + o.bias[row];
    if (o.residual) y = o.residual[t * o.residual_stride + row] + y;
    o.out[t * o.stride + row] = y;
  }
}

/// Step::add(integers, scales, activation, acc) takes one block of sixteen rows and one of activations.
template <Format format, class Step>
void portable_matmul(const PackedMatrix& m, const uint8_t* activations, size_t n_rows, size_t group_begin,
                     size_t group_end, const Output& o) {
  using Activation = typename Step::Activation;
  using Place = Layout<format>;
  constexpr int block = static_cast<int>(traits(format).block);
  constexpr size_t batch = 32;  // rows that share an unpacked block
  const size_t blocks = m.cols / block, stride = round_up(blocks * sizeof(Activation), 64);
  int16_t q[block][16];
  float acc[batch][16];
  for (size_t group = group_begin; group < group_end; ++group) {
    const uint8_t* start = m.data + group * m.group_bytes;
    for (size_t t = 0; t < n_rows; t += batch) {
      const size_t n = n_rows - t < batch ? n_rows - t : batch;
      for (size_t i = 0; i < n; ++i)
        for (float& a : acc[i]) a = 0;
      for (size_t b = 0; b < blocks; ++b) {
        for (int k = 0; k < block; ++k)
          for (int lane = 0; lane < 16; ++lane)
            q[k][lane] = static_cast<int16_t>(weight_at<format>(start + Place::vectors(b, blocks), k, lane));
        const auto& scales = *reinterpret_cast<const typename Place::Scales*>(start + Place::scales(b));
        for (size_t i = 0; i < n; ++i)
          Step::add(q, scales, reinterpret_cast<const Activation*>(activations + (t + i) * stride)[b],
                    acc[i]);
      }
      for (size_t i = 0; i < n; ++i) portable_store(acc[i], group, t + i, o);
    }
  }
}

}  // namespace
}  // namespace llamay
#endif
