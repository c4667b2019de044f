// The table of an automaton as a graph: the states that a state leads to, and those that lead to it.
#pragma once

#include <cstdint>
#include <vector>

#include "automata/language.h"

namespace llamay::grammar {

// Calls f for the next states in one row of a table. Most classes of a row have the same next state, for
// which f is called once in a run of equal neighbours.
template <class F>
void successors(const uint32_t* row, uint32_t n_classes, F f) {
  uint32_t before = kDead;
  for (uint32_t c = 0; c < n_classes; ++c) {
    if (row[c] != kDead && row[c] != before) f(row[c]);
    before = row[c];
  }
}

// The predecessors of every state, side by side. Made in time linear in the table.
struct Predecessors {
  std::vector<uint32_t> head, edges;
  Predecessors(const std::vector<uint32_t>& table, uint32_t n, uint32_t n_classes) : head(n + 1, 0) {
    auto each = [&](auto f) {
      for (uint32_t s = 0; s < n; ++s)
        successors(&table[size_t{s} * n_classes], n_classes, [&](uint32_t t) { f(s, t); });
    };
    each([&](uint32_t, uint32_t t) { ++head[t + 1]; });
    for (uint32_t s = 0; s < n; ++s) head[s + 1] += head[s];
    edges.resize(head[n]);
    std::vector<uint32_t> fill(head.begin(), head.end() - 1);
    each([&](uint32_t s, uint32_t t) { edges[fill[t]++] = s; });
  }
  template <class F>
  void each(uint32_t t, F f) const {
    for (uint32_t e = head[t]; e < head[t + 1]; ++e) f(edges[e]);
  }
};

}  // namespace llamay::grammar
