// The table of a kernel set, over the families that are compiled beside it; and reading rows back.
#include "../formats/half.hpp"
#include "../simd/isa.hpp"
#include "output.hpp"
#include "unpacked.hpp"

extern "C" const llamay::BlockMatmuls LLAMAY_TABLE(matmul_blocks);
extern "C" const llamay::SuperBlockMatmuls LLAMAY_TABLE(matmul_super_blocks);
extern "C" const llamay::FloatMatmuls LLAMAY_TABLE(matmul_floats);
extern "C" const llamay::Quantizers LLAMAY_TABLE(matmul_quantize);

namespace llamay {
namespace {

MatmulFunction function_for(Format format) {
  const BlockMatmuls& blocks = LLAMAY_TABLE(matmul_blocks);
  const SuperBlockMatmuls& super_blocks = LLAMAY_TABLE(matmul_super_blocks);
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

void widen_block(const ScaleOnly& s, int lane, const int* q, float* y) {
  const float d = f16_to_f32(s.d[lane]);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(q[i]) * d;
}
void widen_block(const ScaleAndMin& s, int lane, const int* q, float* y) {
  const float d = f16_to_f32(s.d[lane]), m = f16_to_f32(s.m[lane]);
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(q[i]) * d + m;
}
void widen_block(const TwoLevels& levels, int lane, const int* q, float* y) {
  const float d = f16_to_f32(levels.d[lane]), dmin = f16_to_f32(levels.dmin[lane]);
  for (int s = 0; s < 8; ++s) {
    const float ds = d * static_cast<float>(levels.scale[s][lane]);
    const float ms = dmin * static_cast<float>(levels.min[s / 2][lane][s % 2]);
    for (int i = 32 * s; i < 32 * s + 32; ++i) y[i] = ds * static_cast<float>(q[i]) - ms;
  }
}
void widen_block(const SignedScales& levels, int lane, const int* q, float* y) {
  const float d = f16_to_f32(levels.d[lane]);
  for (int s = 0; s < 16; ++s) {
    const float ds = d * static_cast<float>(levels.scale[s][lane]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) y[i] = ds * static_cast<float>(q[i]);
  }
}

template <Format format, class Scales>
void dequantize_row(const PackedMatrix& m, size_t row, float* out) {
  constexpr int block = static_cast<int>(traits(format).block);
  const size_t blocks = m.cols / block;
  const uint8_t* vectors = m.data + row / 16 * m.group_bytes;
  const Scales* scales = reinterpret_cast<const Scales*>(vectors + blocks * vector_bytes(format));
  const int lane = static_cast<int>(row % 16);
  int q[block];
  for (size_t b = 0; b < blocks; ++b) {
    for (int k = 0; k < block; ++k) q[k] = weight_at<format>(vectors + b * vector_bytes(format), k, lane);
    widen_block(scales[b], lane, q, out + b * block);
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
    case Format::Q4_0:
      return dequantize_row<Format::Q4_0, ScaleOnly>(m, row, out);
    case Format::Q4_1:
      return dequantize_row<Format::Q4_1, ScaleAndMin>(m, row, out);
    case Format::Q5_0:
      return dequantize_row<Format::Q5_0, ScaleOnly>(m, row, out);
    case Format::Q5_1:
      return dequantize_row<Format::Q5_1, ScaleAndMin>(m, row, out);
    case Format::Q8_0:
      return dequantize_row<Format::Q8_0, ScaleOnly>(m, row, out);
    case Format::Q4_K:
      return dequantize_row<Format::Q4_K, TwoLevels>(m, row, out);
    case Format::Q5_K:
      return dequantize_row<Format::Q5_K, TwoLevels>(m, row, out);
    case Format::Q6_K:
      return dequantize_row<Format::Q6_K, SignedScales>(m, row, out);
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
