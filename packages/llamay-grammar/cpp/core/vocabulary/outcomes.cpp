#include "vocabulary/outcomes.h"

#include <utility>

namespace llamay::grammar {

Outcome Outcomes::follow(uint64_t lead, uint64_t rest, uint32_t from, uint64_t& read) {
  Outcome o;
  uint64_t got_to = 0;
  read = ~uint64_t{0};
  if (seen_.empty()) seen_.assign(l_.n_states(), 0);
  now_.assign(1, from);
  bool inside = true;
  for (uint32_t depth = 1; depth <= kMost && work_ < 2 * kMaxWork; ++depth) {
    next_.clear();
    ++mark_;
    bool unlimited = k_.max == kInf;
    for (uint32_t s : now_) {
      const uint32_t* row = &l_.table[size_t{s} * l_.n_classes];
      for (uint64_t left = depth == 1 ? lead : rest; left != 0; left &= left - 1) {
        const uint32_t t = row[__builtin_ctzll(left)];
        ++work_;
        if (!is_open(l_, k_, t, depth)) {
          inside = false;
          continue;
        }
        got_to |= left & -left;
        if (seen_[t] == mark_) continue;
        seen_[t] = mark_;
        unlimited = unlimited && (k_.min == 0 || l_.infinite(t));
        next_.push_back(t);
      }
    }
    if (next_.empty()) {
      o.dead = depth;
      read = got_to;
      break;
    }
    if (inside) o.inside = depth;
    // From this depth on the set of states stays the same.
    if (next_ == now_ && unlimited && (depth > 1 || lead == rest)) {
      if (inside) o.inside = kNever;
      read = got_to;
      break;
    }
    if (!inside && next_.size() > kMostStates) break;
    std::swap(now_, next_);
  }
  return o;
}

void Outcomes::judge() {
  verdicts_.resize(kinds_.kinds.size());
  for (uint32_t i = 0; i < verdicts_.size(); ++i) {
    const GroupKinds::Kind& kind = kinds_.kinds[i];
    if (kind.tokens < kWorthIt || work_ >= kMaxWork) break;
    uint64_t read = 0;
    verdicts_[i].outcome = follow(kind.lead, kind.rest, k_.state, read);
    if (((kind.lead | kind.rest) & ~read) == 0) continue;
    for (uint32_t b = 0; b < kClassBroken; ++b)
      if (kinds_.touched[b] != 0 && (kinds_.touched[b] & read) == 0) verdicts_[i].unread |= uint64_t{1} << b;
  }
}

bool Outcomes::loops(uint64_t classes, uint32_t state) {
  if (k_.max != kInf || (k_.min > 0 && !l_.all_infinite) || work_ >= 2 * kMaxWork) return false;
  for (size_t i = asked_.size(); i-- > 0;)
    if (asked_[i].classes == classes && asked_[i].state == state) return asked_[i].loops;
  uint64_t read;
  asked_.push_back({classes, state, follow(classes, classes, state, read).inside == kNever});
  return asked_.back().loops;
}

}  // namespace llamay::grammar
