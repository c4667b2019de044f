// The translation of formulas to a program: every reachable value becomes a union of alternatives, each a
// conjunction of assertions about one type. Alternatives that no document satisfies are removed.
#pragma once

#include <memory>

#include "formulas/formula.h"
#include "program/program.h"
#include "support/budget.h"

namespace llamay::grammar {

struct Expansion;  // the state of the expander: expansion.h

class Expander {
 public:
  Expander(Formulas& formulas, Program& program, Budget& budget);
  ~Expander();

  // Returns the node of a formula; finish() makes the alternatives of the node.
  uint32_t node(FormulaId f);
  // Expands all reachable nodes and removes impossible alternatives. Afterwards a node is marked as
  // impossible if no value satisfies its formula.
  void finish();
  // Returns the strings that satisfy f as one automaton; all labels are 0.
  LanguagePtr string_language(FormulaId f);

 private:
  std::unique_ptr<Expansion> impl_;
};

}  // namespace llamay::grammar
