// Alphabets of automata: ranges of code points, and classes of ranges that an automaton need not distinguish.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "automata/dfa.h"
#include "support/compile_error.h"

namespace llamay::grammar {

// Code points at which a class may begin, both ends of the surrogates among them.
class Cuts {
 public:
  void add(uint32_t first, uint32_t last) {  // both inclusive
    at_.push_back(first);
    if (last < kMaxCodePoint) at_.push_back(last + 1);
  }
  void add(const CharSet& set) {
    for (auto [first, last] : set.ranges) add(first, last);
  }
  void add(const Language& dense) {
    dense.each_range([this](uint32_t first, uint16_t) { at_.push_back(first); });
  }
  // The cuts in increasing order, each once.
  std::vector<uint32_t> sorted() && {
    std::sort(at_.begin(), at_.end());
    at_.erase(std::unique(at_.begin(), at_.end()), at_.end());
    return std::move(at_);
  }

 private:
  std::vector<uint32_t> at_{0, kFirstSurrogate, kBehindSurrogates};
};

// Classes of code points with equal keys; a Key is a container. The surrogates are a class of their own with
// an empty key, and occur in no word.
template <class Key>
struct Alphabet {
  std::vector<uint32_t> starts;   // as in a RawDfa
  std::vector<uint16_t> classes;  // as in a RawDfa
  std::vector<Key> keys;          // of each class
  std::vector<uint32_t> example;  // a code point of each class

  // `key_of(first)` returns the key of the range from each cut to the next, is called in increasing order,
  // and never returns an empty key. Throws CompileError("budget", ...) for more classes than 16 bits can
  // number.
  template <class KeyOf>
  Alphabet(Cuts cuts, KeyOf key_of) : starts(std::move(cuts).sorted()) {
    constexpr size_t kMostClasses = 60000;
    std::map<Key, uint16_t> ids;
    for (uint32_t first : starts) {
      auto [it, fresh] =
          ids.try_emplace(is_surrogate(first) ? Key{} : key_of(first), static_cast<uint16_t>(ids.size()));
      if (fresh) {
        if (ids.size() > kMostClasses)
          throw CompileError("budget", "", "an automaton tells too many characters apart");
        keys.push_back(it->first);
        example.push_back(first);
      }
      classes.push_back(it->second);
    }
  }
  uint32_t size() const { return static_cast<uint32_t>(keys.size()); }
  // An automaton over this alphabet, without states.
  RawDfa dfa() const {
    RawDfa raw;
    raw.starts = starts, raw.classes = classes, raw.n_classes = size();
    return raw;
  }
};

}  // namespace llamay::grammar
