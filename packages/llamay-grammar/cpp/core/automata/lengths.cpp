// Lengths and numbers of words from every state of an automaton, by graph searches.
#include "automata/lengths.h"

#include <algorithm>
#include <limits>

#include "automata/transitions.h"
#include "text/unicode.h"

namespace llamay::grammar {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

uint64_t saturating_add(uint64_t a, uint64_t b) { return a + b < a ? kMost : a + b; }
uint64_t saturating_mul(uint64_t a, uint64_t b) {
  unsigned __int128 p = static_cast<unsigned __int128>(a) * b;
  return p > kMost ? kMost : static_cast<uint64_t>(p);
}

const uint32_t* row(const Language& l, uint32_t s) { return &l.table[size_t{s} * l.n_classes]; }

// Distances to the accepting states by breadth first search over reversed edges.
void shortest_words(Language& l, const Predecessors& from) {
  const uint32_t n = l.n_states();
  l.min_len.assign(n, kInf);
  std::vector<uint32_t> queue;
  for (uint32_t s = 0; s < n; ++s)
    if (l.labels[s] != kDead) l.min_len[s] = 0, queue.push_back(s);
  for (size_t q = 0; q < queue.size(); ++q)
    from.each(queue[q], [&](uint32_t s) {
      if (l.min_len[s] == kInf) l.min_len[s] = l.min_len[queue[q]] + 1, queue.push_back(s);
    });
  l.longest_min = *std::max_element(l.min_len.begin(), l.min_len.end());
}

// A state from which a cycle is reachable has no longest word. All other states are visited in reverse
// topological order (A. B. Kahn, "Topological sorting of large networks", 1962).
void longest_words_and_counts(Language& l, const Predecessors& from,
                              const std::vector<uint64_t>& class_size) {
  const uint32_t n = l.n_states(), k = l.n_classes;
  l.max_len.assign(n, 0);
  l.n_words.assign(n, 0);
  std::vector<uint32_t> out(n, 0), done;
  for (uint32_t s = 0; s < n; ++s) {
    successors(row(l, s), k, [&](uint32_t) { ++out[s]; });
    if (out[s] == 0) done.push_back(s);
  }
  for (size_t q = 0; q < done.size(); ++q)
    from.each(done[q], [&](uint32_t s) {
      if (--out[s] == 0) done.push_back(s);
    });
  std::vector<bool> finite(n, false);
  for (uint32_t s : done) {
    finite[s] = true;
    if (l.labels[s] != kDead) l.n_words[s] = 1;
    for (uint32_t c = 0; c < k; ++c) {
      const uint32_t t = row(l, s)[c];
      if (t == kDead) continue;
      l.max_len[s] = std::max(l.max_len[s], l.max_len[t] + 1);
      l.n_words[s] = saturating_add(l.n_words[s], saturating_mul(l.n_words[t], class_size[c]));
    }
  }
  for (uint32_t s = 0; s < n; ++s)
    if (!finite[s]) l.max_len[s] = kInf, l.n_words[s] = kMost;
  l.all_infinite = done.empty();
}

// If every state's interval of lengths is tiled by its successors' (plus one) and by zero when it accepts,
// then by induction on the length every value of the interval is the length of a word.
bool lengths_have_no_gaps(const Language& l) {
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (uint32_t s = 0; s < l.n_states(); ++s) {
    parts.clear();
    if (l.labels[s] != kDead) parts.emplace_back(0, 0);
    successors(row(l, s), l.n_classes, [&](uint32_t t) {
      const uint64_t hi = l.max_len[t] == kInf ? kMost : uint64_t{l.max_len[t]} + 1;
      parts.emplace_back(uint64_t{l.min_len[t]} + 1, hi);
    });
    std::sort(parts.begin(), parts.end());
    uint64_t reach = parts.empty() ? 0 : parts[0].second;
    for (auto& p : parts) {
      if (p.first > reach && p.first - reach > 1) return false;
      reach = std::max(reach, p.second);
    }
  }
  return true;
}

// Calls f(class, number of code points) for the ranges of one class.
template <class F>
void each_class(const Language& l, F f) {
  uint32_t before = 0, cls = 0;
  auto range = [&](uint32_t until) {
    if (until > before) f(cls, uint64_t{until} - before);
  };
  l.each_range([&](uint32_t first, uint32_t next) {
    range(first);
    before = first, cls = next;
  });
  range(kMaxCodePoint + 1);
}

}  // namespace

uint32_t ample_length(const Language& l, uint32_t most, Budget& budget) {
  if (l.trie || l.empty() || !l.infinite(0)) return kInf;
  constexpr uint64_t kMostSteps = 50000000;
  const uint32_t n = l.n_states(), k = l.n_classes;
  std::vector<uint64_t> sizes(k, 0), now(n), next(n);
  each_class(l, [&](uint32_t c, uint64_t size) { sizes[c] += size; });
  for (uint32_t s = 0; s < n; ++s) now[s] = l.labels[s] != kDead;
  uint64_t steps = 0;
  for (uint32_t length = 0; length <= most && (steps += uint64_t{n} * k) < kMostSteps; ++length) {
    bool ample = true;
    for (uint32_t s = 0; s < n && ample; ++s) ample = !l.infinite(s) || now[s] > kPlenty;
    if (ample) return length;
    for (uint32_t s = 0; s < n; ++s) {
      budget.tick();
      next[s] = l.labels[s] != kDead;
      for (uint32_t c = 0; c < k; ++c)
        if (const uint32_t t = row(l, s)[c]; t != kDead)
          next[s] = std::min(saturating_add(next[s], saturating_mul(now[t], sizes[c])), 2 * kPlenty);
    }
    std::swap(now, next);
  }
  return kInf;
}

uint64_t words_within(const Language& l, uint32_t state, uint32_t left, uint64_t enough) {
  uint64_t found = l.labels[state] != kDead;
  if (left == 0) return std::min(found, enough);
  each_class(l, [&](uint32_t c, uint64_t size) {
    const uint32_t t = row(l, state)[c];
    if (found >= enough || t == kDead || l.min_len[t] > left - 1) return;
    found = saturating_add(found, saturating_mul(words_within(l, t, left - 1, enough - found), size));
  });
  return std::min(found, enough);
}

void measure(Language& dense, const std::vector<uint64_t>& class_size) {
  const Predecessors from(dense.table, dense.n_states(), dense.n_classes);
  shortest_words(dense, from);
  longest_words_and_counts(dense, from, class_size);
  dense.gap_free = lengths_have_no_gaps(dense);
}

}  // namespace llamay::grammar
