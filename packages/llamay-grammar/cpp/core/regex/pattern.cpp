// The compilation of regular expressions to patterns in three steps, and a cache of compiled patterns.
#include "regex/pattern.h"

#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "regex/translation.h"

namespace llamay::grammar {
namespace {

Pattern compile_uncached(std::string_view source, bool whole, Budget& budget) {
  Terms terms(budget);
  Terms::Id root = translate_regex(read_regex(source, terms, budget), whole, terms, budget);
  // A counted repetition of one character set is the set's star with a range of lengths.
  Pattern p;
  const auto& t = terms.term(root);
  if (t.op == Terms::Op::Repeat && terms.term(t.kids[0]).op == Terms::Op::Set &&
      (t.min > 1 || (t.max != kInf && t.max > 1))) {
    p.min = t.min, p.max = t.max;
    Terms::Id body = t.kids[0];
    root = terms.repeat(body, 0, kInf);
  }
  p.language = terms.compile(root);
  return p;
}

// A cache of patterns, since different schemas have equal patterns. The oldest pattern is dropped first. Long
// sources and large automata are not cached.
struct Cache {
  std::mutex lock;
  std::list<std::string> order;
  std::unordered_map<std::string, Pattern> map;
};

}  // namespace

Pattern compile_pattern(std::string_view source, bool whole, Budget& budget) {
  static Cache cache;
  std::string key = (whole ? "w" : "s") + std::string(source);
  {
    std::lock_guard<std::mutex> hold(cache.lock);
    if (auto it = cache.map.find(key); it != cache.map.end()) return it->second;
  }
  Pattern p = compile_uncached(source, whole, budget);
  if (source.size() <= 4096 && p.language->n_states() <= 4096) {
    std::lock_guard<std::mutex> hold(cache.lock);
    if (cache.map.emplace(key, p).second) {
      cache.order.push_back(key);
      if (cache.order.size() > 1024) {
        cache.map.erase(cache.order.front());
        cache.order.pop_front();
      }
    }
  }
  return p;
}

}  // namespace llamay::grammar
