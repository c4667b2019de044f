// Tries of words, and dense automata of finite languages.
#include "automata/words.h"

#include <algorithm>
#include <unordered_map>

#include "automata/dfa.h"
#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

// Lengths and counts of the words below each node.
void measure_trie(Language& trie) {
  const size_t n = trie.nodes.size();
  trie.min_len.assign(n, kInf), trie.max_len.assign(n, 0), trie.n_words.assign(n, 0);
  trie.gap_free = false;
  for (size_t s = n; s-- > 0;) {  // children come after their parent
    const auto& node = trie.nodes[s];
    trie.n_words[s] = node.hi - node.lo;
    if (node.word != kDead) trie.min_len[s] = 0;
    for (uint32_t c = node.first_child; c < node.first_child + node.n_children; ++c) {
      uint32_t step =
          (trie.nodes[c].byte & 0xC0) == 0x80 ? 0 : 1;  // code points, counted at their first byte
      trie.min_len[s] = std::min(trie.min_len[s], trie.min_len[c] + step);
      trie.max_len[s] = std::max(trie.max_len[s], trie.max_len[c] + step);
    }
    trie.longest_min = std::max(trie.longest_min, trie.min_len[s]);
  }
}

}  // namespace

LanguagePtr language_of_words(std::vector<std::string> words, Budget& budget) {
  auto l = std::make_shared<Language>();
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
      Language::Node n;
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
  measure_trie(*l);
  return l;
}

LanguagePtr dense(const LanguagePtr& a, Budget& budget) {
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

}  // namespace llamay::grammar
