// Regular languages over Unicode scalar values, as trimmed deterministic automata: every state that exists
// can still reach an accepting one, so "live" is "not kDead".
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "text/charset.h"

namespace llamay::grammar {

constexpr uint32_t kDead = 0xFFFFFFFFu;
constexpr uint32_t kInf = 0xFFFFFFFFu;  // a length or a repetition without a maximum

class Language;
using LanguagePtr = std::shared_ptr<const Language>;

// Two representations. Dense: a table over classes of code points, for anything with loops. Trie: the UTF-8
// bytes of a finite set of words, for enumerations and property names, whose alphabets make a table wasteful.
//
// `finish` (dfa.h) and `language_of_words` (words.h) make languages. A language never changes afterwards, so
// threads share it.
class Language {
 public:
  Language();
  // The key under which masks are cached: never reused in a process, and the same for equal dense languages
  // while they are remembered.
  const uint64_t uid;
  bool trie = false;

  bool empty() const { return trie ? words.empty() : table.empty(); }
  uint32_t start() const { return 0; }

  uint32_t next(uint32_t s, uint32_t cp) const {
    if (trie) return trie_next(s, cp);
    return table[size_t{s} * n_classes + class_of(cp)];
  }
  // kDead when not accepting, otherwise the label of the word (0 where labels mean nothing).
  uint32_t label(uint32_t s) const { return trie ? nodes[s].word : labels[s]; }
  bool accepts(uint32_t s) const { return label(s) != kDead; }

  // Whether `pred(next state)` holds for some code point in [lo, hi]. `pred` is called for each ASCII code
  // point, beyond ASCII once for a range of one class, in a trie once for each character.
  template <class P>
  bool any_next(uint32_t s, uint32_t lo, uint32_t hi, P pred) const;

  // Lengths of the words from s on, in code points.
  uint32_t min_length(uint32_t s) const { return min_len[s]; }
  uint32_t max_length(uint32_t s) const { return max_len[s]; }  // kInf when unbounded
  uint32_t n_states() const { return static_cast<uint32_t>(trie ? nodes.size() : labels.size()); }
  bool infinite(uint32_t s) const { return max_len[s] == kInf; }
  // Number of words from s, saturating.
  uint64_t count_words(uint32_t s) const { return n_words[s]; }
  bool matches(std::string_view utf8) const { return run(utf8) != kDead; }
  // The label of the word, or kDead. The text must be UTF-8.
  uint32_t run(std::string_view utf8) const;

  // Every window of lengths that the ends of the interval allow contains a word: then min/max lengths can be
  // checked with two comparisons.
  bool gap_free = true;
  bool all_infinite = false;  // from every state
  uint32_t longest_min = 0;   // the largest min_length

  // Dense.
  uint32_t n_classes = 0;
  uint16_t ascii_class[128] = {};
  std::vector<uint32_t> range_start;  // from 128 on; range i is [range_start[i], range_start[i + 1])
  std::vector<uint16_t> range_class;
  std::vector<uint32_t> table;  // [state][class]: the next state
  std::vector<uint32_t> labels;
  uint32_t class_of(uint32_t cp) const { return cp < 128 ? ascii_class[cp] : range_class[range_of(cp)]; }
  // Calls f(first code point, class) for the ranges of one class, in increasing order.
  template <class F>
  void each_range(F f) const {
    for (uint32_t c = 0; c < 128; ++c)
      if (c == 0 || ascii_class[c] != ascii_class[c - 1]) f(c, ascii_class[c]);
    for (size_t i = 0; i < range_start.size(); ++i) f(range_start[i], range_class[i]);
  }

  // Trie.
  struct Node {
    uint32_t first_child = 0;
    uint32_t word = kDead;
    uint32_t lo = 0, hi = 0;  // the words below, in sorted order
    uint16_t n_children = 0;
    uint8_t byte = 0;
  };
  std::vector<Node> nodes;
  std::vector<std::string> words;  // sorted

  uint32_t child(uint32_t s, uint8_t byte) const {
    const Node& n = nodes[s];
    uint32_t lo = n.first_child, hi = lo + n.n_children;
    if (n.n_children > 8) {
      while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (nodes[mid].byte < byte)
          lo = mid + 1;
        else
          hi = mid;
      }
      return lo < n.first_child + n.n_children && nodes[lo].byte == byte ? lo : kDead;
    }
    for (; lo < hi; ++lo)
      if (nodes[lo].byte == byte) return lo;
    return kDead;
  }

  std::vector<uint32_t> min_len, max_len;
  std::vector<uint64_t> n_words;

  // Of each state, the classes of bytes that may leave it: vocabulary/exit_classes.h makes them on first use.
  mutable std::once_flag exit_classes_made;
  mutable std::vector<uint64_t> exit_classes, near_exit_classes;

 private:
  size_t range_of(uint32_t cp) const {  // from 128 on
    size_t lo = 0, hi = range_start.size();
    while (hi - lo > 1) {
      size_t mid = (lo + hi) / 2;
      (range_start[mid] <= cp ? lo : hi) = mid;
    }
    return lo;
  }
  uint32_t trie_next(uint32_t s, uint32_t cp) const;
  template <class P>
  bool trie_any(uint32_t s, uint32_t lo, uint32_t hi, uint32_t acc, int more, P& pred) const;
};

// Enumerates the code points that leave s; `more` is the number of continuation bytes still to come, -1 at
// the start.
template <class P>
bool Language::trie_any(uint32_t s, uint32_t lo, uint32_t hi, uint32_t acc, int more, P& pred) const {
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

template <class P>
bool Language::any_next(uint32_t s, uint32_t lo, uint32_t hi, P pred) const {
  if (trie) return trie_any(s, lo, hi, 0, -1, pred);
  const uint32_t* row = &table[size_t{s} * n_classes];
  for (uint32_t c = lo; c <= hi && c < 128; ++c)
    if (uint32_t t = row[ascii_class[c]]; t != kDead && pred(t)) return true;
  if (hi < 128) return false;
  for (size_t a = range_of(lo < 128 ? 128 : lo); a < range_start.size() && range_start[a] <= hi; ++a)
    if (uint32_t t = row[range_class[a]]; t != kDead && pred(t)) return true;
  return false;
}

}  // namespace llamay::grammar
