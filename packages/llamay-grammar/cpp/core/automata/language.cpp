// Reading words in languages.
#include "automata/language.h"

#include <atomic>
#include "support/budget.h"

namespace llamay::grammar {

Language::Language()
    : uid([] {
        static std::atomic<uint64_t> next{1};
        return next++;
      }()) {}

uint32_t Language::trie_next(uint32_t s, uint32_t cp) const {
  if (cp < 0x80) return child(s, static_cast<uint8_t>(cp));
  std::string b;
  append_utf8(b, cp);
  for (char c : b) {
    s = child(s, static_cast<uint8_t>(c));
    if (s == kDead) return kDead;
  }
  return s;
}

uint32_t Language::run(std::string_view t) const {
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

}  // namespace llamay::grammar
