#pragma once

#include "matmul/matmul.hpp"

namespace llamay {

/// The destination of the products, and the bias and residual that are added to them.
struct Output {
  float* out;
  size_t stride;
  const float* bias;      // or null
  const float* residual;  // or null
  size_t residual_stride;
  size_t rows;  // rows of the matrix: the last group may have fewer than sixteen
};

/// One format's product over all rows of activations and the groups [group_begin, group_end).
using MatmulFunction = void (*)(const PackedMatrix&, const uint8_t* activations, size_t n_rows,
                                size_t group_begin, size_t group_end, const Output&);

// The families are compiled apart, so that a kernel set builds in parallel. Each exports one table.
struct BlockMatmuls {
  MatmulFunction q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, mxfp4;
};
struct SuperBlockMatmuls {
  MatmulFunction q4_k, q5_k, q6_k;
};
struct FewBitMatmuls {  // one function for all formats with the same layout and codebook
  MatmulFunction q2_k, q3_k, iq2, iq1, iq3_xxs, iq3_s, iq4_xs, tq;
};
struct FloatMatmuls {
  MatmulFunction f32, f16, bf16;
};
struct Quantizers {
  void (*q8_32)(const float* x, size_t cols, void* dst);
  void (*q8_256)(const float* x, size_t cols, void* dst);
};

}  // namespace llamay
