// Conjunctions of constraints on numbers, and the spellings of given numbers.
#include "automata/number.h"

#include "automata/words.h"

namespace llamay::grammar {

void NumberSpec::merge(const NumberSpec& o) {
  if (o.lo && (!lo || *lo < *o.lo || (*lo == *o.lo && o.lo_open))) lo = o.lo, lo_open = o.lo_open;
  if (o.hi && (!hi || *o.hi < *hi || (*hi == *o.hi && o.hi_open))) hi = o.hi, hi_open = o.hi_open;
  integer |= o.integer, plain_integer |= o.plain_integer, fractional |= o.fractional,
      canonical |= o.canonical;
  multiples.insert(multiples.end(), o.multiples.begin(), o.multiples.end());
  not_multiples.insert(not_multiples.end(), o.not_multiples.begin(), o.not_multiples.end());
  excluded.insert(excluded.end(), o.excluded.begin(), o.excluded.end());
}

bool NumberSpec::contains(const Decimal& v) const {
  if (lo && (v < *lo || (lo_open && v == *lo))) return false;
  if (hi && (*hi < v || (hi_open && v == *hi))) return false;
  if (integer && !v.integral()) return false;
  if (fractional && v.integral()) return false;
  for (auto& m : multiples)
    if (!is_multiple(v, m)) return false;
  for (auto& m : not_multiples)
    if (is_multiple(v, m)) return false;
  for (auto& x : excluded)
    if (x == v) return false;
  return true;
}

std::string NumberSpec::key() const {
  auto text = [](const Decimal& d) {
    return std::string(d.negative ? "-" : "") + d.digits + "e" + std::to_string(d.exponent) + ";";
  };
  std::string k;
  if (lo) k += (lo_open ? "(" : "[") + text(*lo);
  if (hi) k += (hi_open ? ")" : "]") + text(*hi);
  k += integer ? "i" : "";
  k += plain_integer ? "p" : "";
  k += fractional ? "f" : "";
  k += canonical ? "c" : "";
  for (auto& m : multiples) k += "m" + text(m);
  for (auto& m : not_multiples) k += "n" + text(m);
  for (auto& m : excluded) k += "x" + text(m);
  return k;
}

LanguagePtr number_words(const std::vector<Decimal>& values, bool canonical, Budget& budget) {
  std::vector<std::string> words;
  for (auto& v : values) {
    if (v.width() > 400) {
      words.push_back((v.negative ? "-" : "") + v.digits + "e" + std::to_string(v.exponent));
      continue;
    }
    words.push_back(v.plain());
    if (canonical) continue;
    if (v.integral()) words.push_back(v.plain() + ".0");
    if (v.width() > 15) {  // as programs print it: 1e+22, 1.5e-07
      std::string d = v.digits.substr(0, 1) + (v.digits.size() > 1 ? "." + v.digits.substr(1) : "");
      int64_t e = v.exponent + static_cast<int64_t>(v.digits.size()) - 1;
      std::string sign = v.negative ? "-" : "";
      words.push_back(sign + d + "e" + std::to_string(e));
      if (e > 0) words.push_back(sign + d + "e+" + std::to_string(e));
      if (e < 0 && e > -10) words.push_back(sign + d + "e-0" + std::to_string(-e));
    }
  }
  return language_of_words(std::move(words), budget);
}

}  // namespace llamay::grammar
