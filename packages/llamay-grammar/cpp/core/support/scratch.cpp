#include "support/scratch.h"

#include <algorithm>

namespace llamay::grammar {

void Scratch::grow(size_t n) {
  size_t next = at_ == nullptr ? 0 : block_ + 1;
  while (next < blocks_.size() && sizes_[next] < n) ++next;
  if (next >= blocks_.size()) {
    size_t size = std::max<size_t>(n, 1 << 16);
    blocks_.push_back(std::make_unique<char[]>(size));
    sizes_.push_back(size);
    next = blocks_.size() - 1;
  }
  block_ = next;
  at_ = blocks_[next].get(), left_ = sizes_[next];
}

void Scratch::reset() {
  if (blocks_.size() > 64) blocks_.resize(1), sizes_.resize(1);
  block_ = 0, used_ = 0, searched = 0;
  at_ = blocks_.empty() ? nullptr : blocks_[0].get();
  left_ = blocks_.empty() ? 0 : sizes_[0];
}

}  // namespace llamay::grammar
