// The table of a kernel set, made of the families of formats that are compiled apart; and dequantization of
// rows.
#include "formats/visit.hpp"
#include "matmul/kernels/output.hpp"
#include "matmul/kernels/unpacked.hpp"
#include "simd/isa.hpp"

extern "C" const llamay::BlockMatmuls LLAMAY_TABLE(matmul_blocks);
extern "C" const llamay::SuperBlockMatmuls LLAMAY_TABLE(matmul_super_blocks);
extern "C" const llamay::FewBitMatmuls LLAMAY_TABLE(matmul_few_bits);
extern "C" const llamay::FloatMatmuls LLAMAY_TABLE(matmul_floats);
extern "C" const llamay::Quantizers LLAMAY_TABLE(matmul_quantize);

namespace llamay {
namespace {

MatmulFunction function_for(Format format) {
  const BlockMatmuls& blocks = LLAMAY_TABLE(matmul_blocks);
  const SuperBlockMatmuls& super_blocks = LLAMAY_TABLE(matmul_super_blocks);
  const FewBitMatmuls& few_bits = LLAMAY_TABLE(matmul_few_bits);
  const FloatMatmuls& floats = LLAMAY_TABLE(matmul_floats);
  switch (format) {
    case Format::F32:
      return floats.f32;
    case Format::F16:
      return floats.f16;
    case Format::BF16:
      return floats.bf16;
    case Format::Q4_0:
      return blocks.q4_0;
    case Format::Q4_1:
      return blocks.q4_1;
    case Format::Q5_0:
      return blocks.q5_0;
    case Format::Q5_1:
      return blocks.q5_1;
    case Format::Q8_0:
      return blocks.q8_0;
    case Format::Q4_K:
      return super_blocks.q4_k;
    case Format::Q5_K:
      return super_blocks.q5_k;
    case Format::Q6_K:
      return super_blocks.q6_k;
    case Format::IQ4_NL:
      return blocks.iq4_nl;
    case Format::MXFP4:
      return blocks.mxfp4;
    case Format::Q2_K:
      return few_bits.q2_k;
    case Format::Q3_K:
      return few_bits.q3_k;
    case Format::IQ2_XXS:
    case Format::IQ2_XS:
    case Format::IQ2_S:
      return few_bits.iq2;
    case Format::IQ1_S:
    case Format::IQ1_M:
      return few_bits.iq1;
    case Format::IQ3_XXS:
      return few_bits.iq3_xxs;
    case Format::IQ3_S:
      return few_bits.iq3_s;
    case Format::IQ4_XS:
      return few_bits.iq4_xs;
    case Format::TQ1_0:
    case Format::TQ2_0:
      return few_bits.tq;
  }
  __builtin_unreachable();
}

void matmul(const PackedMatrix& matrix, const void* activations, size_t n_rows, size_t group_begin,
            size_t group_end, float* out, size_t out_stride, const float* bias, const float* residual,
            size_t residual_stride) {
  const Output o{out, out_stride, bias, residual, residual_stride, matrix.rows};
  function_for(matrix.format)(matrix, static_cast<const uint8_t*>(activations), n_rows, group_begin,
                              group_end, o);
}

void quantize_rows(ActivationKind kind, const float* x, size_t x_stride, size_t n_rows, size_t cols,
                   void* dst) {
  uint8_t* to = static_cast<uint8_t*>(dst);
  const Quantizers& quantizers = LLAMAY_TABLE(matmul_quantize);
  switch (kind) {
    case ActivationKind::f32:
      for (size_t t = 0; t < n_rows; ++t)
        __builtin_memcpy(to + t * round_up(cols * sizeof(float), 64), x + t * x_stride, cols * sizeof(float));
      return;
    case ActivationKind::q8_32:
      for (size_t t = 0; t < n_rows; ++t)
        quantizers.q8_32(x + t * x_stride, cols, to + t * round_up(cols / 32 * sizeof(Activation32), 64));
      return;
    case ActivationKind::q8_256:
      for (size_t t = 0; t < n_rows; ++t)
        quantizers.q8_256(x + t * x_stride, cols, to + t * round_up(cols / 256 * sizeof(Activation256), 64));
      return;
  }
}

/// One row of a block of sixteen: the formulas of docs/arithmetic.md.
template <Format format>
void widen_block(const ScalesOf<format>& s, int lane, const int* q, float* y) {
  constexpr int block = static_cast<int>(traits(format).block);
  const float d = scale_of_block<format>(s, lane);
  if constexpr (block == 32) {
    if constexpr (requires { s.m; }) {
      const float m = f16_to_f32(s.m[lane]);
      for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(q[i]) * d + m;
    } else {
      for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(q[i]) * d;
    }
  } else {
    for (int sub = 0; sub < block / 16; ++sub) {
      const float ds = d * static_cast<float>(scale_at(s, sub, lane));
      if constexpr (requires { s.dmin; }) {
        const float ms = f16_to_f32(s.dmin[lane]) * static_cast<float>(min_at(s, sub, lane));
        for (int i = 16 * sub; i < 16 * sub + 16; ++i) y[i] = ds * static_cast<float>(q[i]) - ms;
      } else {
        for (int i = 16 * sub; i < 16 * sub + 16; ++i) y[i] = ds * static_cast<float>(q[i]);
      }
    }
  }
}

template <Format format>
void dequantize_row(const PackedMatrix& m, size_t row, float* out) {
  constexpr int block = static_cast<int>(traits(format).block);
  const size_t blocks = m.cols / block;
  const uint8_t* start = m.data + row / 16 * m.group_bytes;
  const int lane = static_cast<int>(row % 16);
  int q[block];
  for (size_t b = 0; b < blocks; ++b) {
    const uint8_t* vectors = start + Layout<format>::vectors(b, blocks);
    for (int k = 0; k < block; ++k) q[k] = weight_at<format>(vectors, k, lane);
    const auto& scales = *reinterpret_cast<const ScalesOf<format>*>(start + Layout<format>::scales(b));
    widen_block<format>(scales, lane, q, out + b * block);
  }
}

template <class Value, class Widen>
void widen_row(const PackedMatrix& m, size_t row, float* out, const Widen& widen) {
  const Value* values = reinterpret_cast<const Value*>(m.data + row / 16 * m.group_bytes) + row % 16;
  for (size_t k = 0; k < m.cols; ++k) out[k] = widen(values[16 * k]);
}

void dequantize_one(const PackedMatrix& m, size_t row, float* out) {
  switch (m.format) {
    case Format::F32:
      return widen_row<float>(m, row, out, [](float value) { return value; });
    case Format::F16:
      return widen_row<uint16_t>(m, row, out, [](uint16_t value) { return f16_to_f32(value); });
    case Format::BF16:
      return widen_row<uint16_t>(m, row, out, [](uint16_t value) { return bf16_to_f32(value); });
    default:
      return visit_blocks(m.format,
                          [&]<Format f, class Block>(Tag<f, Block>) { dequantize_row<f>(m, row, out); });
  }
}

void dequantize_rows(const PackedMatrix& matrix, const int32_t* rows, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) dequantize_one(matrix, static_cast<size_t>(rows[i]), out + i * matrix.cols);
}

#define LLAMAY_TEXT_(a) #a
#define LLAMAY_TEXT(a) LLAMAY_TEXT_(a)
constexpr MatmulTable kTable = {LLAMAY_TEXT(LLAMAY_ISA), quantize_rows, matmul, dequantize_rows};

}  // namespace
}  // namespace llamay

extern "C" const llamay::MatmulTable LLAMAY_TABLE(matmul);
const llamay::MatmulTable LLAMAY_TABLE(matmul) = llamay::kTable;
