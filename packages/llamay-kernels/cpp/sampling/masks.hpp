#pragma once

#include <cstdint>
#include <vector>

#include "llamay/token_constraint.h"
#include "threads/threads.hpp"

namespace llamay {

/// One constraint of a step, and where its mask goes; then what the mask says.
struct MaskRow {
  const llamay_token_constraint* constraint;
  uint32_t* mask;
  uint32_t words;
  int status = LLAMAY_TC_OK;
  uint32_t allowed = 0;  // tokens
  uint32_t going = 0;    // of these, those that do not end the text
  double seconds = 0;
};

/// Fills each mask, with the help of threads where there are several and they are given. `ends` has the bit
/// of every token that ends a text, `ends_n` words of it. What fails in one row touches no other.
void fill_masks(std::vector<MaskRow>& rows, const uint32_t* ends, std::size_t ends_n, Threads* threads);

}  // namespace llamay
