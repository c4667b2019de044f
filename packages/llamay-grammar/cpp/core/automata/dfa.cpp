// The construction of a language from a table: trimming, classes of characters, and sharing of equal
// automata.
#include "automata/dfa.h"

#include <algorithm>
#include <unordered_map>

#include "automata/lengths.h"
#include "automata/transitions.h"
#include "support/compile_error.h"
#include "support/hash.h"

namespace llamay::grammar {
namespace {

// Returns the states that are reachable from the start and reach an accepting state, in breadth-first order.
std::vector<uint32_t> useful_states(const RawDfa& raw) {
  const uint32_t n = static_cast<uint32_t>(raw.labels.size()), k = raw.n_classes;
  const Predecessors from(raw.table, n, k);
  std::vector<bool> good(n, false);
  std::vector<uint32_t> queue;
  for (uint32_t s = 0; s < n; ++s)
    if (raw.labels[s] != kDead) good[s] = true, queue.push_back(s);
  for (size_t q = 0; q < queue.size(); ++q)
    from.each(queue[q], [&](uint32_t s) {
      if (!good[s]) good[s] = true, queue.push_back(s);
    });
  if (n == 0 || !good[0]) return {};
  std::vector<bool> reached(n, false);
  std::vector<uint32_t> order{0};
  reached[0] = true;
  for (size_t q = 0; q < order.size(); ++q)
    successors(&raw.table[size_t{order[q]} * k], k, [&](uint32_t t) {
      if (good[t] && !reached[t]) reached[t] = true, order.push_back(t);
    });
  return order;
}

void take_states(size_t n, Budget& budget) {
  if (n > budget.automaton_states)
    throw CompileError("budget", "",
                       "an automaton has more than " + std::to_string(budget.automaton_states) + " states");
  if (n > budget.total_states)
    throw CompileError("budget", "", "the automata of this grammar have too many states altogether");
  budget.total_states -= n;
}

// Writes the table of the kept states, with one class for all classes that no kept state distinguishes.
// Returns the new class of every old class.
std::vector<uint16_t> merge_classes(const RawDfa& raw, const std::vector<uint32_t>& order, Language& l) {
  std::vector<uint32_t> number(raw.labels.size(), kDead);
  for (size_t i = 0; i < order.size(); ++i) number[order[i]] = static_cast<uint32_t>(i);
  std::unordered_multimap<uint64_t, uint16_t> columns;
  std::vector<uint16_t> new_class(raw.n_classes);
  std::vector<std::vector<uint32_t>> kept;
  std::vector<uint32_t> col(order.size());
  for (uint32_t c = 0; c < raw.n_classes; ++c) {
    uint64_t h = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t t = raw.table[size_t{order[i]} * raw.n_classes + c];
      col[i] = t == kDead ? kDead : number[t];
      h = hash_mix(h, col[i]);
    }
    auto [lo, hi] = columns.equal_range(h);
    auto same = std::find_if(lo, hi, [&](auto& x) { return kept[x.second] == col; });
    if (same != hi) {
      new_class[c] = same->second;
      continue;
    }
    new_class[c] = static_cast<uint16_t>(kept.size());
    columns.emplace(h, new_class[c]);
    kept.push_back(col);
  }
  l.n_classes = static_cast<uint32_t>(kept.size());
  l.table.resize(order.size() * kept.size());
  for (size_t s = 0; s < order.size(); ++s)
    for (size_t c = 0; c < kept.size(); ++c) l.table[s * kept.size() + c] = kept[c][s];
  return new_class;
}

// Writes the ranges with their new classes. Returns the number of code points of each class.
std::vector<uint64_t> write_ranges(const RawDfa& raw, const std::vector<uint16_t>& new_class, Language& l) {
  std::vector<uint64_t> class_size(l.n_classes, 0);
  for (size_t r = 0; r < raw.starts.size(); ++r) {
    uint32_t lo = raw.starts[r], hi = r + 1 < raw.starts.size() ? raw.starts[r + 1] : kMaxCodePoint + 1;
    uint16_t c = new_class[raw.classes[r]];
    class_size[c] += hi - lo;
    for (uint32_t cp = lo; cp < hi && cp < 128; ++cp) l.ascii_class[cp] = c;
    if (hi > 128) {
      uint32_t from = std::max(lo, 128u);
      if (l.range_class.empty() || l.range_class.back() != c)
        l.range_start.push_back(from), l.range_class.push_back(c);
    }
  }
  return class_size;
}

// Returns the known automaton that equals `l`, if any: schemas often have equal patterns, and equal automata
// share their cached masks. Automata are compared in full, never by hash alone.
LanguagePtr shared(std::shared_ptr<Language> l) {
  constexpr size_t kLargest = size_t{1} << 18, kAll = size_t{1} << 25;
  const size_t bytes = l->table.size() * 4 + l->labels.size() * 24;
  if (bytes > kLargest) return l;
  uint64_t h = l->n_classes;
  auto mix = [&h](uint64_t x) { h = hash_mix(h, x); };
  for (uint32_t x : l->table) mix(x);
  for (uint32_t x : l->labels) mix(x);
  for (uint16_t x : l->ascii_class) mix(x);
  for (size_t i = 0; i < l->range_start.size(); ++i)
    mix(uint64_t{l->range_start[i]} << 16 | l->range_class[i]);
  static std::mutex lock;
  static std::unordered_multimap<uint64_t, LanguagePtr> known;
  static size_t held = 0;
  std::lock_guard<std::mutex> hold(lock);
  auto [lo, hi] = known.equal_range(h);
  for (auto it = lo; it != hi; ++it) {
    const Language& o = *it->second;
    if (o.n_classes == l->n_classes && o.table == l->table && o.labels == l->labels &&
        std::equal(std::begin(o.ascii_class), std::end(o.ascii_class), l->ascii_class) &&
        o.range_start == l->range_start && o.range_class == l->range_class)
      return it->second;
  }
  if (held > kAll) known.clear(), held = 0;
  held += bytes;
  known.emplace(h, l);
  return l;
}

}  // namespace

RawDfa over_alphabet_of(const Language& dense) {
  RawDfa raw;
  dense.each_range(
      [&](uint32_t first, uint16_t c) { raw.starts.push_back(first), raw.classes.push_back(c); });
  raw.n_classes = dense.n_classes;
  return raw;
}

LanguagePtr finish(RawDfa&& raw, Budget& budget) {
  auto l = std::make_shared<Language>();
  const std::vector<uint32_t> order = useful_states(raw);
  if (order.empty()) return l;
  take_states(order.size(), budget);
  const std::vector<uint16_t> new_class = merge_classes(raw, order, *l);
  for (uint32_t s : order) l->labels.push_back(raw.labels[s]);
  measure(*l, write_ranges(raw, new_class, *l));
  return shared(std::move(l));
}

const LanguagePtr& every_text() {
  static const LanguagePtr any = [] {
    RawDfa raw;
    raw.starts = {0, kFirstSurrogate, kBehindSurrogates};
    raw.classes = {0, 1, 0};
    raw.n_classes = 2;
    raw.table = {0, kDead};
    raw.labels = {0};
    Budget b;
    return finish(std::move(raw), b);
  }();
  return any;
}

}  // namespace llamay::grammar
