#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace llamay {

/// A file or vocabulary that cannot be used: what is wrong, where, and what the reader of the message can do.
class FormatError : public std::exception {
 public:
  static constexpr uint64_t kNowhere = UINT64_MAX;

  FormatError(std::string problem, std::string hint, uint64_t offset = kNowhere)
      : problem_(std::move(problem)), hint_(std::move(hint)), offset_(offset) {}

  const char* what() const noexcept override { return problem_.c_str(); }
  const std::string& problem() const { return problem_; }
  const std::string& hint() const { return hint_; }
  uint64_t offset() const { return offset_; }  ///< byte in the file, or kNowhere

 private:
  std::string problem_;
  std::string hint_;
  uint64_t offset_;
};

}  // namespace llamay
