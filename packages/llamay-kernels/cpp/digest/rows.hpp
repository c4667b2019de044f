#pragma once

#include "dispatch.hpp"

namespace llamay {

/// What the kernels of cpp/ops compute over random and hostile inputs, as a checksum.
struct RowsDigest {
  const char* name;
  unsigned long long (*compute)(Isa isa);
};
extern const RowsDigest kRowsDigests[7];

}  // namespace llamay
