#pragma once

#include <string>

#include "matmul.hpp"

namespace llamay {

/// A packed weight and what the file calls it: `llamay_kernels.Weight`.
struct Weight {
  PackedMatrix matrix;
  std::string name;
};

}  // namespace llamay
