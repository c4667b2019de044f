#pragma once

#include "dispatch.hpp"

namespace llamay {

/// Checksums of the results of the kernels of cpp/ops over random and hostile inputs.
struct RowsDigest {
  const char* name;
  unsigned long long (*compute)(Isa isa);
};
extern const RowsDigest kRowsDigests[7];

}  // namespace llamay
