#pragma once

#include "formats/format.hpp"

namespace llamay {

// Parts of quantize(), by format.

/// Q2_K to Q6_K.
void quantize_super_blocks(Format format, const float* values, size_t count, void* out);

/// IQ4_NL, IQ4_XS, MXFP4, TQ1_0, TQ2_0.
void quantize_codes(Format format, const float* values, size_t count, void* out);

/// IQ1, IQ2 and IQ3.
void quantize_grids(Format format, const float* values, size_t count, void* out);

}  // namespace llamay
