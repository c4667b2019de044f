#pragma once

#include <cstdint>
#include <vector>

#include "llamay/token_constraint.h"
#include "threads/threads.hpp"

namespace llamay {

/// One constraint of a step and its mask; then the result of filling the mask.
struct MaskRow {
  const llamay_token_constraint* constraint;
  uint32_t* mask;
  uint32_t words;
  int status = LLAMAY_TC_OK;
  uint32_t allowed = 0;  // number of allowed tokens
  uint32_t going = 0;    // number of allowed tokens that do not end the text
  double seconds = 0;
};

/// Fills each mask, on several threads where there are several masks and a pool is given. `ends` has the bits
/// of the tokens that end a text, in `ends_n` words. A failure in one row affects no other.
void fill_masks(std::vector<MaskRow>& rows, const uint32_t* ends, std::size_t ends_n, Threads* threads);

}  // namespace llamay
