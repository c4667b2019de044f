// The language of a regular expression as a term, its assertions resolved.
#pragma once

#include "regex/syntax.h"
#include "support/budget.h"

namespace llamay::grammar {

// The texts in which the expression is found somewhere (`whole`: that it matches entirely). Throws
// CompileError("pattern", ...) for assertions that the translation cannot resolve: assertions inside of long
// repetitions, `^` where the text in front may or may not be empty, and word boundaries. The cost grows with
// the product of the alternatives around assertions, which the budget ends.
Terms::Id translate_regex(const RegexNode& node, bool whole, Terms& terms, Budget& budget);

}  // namespace llamay::grammar
