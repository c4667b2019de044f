// Sets of code points by property of the Unicode character database: what \p{...} names (Unicode standard
// annex 44).
#pragma once

#include <optional>
#include <string_view>

#include "text/charset.h"

namespace llamay::grammar {

// The code points of a general category by its short or long name (ECMA-262, table "Value aliases and
// canonical values for the Unicode property General_Category"), of Any or of ASCII. Nothing for other names:
// scripts and binary properties are not carried.
std::optional<CharSet> unicode_property(std::string_view name);

}  // namespace llamay::grammar
