// A matcher behind the C interface of abi/llamay/token_constraint.h.
#pragma once

#include <memory>

#include "api/matcher.h"
#include "llamay/token_constraint.h"

namespace llamay::grammar {

// The struct refers to `matcher` and keeps it alive; delete it with free_constraint.
llamay_token_constraint* make_constraint(std::shared_ptr<Matcher> matcher);
void free_constraint(llamay_token_constraint* constraint);

}  // namespace llamay::grammar
