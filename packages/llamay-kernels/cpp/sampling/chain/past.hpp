#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "sampling/chain/stages.hpp"

namespace llamay {

/// The number of past tokens that an option with `last` (-1: all) looks at.
inline std::size_t window(const StageInput& input, int64_t last) {
  return last < 0 ? input.n : std::min(input.n, static_cast<std::size_t>(last));
}

/// A token of the history, checked against the vocabulary. Throws std::invalid_argument.
inline uint32_t checked_token(int32_t token, const Candidates& candidates) {
  if (token < 0 || static_cast<std::size_t>(token) >= candidates.vocabulary())
    throw std::invalid_argument("the history holds token " + std::to_string(token) +
                                " but the vocabulary has " + std::to_string(candidates.vocabulary()));
  return static_cast<uint32_t>(token);
}

/// A number for each token, 0 at first; the cost depends on the touched tokens only.
class PerToken {
 public:
  void begin(std::size_t vocabulary) {
    for (const uint32_t token : touched_) numbers_[token] = 0;
    touched_.clear();
    if (numbers_.size() < vocabulary) numbers_.resize(vocabulary);
  }
  /// May only be changed to a number above 0.
  uint32_t& operator[](uint32_t token) {
    if (numbers_[token] == 0) touched_.push_back(token);
    return numbers_[token];
  }
  const std::vector<uint32_t>& touched() const { return touched_; }

 private:
  std::vector<uint32_t> numbers_, touched_;
};

}  // namespace llamay
