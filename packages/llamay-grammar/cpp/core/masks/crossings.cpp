#include "masks/crossings.h"

#include "machine/promotion.h"

namespace llamay::grammar {

CrossingList::~CrossingList() {
  for (Crossing& c : list_) release(c.top);
}

const Crossing* CrossingList::find(Mode mode, const Entry* entry, const Frame* top) const {
  for (const Crossing& c : list_)
    if (c.mode == mode && c.entry.get() == entry && c.top == top) return &c;
  return nullptr;
}

void CrossingList::add(Mode mode, EntryPtr entry, const Frame* top, std::vector<uint32_t> tokens) {
  retain(top);
  Crossing c{mode, std::move(entry), top, std::move(tokens)};
  if (list_.size() < kKept) {
    list_.push_back(std::move(c));
    return;
  }
  release(list_[next_].top);
  list_[next_] = std::move(c);
  next_ = (next_ + 1) % kKept;
}

}  // namespace llamay::grammar
