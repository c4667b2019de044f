#include "program/feasible.h"

#include <algorithm>
#include <array>
#include <set>

#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

bool bit(const std::vector<uint64_t>& v, uint32_t i) { return v[i / 64] >> (i % 64) & 1; }
void set(std::vector<uint64_t>& v, uint32_t i) { v[i / 64] |= uint64_t{1} << (i % 64); }
void clear(std::vector<uint64_t>& v, uint32_t i) { v[i / 64] &= ~(uint64_t{1} << (i % 64)); }

// A search for a choice for every condition of an object: a name is left out, or a member has a value that
// meets the condition.
class Search {
 public:
  Search(const Program& p, const ObjectAtom& a, const uint64_t* seen, uint64_t undeclared, uint32_t gained)
      : p_(p), a_(a), undeclared_(undeclared), gained_(gained) {
    seen_.assign(seen, seen + a.words());
    absent_.assign(a.words(), 0);
    need_.assign(a.words(), 0);
    for (uint32_t w = 0; w < a.words(); ++w) need_[w] = seen_[w] | a.required[w];
    need_ = with_dependencies(a, std::move(need_));
    for (uint32_t w = 0; w < a.words(); ++w) count_ += static_cast<uint64_t>(__builtin_popcountll(seen_[w]));
    count_ += undeclared;
    closed_.assign(a.words(), 0);
    if (!p.schema_order) return;
    // Declared names come in their order, and before all other names.
    uint32_t last = undeclared > 0 ? kNone : 0;
    for (uint32_t k = 0; k < a.known.size(); ++k)
      if (bit(seen_, k)) last = std::max(last, a.rank[k]);
    for (uint32_t k = 0; k < a.known.size(); ++k)
      if (!bit(seen_, k) && a.rank[k] < last) set(closed_, k);
  }

  bool run() { return choose(0, 0, gained_); }

 private:
  const Program& p_;
  const ObjectAtom& a_;
  uint64_t undeclared_, count_ = 0;
  uint32_t gained_;
  std::vector<uint64_t> seen_, absent_, need_;
  std::vector<uint64_t> closed_;                        // names that can no longer come
  std::vector<std::pair<uint32_t, uint32_t>> witness_;  // name, conditions it has to meet
  uint32_t steps_ = 0;
  bool found_ = false;
  std::vector<uint32_t> gains_;

  bool possible(const Option& o) const { return p_.nodes[o.node].possible; }
  bool fills(const Slot& s, uint32_t gain) const {
    return std::any_of(s.begin(), s.end(),
                       [&](const Option& o) { return (o.gain & gain) == gain && possible(o); });
  }

  // The sets of conditions that one undeclared member can meet, without those that are part of another set.
  // There are always further undeclared names for each of them: those of few names count as declared.
  const std::vector<uint32_t>& gains() {
    if (found_) return gains_;
    found_ = true;
    if (!a_.rest) return gains_;
    for (auto& s : a_.rest_slots)
      for (const Option& o : s)
        if (o.gain && possible(o)) gains_.push_back(o.gain);
    std::sort(gains_.begin(), gains_.end());
    gains_.erase(std::unique(gains_.begin(), gains_.end()), gains_.end());
    const std::vector<uint32_t> all = gains_;
    std::erase_if(gains_, [&](uint32_t g) {
      return std::any_of(all.begin(), all.end(), [&](uint32_t x) { return x != g && (x & g) == g; });
    });
    return gains_;
  }

  bool ends(uint64_t others) {
    std::vector<uint64_t> need = need_;
    for (auto& [name, gain] : witness_) set(need, name);
    need = with_dependencies(a_, std::move(need));
    uint64_t missing = 0, free = 0;
    for (uint32_t k = 0; k < a_.known.size(); ++k) {
      if (bit(seen_, k)) continue;
      uint32_t gain = 0;
      for (auto& [name, g] : witness_)
        if (name == k) gain |= g;
      bool can = bit(a_.possible, k) && !bit(closed_, k) && fills(a_.known[k], gain);
      if (bit(need, k)) {
        if (!can || bit(absent_, k)) return false;
        ++missing;
      } else if (can && !bit(absent_, k)) {
        ++free;
      }
    }
    if (count_ + missing + others > a_.max) return false;
    if (count_ + missing + free < a_.min) {
      uint64_t left = 0;
      if (a_.rest &&
          std::any_of(a_.rest_slots.begin(), a_.rest_slots.end(), [&](auto& s) { return fills(s, 0); })) {
        if (a_.rest->infinite(0)) return true;
        left = a_.rest->count_words(0) - std::min(a_.rest->count_words(0), undeclared_);
      }
      if (count_ + missing + free + left < a_.min) return false;
    }
    return true;
  }

