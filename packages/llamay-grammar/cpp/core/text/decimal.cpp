#include "text/decimal.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace llamay::grammar {

Decimal Decimal::parse(std::string_view text) {
  Decimal d;
  size_t i = 0;
  if (i < text.size() && text[i] == '-') d.negative = true, ++i;
  int64_t exponent = 0;
  bool point = false;
  for (; i < text.size() && (text[i] == '.' || (text[i] >= '0' && text[i] <= '9')); ++i) {
    if (text[i] == '.') {
      point = true;
      continue;
    }
    if (!(d.digits.empty() && text[i] == '0')) d.digits.push_back(text[i]);
    if (point) --exponent;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    bool minus = false;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) minus = text[i++] == '-';
    int64_t e = 0;
    for (; i < text.size(); ++i) e = std::min<int64_t>(e * 10 + (text[i] - '0'), 1000000000);
    exponent += minus ? -e : e;
  }
  while (!d.digits.empty() && d.digits.back() == '0') d.digits.pop_back(), ++exponent;
  d.exponent = d.digits.empty() ? 0 : exponent;
  if (d.digits.empty()) d.negative = false;
  return d;
}

Decimal Decimal::negated() const {
  Decimal d = *this;
  if (!d.zero()) d.negative = !d.negative;
  return d;
}

uint64_t Decimal::width() const { return digits.size() + static_cast<uint64_t>(std::llabs(exponent)); }

void Decimal::split(std::string& whole, std::string& fraction) const {
  int64_t n = static_cast<int64_t>(digits.size());
  int64_t before = n + exponent;  // digits before the point
  if (before <= 0) {
    whole = "0";
    fraction = std::string(static_cast<size_t>(-before), '0') + digits;
    if (digits.empty()) fraction.clear();
  } else if (before >= n) {
    whole = digits + std::string(static_cast<size_t>(before - n), '0');
    fraction.clear();
  } else {
    whole = digits.substr(0, static_cast<size_t>(before));
    fraction = digits.substr(static_cast<size_t>(before));
  }
}

std::string Decimal::plain() const {
  std::string whole, fraction;
  split(whole, fraction);
  std::string out = negative ? "-" : "";
  out += whole;
  if (!fraction.empty()) out += "." + fraction;
  return out;
}

static int compare_magnitude(const Decimal& a, const Decimal& b) {
  if (a.zero() || b.zero()) return a.zero() ? (b.zero() ? 0 : -1) : 1;
  int64_t ta = static_cast<int64_t>(a.digits.size()) + a.exponent;
  int64_t tb = static_cast<int64_t>(b.digits.size()) + b.exponent;
  if (ta != tb) return ta < tb ? -1 : 1;
  int c = a.digits.compare(b.digits);  // both normalised: "12" < "123" is also the numeric order here
  return c < 0 ? -1 : c > 0 ? 1 : 0;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int c = compare_magnitude(a, b);
  return a.negative ? -c : c;
}

bool is_multiple(const Decimal& value, const Decimal& step) {
  if (value.zero()) return true;
  int64_t shift = value.exponent - step.exponent;  // value/step = (Dv * 10^shift) / Ds
  if (shift < 0) {
    // Dv has no trailing zero, so Dv / (Ds * 10^-shift) is an integer only if the powers of ten cancel: they
    // cannot.
    return false;
  }
  if (shift > 100000) return false;
  // Remainder of Dv * 10^shift by Ds, schoolbook with a bounded divisor.
  if (step.digits.size() <= 18) {
    unsigned __int128 m = std::strtoull(step.digits.c_str(), nullptr, 10);
    unsigned __int128 r = 0;
    for (char c : value.digits) r = (r * 10 + static_cast<unsigned>(c - '0')) % m;
    for (int64_t i = 0; i < shift; ++i) r = (r * 10) % m;
    return r == 0;
  }
  std::string all = value.digits + std::string(static_cast<size_t>(shift), '0'), r;
  auto less = [](const std::string& x, const std::string& y) {
    return x.size() != y.size() ? x.size() < y.size() : x < y;
  };
  for (char c : all) {
    if (!(r.empty() && c == '0')) r.push_back(c);
    while (!r.empty() && !less(r, step.digits)) {  // r -= step
      int borrow = 0;
      for (size_t i = 0; i < r.size(); ++i) {
        size_t ri = r.size() - 1 - i;
        int s = i < step.digits.size() ? step.digits[step.digits.size() - 1 - i] - '0' : 0;
        int v = r[ri] - '0' - s - borrow;
        borrow = v < 0;
        r[ri] = static_cast<char>('0' + (v < 0 ? v + 10 : v));
      }
      r.erase(0, std::min(r.find_first_not_of('0'), r.size()));
    }
  }
  return r.empty();
}

std::vector<Decimal> common_multiple(const std::vector<Decimal>& steps) {
  std::vector<Decimal> out;
  for (const Decimal& d : steps) {
    bool merged = false;
    for (Decimal& o : out) {
      if (o.digits.size() > 9 || d.digits.size() > 9 || std::llabs(o.exponent - d.exponent) > 8) continue;
      int64_t e = std::min(o.exponent, d.exponent);
      unsigned long long a = std::stoull(o.digits), b = std::stoull(d.digits);
      for (int64_t k = e; k < o.exponent; ++k) a *= 10;
      for (int64_t k = e; k < d.exponent; ++k) b *= 10;
      unsigned __int128 l = static_cast<unsigned __int128>(a / std::gcd(a, b)) * b;
      if (l > 1000000000000000ull) continue;
      Decimal m = Decimal::parse(std::to_string(static_cast<unsigned long long>(l)));
      m.exponent += e;
      o = m;
      merged = true;
      break;
    }
    if (!merged) out.push_back(d);
  }
  return out;
}

}  // namespace llamay::grammar
