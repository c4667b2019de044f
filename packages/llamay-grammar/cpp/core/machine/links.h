// Lists of texts that configurations and frames share.
#pragma once

#include <atomic>
#include <cstring>
#include <new>
#include <string_view>

#include "support/scratch.h"

namespace llamay::grammar {

// A piece of text in a list: of the names used in an object, of the name being read, or of the item being
// read.
struct Link {
  mutable std::atomic<uint32_t> refs{0};
  bool heap = false;
  bool unknown = false;                    // stands for text that is not spelled out (while computing masks)
  bool begins = false;                     // an item begins here; hash: how many such arrays are around it
  mutable const Link* promoted = nullptr;  // the copy on the heap, once there is one
  const Link* previous = nullptr;
  uint64_t hash = 0;
  uint32_t length = 0;
  char text[4];  // `length` bytes
};

inline uint64_t hash_text(std::string_view s) {
  uint64_t h = 1469598103934665603ull;
  for (char c : s) h = (h ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return h;
}

inline size_t link_bytes(size_t length) { return sizeof(Link) + (length > 4 ? length - 4 : 0); }

inline Link* make_link(std::string_view text, const Link* previous, Scratch& s) {
  Link* l = new (s.allocate(link_bytes(text.size()))) Link;
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

}  // namespace llamay::grammar
