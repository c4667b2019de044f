// One step of a lexeme by a byte, for the making of entries.
#pragma once

#include "automata/lengths.h"
#include "text/scanner.h"
#include "vocabulary/vocabulary.h"

namespace llamay::grammar {

// A place in a lexeme: the state of the automaton, the state of the scanner, and the number of characters
// read.
struct Spot {
  uint32_t state, scan, count;
};

// Whether a text of `count` characters that leads to `state` can still become a word of allowed length.
inline bool is_open(const Language& l, const EntryKey& k, uint32_t state, uint32_t count) {
  return state != kDead && length_open(l, state, count, k.min, k.max);
}

template <bool kJson>
Scan step_lexeme(const Language& l, const EntryKey& k, Spot& p, uint8_t b) {
  return scan_byte<kJson>(
      p.scan, b,
      [&](uint32_t cp) {
        p.state = l.next(p.state, cp);
        return is_open(l, k, p.state, ++p.count);
      },
      [&](uint32_t lo, uint32_t hi) {
        return l.any_next(p.state, lo, hi,
                          [&](uint32_t n) { return length_open(l, n, p.count + 1, k.min, k.max); });
      },
      k.kind == Lexeme::JsonCanonical);
}

}  // namespace llamay::grammar
