#pragma once

#include "sampling/sampler.hpp"

namespace llamay {

/// Checks all options. Throws std::invalid_argument naming the option that is out of range, and the range.
void check(const SamplerOptions& options);

}  // namespace llamay
