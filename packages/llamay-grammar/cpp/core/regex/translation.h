// The language of a regular expression as a term, its assertions resolved.
#pragma once

#include "regex/syntax.h"
#include "support/budget.h"

namespace llamay::grammar {

// The texts in which the expression is found somewhere (`whole`: that it matches entirely). Throws
// CompileError("pattern", ...) for assertions that it cannot follow: inside of long repetitions, `^` where it
// is open whether something stands in front, and boundaries of words. The cost grows with the product of the
// alternatives around assertions, which the budget ends.
Terms::Id translate_regex(const RegexNode& node, bool whole, Terms& terms, Budget& budget);

}  // namespace llamay::grammar
