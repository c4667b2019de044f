// What one byte does to a lexeme for which an entry is asked.
#pragma once

#include "automata/lengths.h"
#include "text/scanner.h"
#include "vocabulary/vocabulary.h"

namespace llamay::grammar {

// A place in a lexeme: the automaton's state, how far a character is read, and how many were.
struct Spot {
  uint32_t state, scan, count;
};

// Whether a text of so many characters that leads to a state can still become one that fits.
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
