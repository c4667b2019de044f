// The language of a regular expression as a term, its assertions resolved.
#pragma once

#include "regex/syntax.h"
#include "support/budget.h"

namespace llamay::grammar {

// Returns the texts that contain a match of the expression (with `whole`: the texts that the expression
// matches from end to end). Throws CompileError("pattern", ...) for assertions that the translation cannot
// resolve: assertions inside long repetitions, `^` after a text that may be empty, and word boundaries. The
// cost grows with the product of the alternatives around assertions; the budget limits it.
Terms::Id translate_regex(const RegexNode& node, bool whole, Terms& terms, Budget& budget);

}  // namespace llamay::grammar
