// The standard `format` values as regular languages.
#pragma once

#include <optional>
#include <string_view>

#include "regex/pattern.h"
#include "support/budget.h"

namespace llamay::grammar {

// Returns nothing for a name that no standard defines. Where the exact language is not regular (regex) or
// depends on tables that this package does not carry (idn-hostname, A-labels), the result is a documented
// subset: every text that it accepts is valid.
std::optional<Pattern> format_language(std::string_view name, Budget& budget);

}  // namespace llamay::grammar
