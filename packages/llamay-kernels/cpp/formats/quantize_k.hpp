#pragma once

#include "format.hpp"

namespace llamay {

/// Q4_K, Q5_K and Q6_K: quantize() for the formats with two levels of scales.
void quantize_super_blocks(Format format, const float* values, size_t count, void* out);

}  // namespace llamay
