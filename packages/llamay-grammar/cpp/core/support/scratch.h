// An arena: memory that is given back as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace llamay::grammar {

// The memory of one mask or one token; `reset` gives all of it back.
class Scratch {
 public:
  void* allocate(size_t n) {
    n = (n + 7) & ~size_t{7};
    if (n > left_) grow(n);
    char* p = at_;
    at_ += n, left_ -= n, used_ += n;
    return p;
  }
  void reset();
  size_t used() const { return used_; }
  uint64_t searched = 0;  // steps of the searches for items that differ, in this mask or token

 private:
  void grow(size_t n);
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::vector<size_t> sizes_;
  size_t block_ = 0;
  char* at_ = nullptr;
  size_t left_ = 0, used_ = 0;
};

}  // namespace llamay::grammar
