#pragma once

#include "formats/format.hpp"

namespace llamay {

/// Dequantizes count elements, a multiple of the format's block, by the formulas of docs/arithmetic.md.
void dequantize(Format format, const void* data, size_t count, float* out);

/// Rounds count finite values, a multiple of the format's block, to the format. The formats with one level of
/// scales, but for IQ4_NL, give the bytes of GGML's reference quantizers.
void quantize(Format format, const float* values, size_t count, void* out);

}  // namespace llamay
