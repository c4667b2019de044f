// Regular expressions over code points as hash-consed terms, and automata from their derivatives.
//
// Terms are closed under intersection and complement, so that lookaheads are exact; the states of an
// automaton are terms (J. Brzozowski, "Derivatives of regular expressions", 1964). Counted repetition stays a
// counter inside the term.
#pragma once

#include <string_view>
#include <vector>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// The pool of terms of one compilation. Equal terms have equal numbers, and simple identities make equal
// terms one: alternatives are flat, sorted and without repeats, sequences lean to the right, the empty set
// and the empty text vanish. Throws CompileError("budget", ...) for more terms than 16 automata may have
// states.
class Terms {
 public:
  using Id = uint32_t;
  explicit Terms(Budget& budget);

  Id none() const { return 0; }
  Id epsilon() const { return 1; }
  Id anything() const { return 2; }  // every string
  Id set(const CharSet& s);          // one character of s; takes time linear in the number of sets so far
  Id concat(Id a, Id b);
  Id alt(std::vector<Id> parts);
  Id both(std::vector<Id> parts);
  Id negate(Id a);
  Id repeat(Id a, uint32_t min, uint32_t max);  // `max` kInf: without end
  Id text(std::string_view utf8);
  bool nullable(Id a) const { return terms_[a].nullable; }  // whether `a` contains the empty text
  // The automaton. Throws CompileError("budget", ...) where it has too many states: intersections,
  // complements and counters can multiply them.
  LanguagePtr compile(Id root);

  enum class Op : uint8_t { None, Epsilon, Set, Concat, Alt, And, Not, Repeat };
  struct Term {
    Op op;
    bool nullable;
    uint32_t min = 0, max = 0;
    std::vector<Id> kids;  // Set: one entry, the number of the set
  };
  const Term& term(Id id) const { return terms_[id]; }

 private:
  Id make(Term&& t);
  Id& slot(const Term& t);
  // Flattens the parts of an alternative or an intersection: nested parts of the same kind are replaced by
  // their parts, then sorted, each once. Returns false where a part absorbs all others.
  bool flatten(Op op, Id absorbing, Id neutral, std::vector<Id>& parts) const;
  bool merge_counters(std::vector<Id>& alternatives);
  // The derivative of `a` by a class: the texts that continue a character of the class to a text of `a`.
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
