// ECMA-262 regular expressions, as JSON Schema means them, compiled to automata by derivatives.
//
// Terms are hash-consed regular expressions closed under intersection and complement, so that lookaheads are
// exact; the states of the automaton are the terms (J. Brzozowski, "Derivatives of regular expressions",
// 1964). Counted repetition stays a counter inside the term.
#pragma once

#include <string_view>
#include <vector>

#include "lang.h"

namespace llamay::grammar {

// A regular language, and the lengths (in code points) to which it is cut: `^[a-z]{1,3000}$` is [a-z]* with a
// window.
struct Pattern {
  LangPtr lang;
  uint32_t min = 0;
  uint32_t max = kInf;
};

// The strings in which the pattern is found somewhere (`whole`: that it matches entirely). Results are shared
// between calls. Throws CompileError("pattern", ...) on bad syntax and on what no automaton can do
// (back-references).
Pattern compile_pattern(std::string_view source, bool whole, Budget& budget);

// The pool of terms behind it, for compilers that build languages of their own.
class Terms {
 public:
  using Id = uint32_t;
  explicit Terms(Budget& budget);

  Id none() const { return 0; }
  Id epsilon() const { return 1; }
  Id anything() const { return 2; }  // every string
  Id set(const CharSet& s);
  Id concat(Id a, Id b);
  Id alt(std::vector<Id> parts);
  Id both(std::vector<Id> parts);
  Id negate(Id a);
  Id repeat(Id a, uint32_t min, uint32_t max);
  Id text(std::string_view utf8);
  bool nullable(Id a) const { return terms_[a].nullable; }
  LangPtr compile(Id root);

  enum class Op : uint8_t { None, Epsilon, Set, Concat, Alt, And, Not, Repeat };
  struct Term {
    Op op;
    bool nullable;
    uint32_t min = 0, max = 0;
    std::vector<Id> kids;  // Set: one entry, the number of the set
  };
  const Term& term(Id id) const { return terms_[id]; }
  const CharSet& charset(Id number) const { return sets_[number]; }

 private:
  Id make(Term&& t);
  Id& slot(const Term& t);
  Id derive(Id a, uint32_t cls);
  uint64_t asked(Id a);

  static constexpr Id kNoTerm = 0xFFFFFFFFu;
  static constexpr uint64_t kUnknown = uint64_t{1} << 63;

  Budget& budget_;
  std::vector<Term> terms_;
  std::vector<CharSet> sets_;
  std::vector<Id> slots_;                   // of all terms, by hash
  std::vector<std::vector<bool>> set_has_;  // [set][class]
  uint32_t n_classes_ = 0;
  std::vector<std::vector<Id>> derived_;  // [term][class]
  std::vector<uint64_t> asked_;
};

}  // namespace llamay::grammar
