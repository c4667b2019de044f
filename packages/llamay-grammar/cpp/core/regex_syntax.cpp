#include "regex_syntax.h"

#include <utility>

#include "text_cursor.h"
#include "unicode_properties.h"

namespace llamay::grammar {
namespace {

// What \d, \w, \s and the dot stand for, or leave out: CompileAtom and CompileToCharSet in
// ECMA-262, section 22.2.2.
const CharSet kDigit = CharSet::of({{'0', '9'}});
const CharSet kWord = CharSet::of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
const CharSet kSpace = [] {
  CharSet s = CharSet::of({{9, 13}, {32, 32}});
  for (const auto& [first, last] : kWideSpaces) s.add(first, last);
  return s;
}();
const CharSet kLineEnd = CharSet::of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});

// With the other case of every letter of ASCII in it.
CharSet with_both_cases(CharSet s) {
  CharSet other;
  for (auto [lo, hi] : s.ranges)
    for (uint32_t c = 'a'; c <= 'z'; ++c) {
      const uint32_t upper = c - 32;
      if (c >= lo && c <= hi) other.add(upper, upper);
      if (upper >= lo && upper <= hi) other.add(c, c);
    }
  s.add(other);
  s.normalise();
  return s;
}

class Reader : TextCursor {
 public:
  Reader(std::string_view source, Terms& terms, Budget& budget)
      : TextCursor(source), terms_(terms), budget_(budget), source_(source) {}

  RegexNode read() {
    if (at("(?i)")) fold_ = true, i_ = 4;
    RegexNode n = alternatives(0);
    if (i_ < p_.size()) fail("unmatched ')'");
    return n;
  }

 private:
  Terms& terms_;
  Budget& budget_;
  std::string_view source_;
  bool fold_ = false;  // case is ignored

  [[noreturn]] void fail(const std::string& what) const {
    std::string shown(source_.substr(0, 80));
    throw CompileError("pattern", "",
                       what + " at character " + std::to_string(i_) + " of the regular expression /" + shown +
                           (source_.size() > 80 ? "…" : "") + "/");
  }

  RegexNode alternatives(uint32_t depth) {
    if (depth > budget_.depth) fail("groups nested too deep");
    RegexNode alt;
    alt.kind = RegexNode::Alt;
    do {
      RegexNode seq;
      seq.kind = RegexNode::Concat;
      while (more() && !at('|') && !at(')')) {
        budget_.tick();
        seq.kids.push_back(quantified(depth));
        seq.special |= seq.kids.back().special;
      }
      alt.special |= seq.special;
      alt.kids.push_back(seq.kids.size() == 1 ? std::move(seq.kids[0]) : std::move(seq));
    } while (take('|'));
    return alt.kids.size() == 1 ? std::move(alt.kids[0]) : std::move(alt);
  }

  RegexNode quantified(uint32_t depth) {
    RegexNode a = atom(depth);
    while (more()) {
      uint32_t min, max;
      if (take('*')) {
        min = 0, max = kInf;
      } else if (take('+')) {
        min = 1, max = kInf;
      } else if (take('?')) {
        min = 0, max = 1;
      } else if (at('{') && counts(min, max)) {
        if (max < min) fail("a repetition whose maximum is below its minimum");
      } else {
        break;
      }
      if (a.kind == RegexNode::Start || a.kind == RegexNode::End || a.kind == RegexNode::Word ||
          a.kind == RegexNode::NotWord)
        fail("nothing to repeat");
      take('?');
      RegexNode r;
      r.kind = RegexNode::Repeat, r.min = min, r.max = max, r.special = a.special;
      r.kids.push_back(std::move(a));
      a = std::move(r);
      if (at('*') || at('+') || at('?')) fail("nothing to repeat");
    }
    return a;
  }

  bool counts(uint32_t& min, uint32_t& max) {  // at '{'; leaves the position alone when it is no quantifier
    const size_t back = i_++;
    if (const auto low = decimal()) {
      min = max = *low;
      if (take(',')) max = decimal().value_or(kInf);
      if (take('}')) return true;
    }
    i_ = back;
    return false;
  }

  static RegexNode assertion(RegexNode::Kind k) {
    RegexNode n;
    n.kind = k, n.special = true;
    return n;
  }
  RegexNode chars(CharSet s) {
    if (fold_) s = with_both_cases(std::move(s));
    RegexNode n;
    n.term = terms_.set(s.without_surrogates());
    return n;
  }

