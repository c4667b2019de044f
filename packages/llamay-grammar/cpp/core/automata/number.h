// The spellings of the JSON numbers that satisfy bounds and multiples, as automata.
#pragma once

#include <optional>
#include <vector>

#include "automata/language.h"
#include "support/budget.h"
#include "text/decimal.h"

namespace llamay::grammar {

// A conjunction of constraints on one number. Values are exact decimals; nothing is ever rounded.
//
// Exponents are spelled only where they cannot change the verdict (no bound but zero, no multiple): otherwise
// the set of spellings is not regular, and the plain spelling always exists.
struct NumberSpec {
  std::optional<Decimal> lo, hi;
  bool lo_open = false, hi_open = false;
  bool integer = false;
  bool plain_integer = false;  // draft 4: 1.0 is not an integer
  bool fractional = false;     // not an integer
  bool canonical = false;      // one spelling a value: no exponent, no trailing zeros, no -0
  std::vector<Decimal> multiples, not_multiples, excluded;

  void merge(const NumberSpec& other);
  bool contains(const Decimal& value) const;
  std::string key() const;
};

// Longest spelling of a number that no enumeration spells out.
constexpr uint32_t kMaxNumberLength = 48;

LanguagePtr number_language(const NumberSpec& spec, Budget& budget);
LanguagePtr number_words(const std::vector<Decimal>& values, bool canonical, Budget& budget);

}  // namespace llamay::grammar