  // `met` has the conditions that members seen, and undeclared members chosen so far, meet.
  bool choose(uint32_t c, uint64_t others, uint32_t met) {
    if (++steps_ > 200000)
      throw CompileError("budget", "", "the conditions on one object are too many to be decided");
    while (c < a_.clauses.size() && (met >> c & 1)) ++c;
    if (c == a_.clauses.size()) return ends(others);
    for (uint32_t n : a_.clauses[c].absent) {
      if (bit(seen_, n) || bit(need_, n) ||
          std::any_of(witness_.begin(), witness_.end(), [&](auto& w) { return w.first == n; }))
        continue;
      bool already = bit(absent_, n);
      set(absent_, n);
      if (choose(c + 1, others, met)) return true;
      if (!already) clear(absent_, n);
      if (already) return false;  // the condition was met before, and the other conditions failed
    }
    for (uint32_t n : a_.clauses[c].present) {
      if (bit(seen_, n) || bit(absent_, n) || bit(closed_, n) || !bit(a_.possible, n)) continue;
      witness_.emplace_back(n, 1u << c);
      uint32_t gain = 0;
      for (auto& [name, g] : witness_)
        if (name == n) gain |= g;
      if (fills(a_.known[n], gain) && choose(c + 1, others, met)) return true;
      witness_.pop_back();
    }
    for (const uint32_t gain : gains()) {
      if (!(gain >> c & 1)) continue;
      if (choose(c + 1, others + 1, met | gain)) return true;
      if (a_.max == UINT64_MAX) return false;  // how many undeclared members there are made no difference
    }
    return false;
  }
};

}  // namespace

std::vector<uint64_t> with_dependencies(const ObjectAtom& a, std::vector<uint64_t> bits) {
  for (bool more = !a.depends.empty(); more;) {
    more = false;
    for (auto& [name, needs] : a.depends)
      if (bit(bits, name))
        for (size_t w = 0; w < bits.size(); ++w)
          if (needs[w] & ~bits[w]) bits[w] |= needs[w], more = true;
  }
  return bits;
}

bool object_feasible(const Program& p, const ObjectAtom& a, const uint64_t* seen, uint64_t undeclared,
                     uint32_t gained) {
  return Search(p, a, seen, undeclared, gained).run();
}

bool array_feasible(const Program& p, const ArrayAtom& a, uint64_t count, const uint32_t* have) {
  using Have = std::array<uint64_t, 6>;
  const size_t k = a.contains.size();
  auto done = [&](const Have& h) {
    for (size_t c = 0; c < k; ++c)
      if (h[c] < a.contains[c].min) return false;
    return true;
  };
  std::set<Have> now;
  Have first{};
  for (size_t c = 0; c < k; ++c) {
    if (have[c] > a.contains[c].max) return false;
    first[c] = a.contains[c].max == UINT64_MAX ? std::min<uint64_t>(have[c], a.contains[c].min) : have[c];
  }
  now.insert(first);
  for (uint64_t n = count, steps = 0;; ++n) {
    if (n >= a.min && std::any_of(now.begin(), now.end(), done)) return true;
    if (n >= a.max || now.empty()) return false;
    if ((steps += now.size()) > 1000000)
      throw CompileError("contains", "",
                         "the conditions on the items of one array are too many to be decided");
    std::set<Have> next;
    for (const Option& o : n < a.prefix.size() ? a.prefix[n] : a.rest) {
      if (!p.nodes[o.node].possible) continue;
      for (const Have& h : now) {
        Have g = h;
        bool ok = true;
        for (size_t c = 0; c < k; ++c)
          if (o.gain >> c & 1) {
            const bool open = a.contains[c].max == UINT64_MAX;
            if (!open || g[c] < a.contains[c].min) ++g[c];
            ok &= g[c] <= a.contains[c].max;
          }
        if (ok) next.insert(g);
      }
    }
    // All further steps are equal, so a count that has not been reached is never reached.
    if (n >= a.prefix.size() && n >= a.min && next == now) return false;
    now = std::move(next);
  }
}

}  // namespace llamay::grammar
