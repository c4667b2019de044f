#include "vocabulary/exit_classes.h"

#include <mutex>
#include <string_view>

namespace llamay::grammar {

namespace {

// The classes of bytes of each class of the automaton.
std::vector<uint64_t> columns(const Language& l) {
  std::vector<uint64_t> column(l.n_classes, 0);
  for (uint32_t c = 0; c < 128; ++c)
    column[l.ascii_class[c]] |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
  for (size_t i = 0; i < l.range_start.size(); ++i) {
    const uint32_t lo = l.range_start[i],
                   hi = i + 1 < l.range_start.size() ? l.range_start[i + 1] - 1 : kMaxCodePoint;
    for (uint32_t j = 0; j < std::size(kLeadClasses); ++j)
      if (hi >= kLeadClasses[j].lo && lo <= kLeadClasses[j].hi)
        column[l.range_class[i]] |= uint64_t{1} << (kFirstLeadClass + j);
  }
  return column;
}

void find_exit_classes(const Language& l) {
  const size_t n = l.n_states(), k = l.n_classes;
  const std::vector<uint64_t> column = columns(l);
  // The limit of work. Beyond the limit, every class counts as a class that may leave the language.
  constexpr size_t kMaxWork = 300000;
  auto first = [&](auto ends) {
    std::vector<uint64_t> out(n, 0);
    for (size_t s = 0; s < n; ++s)
      for (size_t c = 0; c < k; ++c)
        if (ends(l.table[s * k + c])) out[s] |= column[c];
    return out;
  };
  const std::vector<uint64_t> everything(n, ~uint64_t{0});
  // The classes of at most kNear steps.
  auto near = [&](std::vector<uint64_t> out) {
    if (n * k * kNear > kMaxWork) return everything;
    for (uint32_t round = 0; round < kNear; ++round) {
      const std::vector<uint64_t> before = out;
      for (size_t s = 0; s < n; ++s)
        for (size_t c = 0; c < k; ++c)
          if (uint32_t t = l.table[s * k + c]; t != kDead) out[s] |= before[t];
      if (out == before) break;
    }
    return out;
  };
  // The classes for any number of steps. Most transitions lead to states with greater numbers, so a pass in
  // descending order converges soon.
  auto far = [&](std::vector<uint64_t> out) {
    size_t work = 0;
    for (bool more = true; more;) {
      more = false;
      if ((work += n * k) > kMaxWork) return everything;
      for (size_t s = n; s-- > 0;) {
        uint64_t all = out[s];
        for (size_t c = 0; c < k; ++c)
          if (uint32_t t = l.table[s * k + c]; t != kDead) all |= out[t];
        more |= all != out[s];
        out[s] = all;
      }
    }
    return out;
  };
  l.exit_classes = far(first([&](uint32_t t) { return t == kDead || !l.infinite(t); }));
  l.near_exit_classes = near(first([](uint32_t t) { return t == kDead; }));
}

class JointSearch {
 public:
  JointSearch(const Language& l, uint32_t s) : l_(l), s_(s), column_(columns(l)), seen_(l.n_states(), 0) {}

  JointClasses find(uint64_t allowed) {
    uint64_t classes = 0;
    const uint64_t live = ~dead(s_) & allowed;
    for (char c : std::string_view("azAZ059")) classes |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
    classes &= live;
    const uint32_t steps = classes ? lasts(classes) : 0;
    for (uint32_t b = 0; b < 64 && steps > 0; ++b) {
      const uint64_t with = classes | uint64_t{1} << b;
      if (with != classes && (live >> b & 1) && lasts(with) >= steps) classes = with;
    }
    return {classes, steps};
  }

 private:
  static constexpr uint32_t kMost = 24;
  static constexpr size_t kMaxWork = 200000;
  const Language& l_;
  const uint32_t s_;
  std::vector<uint64_t> column_;
  std::vector<uint32_t> seen_, now_, next_;
  uint32_t mark_ = 0;
  size_t work_ = 0;

  uint64_t dead(uint32_t state) const {
    uint64_t out = 0;
    for (uint32_t c = 0; c < l_.n_classes; ++c)
      if (l_.table[size_t{state} * l_.n_classes + c] == kDead) out |= column_[c];
    return out;
  }
  // The number of bytes of these classes that certainly stay inside.
  uint32_t lasts(uint64_t of) {
    now_.assign(1, s_);
    seen_[s_] = ++mark_;
    for (uint32_t depth = 0; depth < kMost; ++depth) {
      next_.clear();
      for (uint32_t state : now_) {
        if ((work_ += 2 * l_.n_classes) > kMaxWork || (dead(state) & of) != 0) return depth;
        for (uint32_t c = 0; c < l_.n_classes; ++c) {
          const uint32_t t = l_.table[size_t{state} * l_.n_classes + c];
          if (t == kDead || !(column_[c] & of) || seen_[t] == mark_) continue;
          seen_[t] = mark_;
          next_.push_back(t);
        }
      }
      if (next_.empty()) return kMost;
      std::swap(now_, next_);
    }
    return kMost;
  }
};

}  // namespace

uint64_t self_loop_classes(const Language& l, uint32_t s, bool json) {
  if (l.trie) return 0;
  uint64_t out = 0, bad = 0;
  for (uint32_t c = 0; c < 128; ++c) {
    bool stays = l.next(s, c) == s && !(json && (c < 32 || c == '"' || c == '\\'));
    (stays ? out : bad) |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
  }
  out &= ~bad;
  for (uint32_t k = 0; k < std::size(kLeadClasses); ++k) {
    bool stays = true;
    for (size_t i = 0; i < l.range_start.size() && stays; ++i) {
      uint32_t lo = l.range_start[i],
               hi = i + 1 < l.range_start.size() ? l.range_start[i + 1] - 1 : kMaxCodePoint;
      if (hi < kLeadClasses[k].lo || lo > kLeadClasses[k].hi) continue;
      stays = l.table[size_t{s} * l.n_classes + l.range_class[i]] == s;
    }
    if (stays) out |= uint64_t{1} << (kFirstLeadClass + k);
  }
  return out;
}

uint64_t exit_classes(const Language& l, uint32_t s, uint32_t length, uint32_t min) {
  std::call_once(l.exit_classes_made, find_exit_classes, l);
  return uint64_t{1} << kClassBroken |
         (min == 0 && length <= kNear ? l.near_exit_classes[s] & l.exit_classes[s] : l.exit_classes[s]);
}

JointClasses joint_classes(const Language& l, uint32_t s, uint64_t allowed) {
  return JointSearch(l, s).find(allowed);
}

}  // namespace llamay::grammar
