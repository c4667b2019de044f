#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "sampling/stages.hpp"

namespace llamay {

/// How many of the last tokens an option that allows `last` of them (-1: all) means.
inline std::size_t window(const Moment& moment, int64_t last) {
  return last < 0 ? moment.n : std::min(moment.n, static_cast<std::size_t>(last));
}

/// A token of the past, which may come from anywhere. Throws std::invalid_argument.
inline uint32_t known(int32_t token, const Candidates& candidates) {
  if (token < 0 || static_cast<std::size_t>(token) >= candidates.vocabulary())
    throw std::invalid_argument("the history holds token " + std::to_string(token) +
                                " but the vocabulary has " + std::to_string(candidates.vocabulary()));
  return static_cast<uint32_t>(token);
}

/// A number for each token, all 0; only those that were touched cost anything.
class PerToken {
 public:
  void begin(std::size_t vocabulary) {
    for (const uint32_t token : touched_) numbers_[token] = 0;
    touched_.clear();
    if (numbers_.size() < vocabulary) numbers_.resize(vocabulary);
  }
  /// To be changed only to more than 0.
  uint32_t& operator[](uint32_t token) {
    if (numbers_[token] == 0) touched_.push_back(token);
    return numbers_[token];
  }
  const std::vector<uint32_t>& touched() const { return touched_; }

 private:
  std::vector<uint32_t> numbers_, touched_;
};

}  // namespace llamay
