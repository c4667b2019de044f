// From formulas to a program: every reachable value becomes a union of alternatives, each a conjunction of
// assertions about one type, and those that no document satisfies are removed.
#pragma once

#include <memory>

#include "formulas/formula.h"
#include "program/program.h"
#include "support/budget.h"

namespace llamay::grammar {

struct Expansion;  // its state and its parts: expansion.h

class Expander {
 public:
  Expander(Formulas& formulas, Program& program, Budget& budget);
  ~Expander();

  // The node of a formula; its alternatives are made by finish().
  uint32_t node(FormulaId f);
  // Expands everything reachable and prunes. After it, node(f) may be impossible: then no value satisfies f.
  void finish();
  // The strings that satisfy f, as one automaton (labels 0).
  LanguagePtr string_language(FormulaId f);

 private:
  std::unique_ptr<Expansion> impl_;
};

}  // namespace llamay::grammar
