// Reading words in languages, and the language of all of them.
#include "lang.h"

#include <atomic>

#include "dfa.h"

namespace llamay::grammar {

Lang::Lang()
    : uid([] {
        static std::atomic<uint64_t> next{1};
        return next++;
      }()) {}

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

const LangPtr& lang_any() {
  static const LangPtr any = [] {
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
