#pragma once

#include <string>

#include "matmul/matmul.hpp"

namespace llamay {

/// A packed weight and its name in the file: `llamay_kernels.Weight`.
struct Weight {
  PackedMatrix matrix;
  std::string name;
};

}  // namespace llamay
