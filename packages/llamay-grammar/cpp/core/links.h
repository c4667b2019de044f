// Lists of texts that threads and frames share.
#pragma once

#include <string_view>

#include "machine.h"

namespace llamay::grammar {

inline uint64_t hash_text(std::string_view s) {
  uint64_t h = 1469598103934665603ull;
  for (char c : s) h = (h ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return h;
}

inline Link* make_link(std::string_view text, const Link* previous, Scratch& s) {
  size_t n = sizeof(Link) + (text.size() > 4 ? text.size() - 4 : 0);
  Link* l = new (s.take(n)) Link;
  l->previous = previous, l->length = static_cast<uint32_t>(text.size());
  if (!text.empty()) std::memcpy(l->text, text.data(), text.size());
  return l;
}

// Whether two lists hold the same texts.
inline bool same_links(const Link* a, const Link* b) {
  for (; a != b; a = a->previous, b = b->previous) {
    if (!a || !b || a->hash != b->hash || a->length != b->length || a->unknown != b->unknown ||
        a->begins != b->begins || std::memcmp(a->text, b->text, a->length) != 0)
      return false;
  }
  return true;
}

inline bool bit(const uint64_t* bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

inline const char* literal_text(uint32_t which) {
  return which == 1 ? "null" : which == 2 ? "false" : "true";
}

}  // namespace llamay::grammar
