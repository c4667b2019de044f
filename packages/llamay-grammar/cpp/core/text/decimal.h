// Exact decimal numbers, as JSON text spells them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llamay::grammar {

// (-1)^negative * digits * 10^exponent. Normalised: digits has no leading or trailing zero; zero is "" with
// exponent 0 and never negative.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;

  static Decimal parse(std::string_view text);  // a JSON number
  static Decimal of(int64_t value) { return parse(std::to_string(value)); }
  bool zero() const { return digits.empty(); }
  bool integral() const { return exponent >= 0; }
  Decimal negated() const;
  // The number of digits of the plain spelling: an upper bound of the states that automata unroll.
  uint64_t width() const;
  // The digits before and after the point of |x|; the first is "0" when there are none.
  void split(std::string& whole, std::string& fraction) const;
  std::string plain() const;  // without exponent
};

int compare(const Decimal& a, const Decimal& b);
inline bool operator==(const Decimal& a, const Decimal& b) { return compare(a, b) == 0; }
inline bool operator<(const Decimal& a, const Decimal& b) { return compare(a, b) < 0; }

// Whether value is an integer multiple of step (step > 0). Works on digit strings; exact.
bool is_multiple(const Decimal& value, const Decimal& step);

// Fewer steps with the same common multiples: pairs of steps are replaced by their least common multiple as
// long as 64 bits can compute it.
std::vector<Decimal> common_multiple(const std::vector<Decimal>& steps);

}  // namespace llamay::grammar
