#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sampling/sampler.hpp"
#include "threads/threads.hpp"

namespace llamay {

/// One row of a step: its choice, then the chosen token, or -1 and an error message.
struct BatchRow {
  Sampler* sampler;
  Choice choice;
  int64_t token;
  std::string error;
};

/// Chooses a token for each row, on several threads where that is worth it. An error in a row is stored in
/// that row, and affects no other. Throws std::invalid_argument if two rows have the same mirostat sampler.
void sample_rows(std::vector<BatchRow>& rows, Threads* threads);

}  // namespace llamay
