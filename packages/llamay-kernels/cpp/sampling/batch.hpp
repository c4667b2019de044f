#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sampling/sampler.hpp"
#include "threads/threads.hpp"

namespace llamay {

/// One row of a step: what to choose from, then the token, or -1 and why there is none.
struct BatchRow {
  Sampler* sampler;
  Choice choice;
  int64_t token;
  std::string error;
};

/// Chooses a token for each row, on several threads where that is worth it. What goes wrong in a row is told
/// in it, and touches no other. Throws std::invalid_argument if two rows would teach one mirostat at once.
void sample_rows(std::vector<BatchRow>& rows, Threads* threads);

}  // namespace llamay
