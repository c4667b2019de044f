// The automaton of the spellings of the numbers that satisfy constraints. The automaton compares the number
// with the bounds digit by digit and computes remainders.
#include <array>
#include <map>
#include <mutex>
#include <unordered_map>

#include "automata/algebra.h"
#include "automata/dfa.h"
#include "automata/number.h"
#include "support/compile_error.h"

namespace llamay::grammar {

namespace {

// One bound's magnitude, compared digit by digit while the number is being read.
struct Magnitude {
  std::string whole, fraction;
  bool negative = false, zero = true;
};

struct Modulus {
  uint64_t m = 1;  // the remainder is taken of value * 10^places
  uint32_t places = 0;
  bool wanted = true;
};

enum Phase : uint64_t { Begin, Minus, Zero, Whole, Point, Fraction, Exp, ExpSign, ExpDigits };

// A state of the automaton, packed into words so that it can be a key.
struct State {
  uint64_t phase = Begin, negative = 0, count = 0, places = 0, nonzero = 0, fraction_nonzero = 0,
           exp_digits = 0;
  int64_t cmp[2] = {0, 0};
  uint64_t last_zero = 0;
  std::array<uint64_t, 4> rem{};
  std::array<uint64_t, 4> broken{};
  auto key() const {
    return std::array<uint64_t, 18>{phase,
                                    negative,
                                    count,
                                    places,
                                    nonzero,
                                    fraction_nonzero,
                                    exp_digits,
                                    static_cast<uint64_t>(cmp[0]),
                                    static_cast<uint64_t>(cmp[1]),
                                    last_zero,
                                    rem[0],
                                    rem[1],
                                    rem[2],
                                    rem[3],
                                    broken[0],
                                    broken[1],
                                    broken[2],
                                    broken[3]};
  }
};

class Builder {
 public:
  Builder(const NumberSpec& spec, Budget& budget) : s_(spec), budget_(budget) {
    auto bound = [&](const std::optional<Decimal>& d) {
      Magnitude m;
      if (!d) return m;
      if (d->width() > 400) throw CompileError("", "", "a bound with more than 400 digits");
      d->split(m.whole, m.fraction);
      m.negative = d->negative, m.zero = d->zero();
      far_ |= !m.zero;
      max_whole_ = std::max<uint64_t>(max_whole_, m.whole.size());
      max_places_ = std::max<uint64_t>(max_places_, m.fraction.size());
      return m;
    };
    b_[0] = bound(s_.lo), b_[1] = bound(s_.hi);
    auto modulus = [&](const Decimal& d, bool wanted) {
      if (d.width() > 18) throw CompileError("multipleOf", "", "a multipleOf with more than 18 digits");
      Modulus m;
      m.m = std::stoull(d.digits);
      for (int64_t e = d.exponent; e > 0; --e) m.m *= 10;
      m.places = d.exponent < 0 ? static_cast<uint32_t>(-d.exponent) : 0;
      m.wanted = wanted;
      max_places_ = std::max<uint64_t>(max_places_, m.places);
      mods_.push_back(m);
    };
    for (auto& d : common_multiple(s_.multiples)) modulus(d, true);
    for (auto& d : s_.not_multiples) modulus(d, false);
    if (mods_.size() > 4) throw CompileError("multipleOf", "", "more than four multipleOf on one number");
    exponents_ =
        !far_ && mods_.empty() && s_.excluded.empty() && !s_.canonical && !s_.plain_integer && !s_.fractional;
    cap_places_ = max_places_ + 1;
  }

  LanguagePtr build() {
    // Classes: the ten digits, '-', '.', 'e' and 'E', '+', everything else.
    RawDfa raw;
    auto cut = [&](uint32_t at, uint16_t c) { raw.starts.push_back(at), raw.classes.push_back(c); };
    cut(0, 14), cut('+', 13), cut(',', 14), cut('-', 10), cut('.', 11), cut('/', 14);
    for (uint16_t d = 0; d < 10; ++d) cut('0' + d, d);
    cut(':', 14), cut('E', 12), cut('F', 14), cut('e', 12), cut('f', 14);
    raw.n_classes = 15;
    std::map<std::array<uint64_t, 18>, uint32_t> ids;
    std::vector<State> states;
    auto id = [&](const State& s) {
      auto [it, fresh] = ids.emplace(s.key(), static_cast<uint32_t>(states.size()));
      if (fresh) {
        if (states.size() > size_t{budget_.automaton_states} * 4)
          throw CompileError("budget", "", "the bounds and multiples of a number need too many states");
        states.push_back(s);
      }
      return it->second;
    };
    id(State{});
    for (size_t q = 0; q < states.size(); ++q) {
      State s = states[q];
      raw.labels.push_back(accepts(s) ? 0 : kDead);
      for (uint32_t c = 0; c < 15; ++c) {
        budget_.tick();
        State t = s;
        raw.table.push_back(c < 14 && step(t, c) ? id(t) : kDead);
      }
    }
    return finish(std::move(raw), budget_);
  }

 private:
  const NumberSpec& s_;
  Budget& budget_;
  Magnitude b_[2];
  std::vector<Modulus> mods_;
  bool far_ = false, exponents_ = true;
  uint64_t max_whole_ = 1, max_places_ = 0, cap_places_ = 1;

