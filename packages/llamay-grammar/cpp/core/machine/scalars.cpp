// The first byte of a value, and the bytes of strings, numbers and lexemes.
#include <string>

#include "automata/lengths.h"
#include "machine/machine.h"

namespace llamay::grammar {

void Machine::begin_value(const Configuration& in, uint8_t b, Configurations& out, Scratch& s) const {
  const Node& n = p_.nodes[in.a];
  Configuration t;
  t.top = in.top, t.text = in.text;
  switch (b) {
    case '"':
      t.mode = Mode::String;
      for (uint32_t a : n.strings) {
        t.a = a;
        if (!unique_item(t) || string_left(t.top, p_.strings[a], 0, nullptr, 0)) out.push_back(t);
      }
      return;
    case '{':
      t.mode = Mode::ObjectHead;
      for (uint32_t o : n.objects) {
        Frame* f = frame(Place::Object, o, in.top, p_.objects[o].words(), s);
        refresh(f);
        t.top = f;
        out.push_back(t);
      }
      return;
    case '[':
      t.mode = Mode::ArrayHead;
      for (uint32_t a : n.arrays) {
        t.top = frame(Place::Array, a, in.top, 0, s);
        out.push_back(t);
      }
      return;
    case 'n':
    case 'f':
    case 't': {
      uint32_t which = b == 'n' ? 1 : b == 'f' ? 2 : 4;
      if (!(n.literals & which)) return;
      t.mode = Mode::Literal, t.a = which, t.count = 1;
      if (!unique_item(t) || !name_used(t.top, std::string("!") + literal_text(which))) out.push_back(t);
      return;
    }
    default:
      if (b != '-' && (b < '0' || b > '9')) return;
      t.mode = Mode::Number;
      for (uint32_t a : n.numbers) {
        t.a = a;
        step_raw(t, b, out, s);
      }
  }
}

void Machine::step_string(const Configuration& in, uint8_t b, Configurations& out, Scratch& s) const {
  const StringAtom& a = p_.strings[in.a];
  const Language& l = *a.language;
  const bool unique = unique_item(in);
  Configuration t = in;
  Scan r = scan_byte<true>(
      t.scan, b,
      [&](uint32_t cp) {
        t.state = l.next(t.state, cp);
        if (t.state == kDead || !length_open(l, t.state, ++t.count, a.min, a.max)) return false;
        if (!unique) return true;
        std::string utf8;
        append_utf8(utf8, cp);
        t.partial = make_link(utf8, t.partial, s);
        return string_left(t.top, a, t.state, t.partial, t.count);
      },
      [&](uint32_t lo, uint32_t hi) {
        if (unique) {
          uint64_t used = 0;
          for (const Link* n = t.top->names; n; n = n->previous) ++used;
          if (t.count >= a.max) return false;
          const uint32_t left = room(a, t.count + 1);
          auto many = [&](uint32_t n) { return many_words(a, n, left, used); };
          return any_left(l, t.state, lo, hi, used, left, many, [&](uint32_t cp, uint32_t n) {
            std::string utf8;
            append_utf8(utf8, cp);
            return string_left(t.top, a, n, make_link(utf8, t.partial, s), t.count + 1);
          });
        }
        return l.any_next(t.state, lo, hi,
                          [&](uint32_t n) { return length_open(l, n, t.count + 1, a.min, a.max); });
      },
      p_.canonical_escapes);
  if (r == Scan::Live) out.push_back(t);
  if (r == Scan::Close && may_end_here(in)) finish_value(in, out, s);
}

void Machine::step_raw(const Configuration& in, uint8_t b, Configurations& out, Scratch& s) const {
  const bool number = in.mode == Mode::Number, unique = number && unique_item(in);
  const Language& l = number ? *p_.numbers[in.a].language : *p_.lexemes[in.a].language;
  const uint32_t min = number ? 0 : p_.lexemes[in.a].min,
                 max = number ? p_.numbers[in.a].max : p_.lexemes[in.a].max;
  const bool counted = min > 0 || max != kInf;
  Configuration t = in;
  Scan r = scan_byte<false>(
      t.scan, b,
      [&](uint32_t cp) {
        t.state = l.next(t.state, cp);
        if (t.state == kDead) return false;
        // For a lexeme without limits of length, the count only tells whether a character has been read.
        t.count = counted ? t.count + 1 : 1;
        if (counted && !length_open(l, t.state, t.count, min, max)) return false;
        if (!unique) return true;
        const char c = static_cast<char>(cp);
        t.partial = make_link(std::string_view(&c, 1), t.partial, s);
        return words_left(t.top, l, t.state, '#', t.partial);
      },
      [&](uint32_t lo, uint32_t hi) {
        return l.any_next(t.state, lo, hi,
                          [&](uint32_t n) { return !counted || length_open(l, n, t.count + 1, min, max); });
      });
  if (r == Scan::Live) out.push_back(t);
}

}  // namespace llamay::grammar
