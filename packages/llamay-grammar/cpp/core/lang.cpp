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