  void whole_digit(State& s, uint64_t d) const {
    for (int i = 0; i < 2; ++i) {
      const std::string& w = b_[i].whole;
      if (s.count >= w.size())
        s.cmp[i] = 2;  // more digits than the bound has: greater, whatever they are
      else if (s.cmp[i] == 0)
        s.cmp[i] = static_cast<int64_t>(d) - (w[s.count] - '0') > 0 ? 1
                   : static_cast<int64_t>(d) < w[s.count] - '0'     ? -1
                                                                    : 0;
    }
    s.count = std::min(s.count + 1, max_whole_ + 1);
    s.nonzero |= d != 0;
    for (size_t m = 0; m < mods_.size(); ++m) s.rem[m] = (s.rem[m] * 10 + d) % mods_[m].m;
  }
  void end_whole(State& s) const {
    for (int i = 0; i < 2; ++i) {
      if (s.count < b_[i].whole.size()) s.cmp[i] = -1;
      s.cmp[i] = s.cmp[i] > 0 ? 1 : s.cmp[i];
    }
    s.count = 0;
  }
  void end_fraction(State& s) const {
    for (int i = 0; i < 2; ++i)
      if (s.cmp[i] == 0 && s.places < b_[i].fraction.size()) s.cmp[i] = -1;
    for (size_t m = 0; m < mods_.size(); ++m)
      for (uint64_t p = s.places; p < mods_[m].places; ++p) s.rem[m] = s.rem[m] * 10 % mods_[m].m;
    s.places = 0;
  }

  bool step(State& s, uint32_t c) const {
    switch (s.phase) {
      case Begin:
        if (c == 10) return s.phase = Minus, s.negative = 1, true;
        [[fallthrough]];
      case Minus:
        if (c > 9) return false;
        s.phase = c == 0 ? Zero : Whole;
        whole_digit(s, c);
        return true;
      case Whole:
        if (c <= 9) return whole_digit(s, c), true;
        [[fallthrough]];
      case Zero:
        if (c == 11 && !s_.plain_integer && !(s_.canonical && s_.integer)) {
          end_whole(s);
          s.phase = Point;
          return true;
        }
        if (c == 12 && exponents_) {
          end_whole(s), end_fraction(s);
          s.phase = Exp;
          return true;
        }
        return false;
      case Point:
      case Fraction:
        if (c <= 9) {
          if (s_.integer && c != 0) return false;
          for (int i = 0; i < 2; ++i)
            if (s.cmp[i] == 0) {
              int64_t b = s.places < b_[i].fraction.size() ? b_[i].fraction[s.places] - '0' : 0;
              s.cmp[i] = static_cast<int64_t>(c) > b ? 1 : static_cast<int64_t>(c) < b ? -1 : 0;
            }
          for (size_t m = 0; m < mods_.size(); ++m) {
            if (s.places < mods_[m].places)
              s.rem[m] = (s.rem[m] * 10 + c) % mods_[m].m;
            else if (c != 0)
              s.broken[m] = 1;
          }
          s.places = std::min(s.places + 1, cap_places_);
          s.nonzero |= c != 0, s.fraction_nonzero |= c != 0;
          s.last_zero = s_.canonical && c == 0;
          s.phase = Fraction;
          return true;
        }
        if (c == 12 && s.phase == Fraction && exponents_ && !s_.integer) {
          end_fraction(s);
          s.phase = Exp;
          return true;
        }
        return false;
      case Exp:
        // An integer with an exponent has no fraction, and an exponent that cannot make one.
        if (c == 13 || (c == 10 && !s_.integer)) return s.phase = ExpSign, true;
        [[fallthrough]];
      case ExpSign:
      case ExpDigits:
        if (c > 9 || s.exp_digits >= 2) return false;
        ++s.exp_digits;
        s.phase = ExpDigits;
        return true;
    }
    return false;
  }

  int against(const State& s, int i) const {  // sign of value - bound
    const Magnitude& b = b_[i];
    if (!s.nonzero) return b.zero ? 0 : b.negative ? 1 : -1;
    if (s.negative) return b.negative ? -static_cast<int>(s.cmp[i]) : -1;
    return b.negative ? 1 : static_cast<int>(s.cmp[i]);
  }

  bool accepts(State s) const {
    if (s.phase != Zero && s.phase != Whole && s.phase != Fraction && s.phase != ExpDigits) return false;
    if (s.phase == Zero || s.phase == Whole) end_whole(s);
    if (s.phase != ExpDigits) end_fraction(s);
    if (s.last_zero || (s_.canonical && s.negative && !s.nonzero)) return false;
    if (s.phase == Fraction && s_.canonical && !s.fraction_nonzero) return false;
    if (s_.fractional && !s.fraction_nonzero) return false;
    if (s_.lo) {
      int c = against(s, 0);
      if (c < 0 || (c == 0 && s_.lo_open)) return false;
    }
    if (s_.hi) {
      int c = against(s, 1);
      if (c > 0 || (c == 0 && s_.hi_open)) return false;
    }
    for (size_t m = 0; m < mods_.size(); ++m)
      if ((s.rem[m] == 0 && !s.broken[m]) != mods_[m].wanted) return false;
    return true;
  }
};

}  // namespace

LanguagePtr number_language(const NumberSpec& spec, Budget& budget) {
  static std::mutex lock;
  static std::unordered_map<std::string, LanguagePtr> cache;
  std::string key = spec.key();
  {
    std::lock_guard<std::mutex> hold(lock);
    if (auto it = cache.find(key); it != cache.end()) return it->second;
  }
  LanguagePtr l = Builder(spec, budget).build();
  for (auto& x : spec.excluded) {
    NumberSpec only;
    only.lo = only.hi = x;
    l = combine(l, number_language(only, budget), Combine::AndNot, budget);
  }
  std::lock_guard<std::mutex> hold(lock);
  if (cache.size() >= 1024) cache.clear();
  if (l->n_states() <= 4096) cache.emplace(std::move(key), l);
  return l;
}

}  // namespace llamay::grammar
