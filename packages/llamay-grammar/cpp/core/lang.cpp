#include "lang.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <unordered_map>

namespace llamay::grammar {

static std::atomic<uint64_t> next_uid{1};

uint32_t Lang::trie_next(uint32_t s, uint32_t cp) const {
  if (cp < 0x80) return child(s, static_cast<uint8_t>(cp));
  std::string b;
  append_utf8(b, cp);
  for (char c : b) {
    s = child(s, static_cast<uint8_t>(c));
    if (s == kDead) return kDead;
  }
  return s;
}

// Enumerates the code points that leave s; `more` is the number of continuation bytes still to come, -1 at
// the start.
bool Lang::trie_any(uint32_t s, uint32_t lo, uint32_t hi, uint32_t acc, int more,
                    const std::function<bool(uint32_t)>& pred) const {
  if (more == 0) return acc >= lo && acc <= hi && pred(s);
  const Node& n = nodes[s];
  for (uint32_t i = 0; i < n.n_children; ++i) {
    uint32_t c = n.first_child + i;
    uint8_t b = nodes[c].byte;
    bool hit;
    if (more > 0)
      hit = trie_any(c, lo, hi, (acc << 6) | (b & 63u), more - 1, pred);
    else if (b < 0x80)
      hit = b >= lo && b <= hi && pred(c);
    else if (b < 0xE0)
      hit = trie_any(c, lo, hi, b & 31u, 1, pred);
    else if (b < 0xF0)
      hit = trie_any(c, lo, hi, b & 15u, 2, pred);
    else
      hit = trie_any(c, lo, hi, b & 7u, 3, pred);
    if (hit) return true;
  }
  return false;
}

uint32_t Lang::run(std::string_view t) const {
  if (empty()) return kDead;
  uint32_t s = 0;
  for (size_t i = 0; i < t.size();) {
    if (trie) {
      s = child(s, static_cast<uint8_t>(t[i++]));
    } else {
      s = next(s, next_code_point(t, i));
    }
    if (s == kDead) return kDead;
  }
  return label(s);
}

namespace {

uint64_t saturating_add(uint64_t a, uint64_t b) {
  return a + b < a ? std::numeric_limits<uint64_t>::max() : a + b;
}
uint64_t saturating_mul(uint64_t a, uint64_t b) {
  unsigned __int128 p = static_cast<unsigned __int128>(a) * b;
  return p > std::numeric_limits<uint64_t>::max() ? std::numeric_limits<uint64_t>::max()
                                                  : static_cast<uint64_t>(p);
}

// Calls f for the states that one row of a table leads to: most of its classes lead to the same one, which
// is told once for those that stand together.
template <class F>
void successors(const uint32_t* row, uint32_t n_classes, F f) {
  uint32_t before = kDead;
  for (uint32_t c = 0; c < n_classes; ++c) {
    if (row[c] != kDead && row[c] != before) f(row[c]);
    before = row[c];
  }
}

// The states that lead to each, side by side.
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

// Shortest and longest words and their number from every state; then whether the lengths have gaps.
void measure(Lang& l, const std::vector<uint64_t>& class_size) {
  const uint32_t n = static_cast<uint32_t>(l.labels.size()), k = l.n_classes;
  l.min_len.assign(n, kInf);
  l.max_len.assign(n, 0);
  l.n_words.assign(n, 0);
  auto row = [&](uint32_t s) { return &l.table[size_t{s} * k]; };
  // Distances by breadth first search over reversed edges.
  const Predecessors from(l.table, n, k);
  std::vector<uint32_t> queue;
  for (uint32_t s = 0; s < n; ++s)
    if (l.labels[s] != kDead) l.min_len[s] = 0, queue.push_back(s);
  for (size_t q = 0; q < queue.size(); ++q)
    from.each(queue[q], [&](uint32_t s) {
      if (l.min_len[s] == kInf) l.min_len[s] = l.min_len[queue[q]] + 1, queue.push_back(s);
    });
  // States from which a cycle is reachable have no longest word: peel off the others, last first.
  std::vector<uint32_t> out(n, 0), done;
  for (uint32_t s = 0; s < n; ++s) {
    successors(row(s), k, [&](uint32_t) { ++out[s]; });
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
      const uint32_t t = row(s)[c];
      if (t == kDead) continue;
      l.max_len[s] = std::max(l.max_len[s], l.max_len[t] + 1);
      l.n_words[s] = saturating_add(l.n_words[s], saturating_mul(l.n_words[t], class_size[c]));
    }
  }
  for (uint32_t s = 0; s < n; ++s)
    if (!finite[s]) l.max_len[s] = kInf, l.n_words[s] = std::numeric_limits<uint64_t>::max();
  l.all_infinite = done.empty();
  l.longest_min = *std::max_element(l.min_len.begin(), l.min_len.end());
  // If every state's interval of lengths is tiled by its successors' (plus one) and by zero when it accepts,
  // then by induction on the length every value of the interval is the length of a word.
  l.gap_free = true;
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (uint32_t s = 0; s < n && l.gap_free; ++s) {
    parts.clear();
    if (l.labels[s] != kDead) parts.emplace_back(0, 0);
    successors(row(s), k, [&](uint32_t t) {
      uint64_t hi = l.max_len[t] == kInf ? std::numeric_limits<uint64_t>::max() : uint64_t{l.max_len[t]} + 1;
      parts.emplace_back(uint64_t{l.min_len[t]} + 1, hi);
    });
    std::sort(parts.begin(), parts.end());
    uint64_t reach = parts.empty() ? 0 : parts[0].second;
    for (auto& p : parts) {
      if (p.first > reach && p.first - reach > 1) l.gap_free = false;
      reach = std::max(reach, p.second);
    }
  }
}

// Schemas repeat each other's patterns: equal automata become one, so that what is remembered about one
// serves all. Compared in full, never by hash alone.
LangPtr shared(std::shared_ptr<Lang> l) {
  constexpr size_t kLargest = size_t{1} << 18, kAll = size_t{1} << 25;
  const size_t bytes = l->table.size() * 4 + l->labels.size() * 24;
  if (bytes > kLargest) return l;
  uint64_t h = l->n_classes;
  auto mix = [&h](uint64_t x) { h = (h ^ x) * 0x9E3779B97F4A7C15ull, h ^= h >> 29; };
  for (uint32_t x : l->table) mix(x);
  for (uint32_t x : l->labels) mix(x);
  for (uint16_t x : l->ascii_class) mix(x);
  for (size_t i = 0; i < l->range_start.size(); ++i)
    mix(uint64_t{l->range_start[i]} << 16 | l->range_class[i]);
  static std::mutex lock;
  static std::unordered_multimap<uint64_t, LangPtr> known;
  static size_t held = 0;
  std::lock_guard<std::mutex> hold(lock);
  auto [lo, hi] = known.equal_range(h);
  for (auto it = lo; it != hi; ++it) {
    const Lang& o = *it->second;
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

LangPtr finish(RawDfa&& raw, Budget& budget) {
  auto l = std::make_shared<Lang>();
  l->uid = next_uid++;
  const uint32_t n = static_cast<uint32_t>(raw.labels.size()), k = raw.n_classes;
  // Keep what is reachable and can reach an accepting state.
  const Predecessors from(raw.table, n, k);
  std::vector<bool> good(n, false);
  std::vector<uint32_t> queue;
  for (uint32_t s = 0; s < n; ++s)
    if (raw.labels[s] != kDead) good[s] = true, queue.push_back(s);
  for (size_t q = 0; q < queue.size(); ++q)
    from.each(queue[q], [&](uint32_t s) {
      if (!good[s]) good[s] = true, queue.push_back(s);
    });
  if (n == 0 || !good[0]) return l;
  std::vector<uint32_t> number(n, kDead), order;
  number[0] = 0;
  order.push_back(0);
  for (size_t q = 0; q < order.size(); ++q)
    successors(&raw.table[size_t{order[q]} * k], k, [&](uint32_t t) {
      if (good[t] && number[t] == kDead) number[t] = static_cast<uint32_t>(order.size()), order.push_back(t);
    });
  if (order.size() > budget.automaton_states)
    throw CompileError("budget", "",
                       "an automaton has more than " + std::to_string(budget.automaton_states) + " states");
  if (order.size() > budget.total_states)
    throw CompileError("budget", "", "the automata of this grammar have too many states altogether");
  budget.total_states -= order.size();
  // Merge classes that no kept state tells apart.
  std::unordered_multimap<uint64_t, uint16_t> columns;
  std::vector<uint16_t> new_class(k);
  std::vector<std::vector<uint32_t>> kept;
  std::vector<uint32_t> col(order.size());
  for (uint32_t c = 0; c < k; ++c) {
    uint64_t h = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      uint32_t t = raw.table[size_t{order[i]} * k + c];
      col[i] = t == kDead || !good[t] ? kDead : number[t];
      h = (h ^ col[i]) * 0x9E3779B97F4A7C15ull, h ^= h >> 32;
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
  l->n_classes = static_cast<uint32_t>(kept.size());
  l->table.resize(order.size() * kept.size());
  for (size_t s = 0; s < order.size(); ++s)
    for (size_t c = 0; c < kept.size(); ++c) l->table[s * kept.size() + c] = kept[c][s];
  for (uint32_t s : order) l->labels.push_back(raw.labels[s]);
  std::vector<uint64_t> class_size(kept.size(), 0);
  for (size_t r = 0; r < raw.starts.size(); ++r) {
    uint32_t lo = raw.starts[r], hi = r + 1 < raw.starts.size() ? raw.starts[r + 1] : kMaxCodePoint + 1;
    uint16_t c = new_class[raw.classes[r]];
    class_size[c] += hi - lo;
    for (uint32_t cp = lo; cp < hi && cp < 128; ++cp) l->ascii_class[cp] = c;
    if (hi > 128) {
      uint32_t from = std::max(lo, 128u);
      if (l->range_class.empty() || l->range_class.back() != c)
        l->range_start.push_back(from), l->range_class.push_back(c);
    }
  }
  measure(*l, class_size);
  return shared(std::move(l));
}

LangPtr lang_of_words(std::vector<std::string> words, Budget& budget) {
  auto l = std::make_shared<Lang>();
  l->uid = next_uid++;
  l->trie = true;
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  l->words = std::move(words);
  if (l->words.empty()) return l;
  struct Item {
    uint32_t node, lo, hi, depth;
  };
  l->nodes.push_back({});
  l->nodes[0].hi = static_cast<uint32_t>(l->words.size());
  std::vector<Item> queue{{0, 0, l->nodes[0].hi, 0}};
  for (size_t q = 0; q < queue.size(); ++q) {
    Item it = queue[q];
    budget.tick();
    uint32_t i = it.lo;
    if (l->words[i].size() == it.depth) l->nodes[it.node].word = i++;
    l->nodes[it.node].first_child = static_cast<uint32_t>(l->nodes.size());
    while (i < it.hi) {
      uint8_t b = static_cast<uint8_t>(l->words[i][it.depth]);
      uint32_t j = i;
      while (j < it.hi && static_cast<uint8_t>(l->words[j][it.depth]) == b) ++j;
      Lang::Node n;
      n.byte = b, n.lo = i, n.hi = j;
      queue.push_back({static_cast<uint32_t>(l->nodes.size()), i, j, it.depth + 1});
      l->nodes.push_back(n);
      ++l->nodes[it.node].n_children;
      i = j;
    }
  }
  if (l->nodes.size() / 16 > budget.total_states)
    throw CompileError("budget", "", "the words of this grammar are too many altogether");
  budget.total_states -= l->nodes.size() / 16;
  const size_t n = l->nodes.size();
  l->min_len.assign(n, kInf), l->max_len.assign(n, 0), l->n_words.assign(n, 0);
  l->gap_free = false;
  for (size_t s = n; s-- > 0;) {  // children come after their parent
    const auto& node = l->nodes[s];
    l->n_words[s] = node.hi - node.lo;
    if (node.word != kDead) l->min_len[s] = 0;
    for (uint32_t c = node.first_child; c < node.first_child + node.n_children; ++c) {
      uint32_t step = (l->nodes[c].byte & 0xC0) == 0x80 ? 0 : 1;  // code points, counted at their first byte
      l->min_len[s] = std::min(l->min_len[s], l->min_len[c] + step);
      l->max_len[s] = std::max(l->max_len[s], l->max_len[c] + step);
    }
    l->longest_min = std::max(l->longest_min, l->min_len[s]);
  }
  return l;
}

const LangPtr& lang_any() {
  static const LangPtr any = [] {
    RawDfa raw;
    raw.starts = {0, 0xD800, 0xE000};
    raw.classes = {0, 1, 0};
    raw.n_classes = 2;
    raw.table = {0, kDead};
    raw.labels = {0};
    Budget b;
    return finish(std::move(raw), b);
  }();
  return any;
}

namespace {

// The common refinement of the ranges of several automata.
struct Alphabet {
  std::vector<uint32_t> starts;
  std::vector<uint16_t> classes;
  std::vector<std::vector<uint16_t>> members;  // of each class: the class in each automaton
};

constexpr uint16_t kNoClass = 0xFFFF;

Alphabet refine(const std::vector<const Lang*>& langs) {
  std::vector<uint32_t> cuts{0, 0xD800, 0xE000};
  for (auto l : langs) {
    if (l->empty()) continue;
    for (uint32_t c = 1; c < 128; ++c)
      if (l->ascii_class[c] != l->ascii_class[c - 1]) cuts.push_back(c);
    cuts.insert(cuts.end(), l->range_start.begin(), l->range_start.end());
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  Alphabet a;
  std::map<std::vector<uint16_t>, uint16_t> ids;
  std::vector<size_t> at(langs.size(), 0);
  for (uint32_t cut : cuts) {
    std::vector<uint16_t> key;
    for (size_t i = 0; i < langs.size(); ++i) {
      const Lang* l = langs[i];
      if (l->empty()) {
        key.push_back(kNoClass);
      } else if (cut < 128) {
        key.push_back(l->ascii_class[cut]);
      } else {
        while (at[i] + 1 < l->range_start.size() && l->range_start[at[i] + 1] <= cut) ++at[i];
        key.push_back(l->range_class[at[i]]);
      }
    }
    bool surrogate = cut >= 0xD800 && cut < 0xE000;
    if (surrogate) key.assign(langs.size(), kNoClass), key.push_back(1);
    auto [it, fresh] = ids.emplace(key, static_cast<uint16_t>(ids.size()));
    if (fresh) {
      if (ids.size() > 60000)
        throw CompileError("budget", "", "an automaton tells too many characters apart");
      a.members.push_back(surrogate ? std::vector<uint16_t>{} : key);
    }
    a.starts.push_back(cut);
    a.classes.push_back(it->second);
  }
  return a;
}

// Explores tuples of states of several automata (kDead allowed: the automaton has given up).
template <class Label>
LangPtr product(const std::vector<LangPtr>& in, Label label, bool need_all, Budget& budget) {
  std::vector<LangPtr> keep;
  std::vector<const Lang*> langs;
  for (auto& l : in) {
    keep.push_back(l->trie ? dense(l, budget) : l);
    langs.push_back(keep.back().get());
  }
  Alphabet a = refine(langs);
  RawDfa raw;
  raw.starts = a.starts, raw.classes = a.classes;
  raw.n_classes = static_cast<uint32_t>(a.members.size());
  const size_t n = langs.size();
  // The tuples side by side, and a table of their numbers by hash.
  std::vector<uint32_t> states, slots(64, kDead);
  uint32_t n_states = 0;
  auto hash = [n](const uint32_t* t) {
    uint64_t h = n;
    for (size_t i = 0; i < n; ++i) h = (h ^ t[i]) * 0x9E3779B97F4A7C15ull, h ^= h >> 32;
    return static_cast<size_t>(h);
  };
  // Tuples are short: a call to compare them takes longer than comparing.
  auto equal = [n](const uint32_t* x, const uint32_t* y) {
    for (size_t i = 0; i < n; ++i)
      if (x[i] != y[i]) return false;
    return true;
  };
  auto place = [&](const uint32_t* t) -> uint32_t& {
    size_t at = hash(t) & (slots.size() - 1);
    while (slots[at] != kDead && !equal(t, &states[slots[at] * n])) at = (at + 1) & (slots.size() - 1);
    return slots[at];
  };
  auto id = [&](const std::vector<uint32_t>& t) {
    if (uint32_t found = place(t.data()); found != kDead) return found;
    if (n_states >= budget.automaton_states)
      throw CompileError("budget", "",
                         "an automaton has more than " + std::to_string(budget.automaton_states) + " states");
    if (size_t{n_states} * 2 >= slots.size()) {
      slots.assign(slots.size() * 4, kDead);
      for (uint32_t i = 0; i < n_states; ++i) place(&states[i * n]) = i;
    }
    place(t.data()) = n_states;
    states.insert(states.end(), t.begin(), t.end());
    return n_states++;
  };
  std::vector<uint32_t> first;
  for (auto l : langs) first.push_back(l->empty() ? kDead : 0);
  id(first);
  std::vector<uint32_t> s(n), t(n), before(n);
  for (uint32_t q = 0; q < n_states; ++q) {
    std::copy_n(&states[q * n], n, s.begin());
    raw.labels.push_back(label(s, langs));
    uint32_t to_before = kDead;  // where the last class led, which the next one often does too
    for (size_t c = 0; c < a.members.size(); ++c) {
      budget.tick();
      uint32_t to = kDead;
      if (!a.members[c].empty()) {
        bool dead = false;
        for (size_t i = 0; i < n; ++i) {
          t[i] =
              s[i] == kDead ? kDead : langs[i]->table[size_t{s[i]} * langs[i]->n_classes + a.members[c][i]];
          dead |= t[i] == kDead;
        }
        if (!(need_all && dead)) {
          to = to_before != kDead && equal(t.data(), before.data()) ? to_before : id(t);
          to_before = to, std::swap(before, t);
        }
      }
      raw.table.push_back(to);
    }
  }
  return finish(std::move(raw), budget);
}

uint32_t label_of(const Lang* l, uint32_t s) { return s == kDead ? kDead : l->label(s); }

}  // namespace

LangPtr dense(const LangPtr& a, Budget& budget) {
  if (!a->trie) return a;
  std::vector<uint32_t> chars;
  std::vector<std::vector<uint32_t>> decoded;
  size_t total = 0;
  for (auto& w : a->words) {
    std::vector<uint32_t> d = code_points(w);
    chars.insert(chars.end(), d.begin(), d.end());
    total += d.size();
    decoded.push_back(std::move(d));
  }
  std::sort(chars.begin(), chars.end());
  chars.erase(std::unique(chars.begin(), chars.end()), chars.end());
  RawDfa raw;
  std::unordered_map<uint32_t, uint16_t> cls;
  uint32_t next = 0;
  auto push = [&](uint32_t at, uint16_t c) { raw.starts.push_back(at), raw.classes.push_back(c); };
  if (chars.size() > 60000) throw CompileError("budget", "", "an automaton tells too many characters apart");
  for (uint32_t c : chars) {
    if (c > next) push(next, 0);
    cls[c] = static_cast<uint16_t>(cls.size() + 1);
    push(c, cls[c]);
    next = c + 1;
  }
  if (next <= kMaxCodePoint) push(next, 0);
  raw.n_classes = static_cast<uint32_t>(chars.size() + 1);
  if (total > budget.automaton_states || (total + 1) * raw.n_classes > 8000000)
    throw CompileError("budget", "", "an enumeration is too large to be combined with another constraint");
  auto fresh = [&] {
    raw.labels.push_back(kDead);
    raw.table.resize(raw.table.size() + raw.n_classes, kDead);
    return static_cast<uint32_t>(raw.labels.size() - 1);
  };
  fresh();
  for (auto& d : decoded) {
    uint32_t s = 0;
    for (uint32_t cp : d) {
      size_t at = size_t{s} * raw.n_classes + cls[cp];
      if (raw.table[at] == kDead) {
        uint32_t t = fresh();
        raw.table[at] = t;
      }
      s = raw.table[at];
    }
    raw.labels[s] = 0;
  }
  return finish(std::move(raw), budget);
}

LangPtr combine(const LangPtr& a, const LangPtr& b, Combine how, Budget& budget) {
  if (how == Combine::And) {
    if (a->empty() || b == lang_any()) return a;
    if (b->empty() || a == lang_any()) return b;
    if (a->trie || b->trie) {
      const LangPtr& words = a->trie ? a : b;
      const LangPtr& other = a->trie ? b : a;
      std::vector<std::string> keep;
      for (auto& w : words->words)
        if (other->matches(w)) keep.push_back(w);
      return lang_of_words(std::move(keep), budget);
    }
  }
  if (how == Combine::Or) {
    if (a->empty()) return b;
    if (b->empty()) return a;
    if (a->trie && b->trie) {
      auto w = a->words;
      w.insert(w.end(), b->words.begin(), b->words.end());
      return lang_of_words(std::move(w), budget);
    }
  }
  if (how == Combine::AndNot) {
    if (a->empty() || b->empty()) return a;
    if (a->trie) {
      std::vector<std::string> keep;
      for (auto& w : a->words)
        if (!b->matches(w)) keep.push_back(w);
      return lang_of_words(std::move(keep), budget);
    }
  }
  return product(
      {a, b},
      [how](const std::vector<uint32_t>& s, const std::vector<const Lang*>& l) {
        bool x = label_of(l[0], s[0]) != kDead, y = label_of(l[1], s[1]) != kDead;
        bool ok = how == Combine::And ? x && y : how == Combine::Or ? x || y : x && !y;
        return ok ? 0u : kDead;
      },
      how == Combine::And, budget);
}

LangPtr complement(const LangPtr& a, Budget& budget) {
  return combine(lang_any(), a, Combine::AndNot, budget);
}

LangPtr with_length(const LangPtr& a, uint32_t min, uint32_t max, Budget& budget) {
  if (a->empty() || (min == 0 && max == kInf)) return a;
  uint32_t cap =
      max == kInf ? min : max;  // beyond `cap` the count does not matter (no maximum) or is too much
  if (uint64_t{cap} > budget.automaton_states)
    throw CompileError("budget", "",
                       "a length of " + std::to_string(cap) + " with this pattern needs too many states");
  LangPtr d = dense(a, budget);
  RawDfa raw;
  for (uint32_t c = 0; c < 128; ++c)
    if (c == 0 || d->ascii_class[c] != d->ascii_class[c - 1])
      raw.starts.push_back(c), raw.classes.push_back(d->ascii_class[c]);
  for (size_t i = 0; i < d->range_start.size(); ++i)
    raw.starts.push_back(d->range_start[i]), raw.classes.push_back(d->range_class[i]);
  raw.n_classes = d->n_classes;
  std::unordered_map<uint64_t, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> states;
  auto id = [&](uint32_t s, uint32_t n) {
    auto [it, fresh] = ids.emplace(uint64_t{s} << 32 | n, static_cast<uint32_t>(states.size()));
    if (fresh) {
      if (states.size() >= budget.automaton_states * 4)
        throw CompileError("budget", "", "an automaton that counts needs too many states");
      states.emplace_back(s, n);
    }
    return it->second;
  };
  id(0, 0);
  for (size_t q = 0; q < states.size(); ++q) {
    auto [s, n] = states[q];
    raw.labels.push_back(n >= min ? d->label(s) : kDead);
    for (uint32_t c = 0; c < d->n_classes; ++c) {
      budget.tick();
      uint32_t t = d->table[size_t{s} * d->n_classes + c], m = std::min(n + 1, max == kInf ? cap : cap + 1);
      raw.table.push_back(t == kDead || (max != kInf && m > max) ? kDead : id(t, m));
    }
  }
  return finish(std::move(raw), budget);
}

LangPtr classify(const std::vector<LangPtr>& langs, std::vector<std::vector<bool>>& sets, Budget& budget) {
  std::map<std::vector<bool>, uint32_t> ids;
  std::vector<LangPtr> all = langs;
  all.push_back(lang_any());
  return product(
      all,
      [&](const std::vector<uint32_t>& s, const std::vector<const Lang*>& l) {
        std::vector<bool> set;
        for (size_t i = 0; i + 1 < s.size(); ++i) set.push_back(label_of(l[i], s[i]) != kDead);
        auto [it, fresh] = ids.emplace(set, static_cast<uint32_t>(ids.size()));
        if (fresh) sets.push_back(set);
        return it->second;
      },
      false, budget);
}

}  // namespace llamay::grammar
