// The common part of the readers of GBNF and EBNF: names, numbers, classes of characters and the positions of
// errors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "grammars/network.h"
#include "support/budget.h"
#include "support/compile_error.h"
#include "text/cursor.h"

namespace llamay::grammar {

class GrammarReader : protected TextCursor {
 public:
  // `source` must be UTF-8 (require_utf8).
  GrammarReader(const std::string& source, Budget& budget) : TextCursor(source), budget_(budget) {}

 protected:
  Budget& budget_;

  // Throws CompileError("grammar", ...) with line and column, both from 1 on, columns in code points.
  [[noreturn]] void fail(const std::string& what) const {
    size_t line = 1, column = 1;
    for (size_t k = 0; k < i_ && k < p_.size(); ++k) {
      ++column;
      if (p_[k] == '\n') ++line, column = 1;
    }
    throw CompileError("grammar", "",
                       what + " (line " + std::to_string(line) + ", column " + std::to_string(column) + ")");
  }
  static bool name_char(uint32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string name() {
    std::string n;
    while (more() && name_char(p_[i_])) n.push_back(static_cast<char>(p_[i_++]));
    if (n.empty()) fail("expected the name of a rule");
    return n;
  }
  uint32_t number() {
    if (const auto n = decimal(kInf - 1)) return *n;
    fail("expected a number");
  }
  // A character by its number in at most, or exactly, so many hexadecimal digits.
  uint32_t hex(int most, bool exactly) {
    uint32_t v = 0;
    int n = 0;
    for (; n < most && more(); ++n) {
      const int d = hex_value(p_[i_]);
      if (d < 0) break;
      v = v * 16 + static_cast<uint32_t>(d);
      ++i_;
    }
    if (n == 0 || (exactly && n != most)) fail("expected hexadecimal digits");
    if (v > kMaxCodePoint || is_surrogate(v)) fail("not a character");
    return v;
  }
  // Reads a class from its opening bracket on; `character` reads one character in the spelling of the
  // notation.
  template <class Character>
  Expr character_class(Character character) {
    ++i_;
    Expr e;
    e.kind = Expr::Set;
    bool negative = consume('^');
    while (true) {
      if (!more()) fail("a character class without its closing bracket");
      if (consume(']')) break;
      uint32_t lo = character(), hi = lo;
      if (at('-') && i_ + 1 < p_.size() && p_[i_ + 1] != ']') {
        ++i_;
        hi = character();
        if (hi < lo) fail("a character range in the wrong order");
      }
      e.set.add(lo, hi);
    }
    e.set.normalise();
    if (negative) e.set = e.set.complement();
    return e;
  }
  static Expr repeat(Expr e, uint32_t min, uint32_t max) {
    Expr r;
    r.kind = Expr::Repeat, r.min = min, r.max = max;
    r.kids.push_back(std::move(e));
    return r;
  }
  static Expr one(std::vector<Expr> kids, Expr::Kind kind) {
    if (kids.size() == 1) return std::move(kids[0]);
    Expr e;
    e.kind = kind, e.kids = std::move(kids);
    return e;
  }
  void depth(uint32_t d) const {
    if (d > budget_.depth) fail("groups nested too deep");
  }
};

}  // namespace llamay::grammar