  RegexNode atom(uint32_t depth) {
    uint32_t c = p_[i_++];
    switch (c) {
      case '^':
        return assertion(RegexNode::Start);
      case '$':
        return assertion(RegexNode::End);
      case '.':
        return chars(kLineEnd.complement());
      case '[':
        return chars(char_class());
      case '(': {
        RegexNode::Kind look = RegexNode::Term;
        if (take('?')) {
          if (take(':')) {
          } else if (take('=')) {
            look = RegexNode::Ahead;
          } else if (take('!')) {
            look = RegexNode::NotAhead;
          } else if (take('<')) {
            if (at('=') || at('!')) fail("a lookbehind, which is not supported,");
            while (more() && !at('>')) ++i_;
            if (!take('>')) fail("unterminated group name");
          } else {
            fail("unknown group syntax");
          }
        }
        RegexNode n = alternatives(depth + 1);
        if (!take(')')) fail("missing ')'");
        if (look == RegexNode::Term) return n;
        RegexNode l = assertion(look);
        l.kids.push_back(std::move(n));
        return l;
      }
      case '\\': {
        if (!more()) fail("a lone backslash at the end");
        if (take('b')) return assertion(RegexNode::Word);
        if (take('B')) return assertion(RegexNode::NotWord);
        if (p_[i_] >= '1' && p_[i_] <= '9') fail("a back-reference, which no automaton can follow,");
        if (at('k')) fail("a back-reference, which no automaton can follow,");
        CharSet s;
        if (set_escape(s)) return chars(s);
        uint32_t e = escape(false);
        return chars(CharSet::of({{e, e}}));
      }
      case '*':
      case '+':
      case '?':
        --i_;
        fail("nothing to repeat");
      default:
        return chars(CharSet::of({{c, c}}));
    }
  }

  // \d, \w, \s, \p and their complements.
  bool set_escape(CharSet& s) {
    const uint32_t c = p_[i_];
    switch (c | 32) {
      case 'd':
        s = kDigit;
        break;
      case 'w':
        s = kWord;
        break;
      case 's':
        s = kSpace;
        break;
      case 'p': {
        ++i_;
        if (!take('{')) fail("expected '{' after \\p");
        std::string name;
        while (more() && !at('}')) append_utf8(name, p_[i_++]);
        if (!more()) fail("unterminated property name");
        s = property(name);
        break;
      }
      default:
        return false;
    }
    ++i_;
    if (c < 'a') s = s.complement();
    return true;
  }

  CharSet property(std::string name) const {
    for (const std::string_view prefix : {"General_Category=", "gc="})
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    if (auto set = unicode_property(name)) return *std::move(set);
    fail("the Unicode property '" + name + "', which is not supported,");
  }

  uint32_t hex(int digits) {
    uint32_t v = 0;
    for (int k = 0; k < digits; ++k) {
      const int d = hex_value(more() ? p_[i_++] : 0);
      if (d < 0) fail("bad hexadecimal escape");
      v = v * 16 + static_cast<uint32_t>(d);
    }
    return v;
  }

  uint32_t escape(bool in_class) {  // after the backslash
    uint32_t c = p_[i_++];
    switch (c) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'v':
        return '\v';
      case 'f':
        return '\f';
      case 'r':
        return '\r';
      case 'b':
        if (in_class) return '\b';
        break;
      case '0':
        if (more() && p_[i_] >= '0' && p_[i_] <= '9') fail("an octal escape");
        return 0;
      case 'c':
        if (more() && ((p_[i_] | 32) >= 'a' && (p_[i_] | 32) <= 'z')) return p_[i_++] & 31;
        fail("bad control escape");
      case 'x':
        return hex(2);
      case 'u': {
        if (take('{')) {
          uint32_t v = 0;
          while (more() && !at('}')) {
            size_t back = i_;
            v = v * 16 + hex(1);
            if (v > kMaxCodePoint) i_ = back, fail("a code point beyond U+10FFFF");
          }
          if (!take('}')) fail("bad hexadecimal escape");
          return v;
        }
        uint32_t v = hex(4);
        if (is_high_surrogate(v) && at("\\u")) {
          size_t back = i_;
          i_ += 2;
          uint32_t lo = hex(4);
          if (is_low_surrogate(lo)) return from_surrogates(v, lo);
          i_ = back;
        }
        return v;
      }
      default:
        break;
    }
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) {
      --i_;
      std::string shown;
      append_utf8(shown, c);
      fail("the unknown escape '\\" + shown + "'");
    }
    return c;
  }

  CharSet char_class() {
    CharSet s;
    bool negative = take('^');
    while (true) {
      if (!more()) fail("missing ']'");
      if (take(']')) break;
      auto one = [&](CharSet& set, uint32_t& c) {  // true when it was a set
        if (take('\\')) {
          if (!more()) fail("a lone backslash at the end");
          if (set_escape(set)) return true;
          c = escape(true);
          return false;
        }
        c = p_[i_++];
        return false;
      };
      CharSet set;
      uint32_t lo = 0, hi = 0;
      if (one(set, lo)) {
        s.add(set);
        continue;
      }
      if (at('-') && i_ + 1 < p_.size() && p_[i_ + 1] != ']') {
        size_t back = i_++;
        if (one(set, hi)) {  // [a-\d]: the hyphen stands for itself
          s.add(lo, lo), s.add('-', '-'), s.add(set);
          continue;
        }
        if (hi < lo) i_ = back, fail("a character range in the wrong order");
        s.add(lo, hi);
      } else {
        s.add(lo, lo);
      }
    }
    s.normalise();
    if (fold_ && negative) s = with_both_cases(std::move(s));
    return negative ? s.complement() : s;
  }
};

}  // namespace

RegexNode read_regex(std::string_view source, Terms& terms, Budget& budget) {
  return Reader(source, terms, budget).read();
}

}  // namespace llamay::grammar
