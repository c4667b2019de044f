#include "regex.h"

#include <list>
#include <mutex>
#include <tuple>

#include "json.h"

namespace llamay::grammar {
namespace {

struct Category {
  const char* name;
  const uint32_t* ranges;
  size_t n;
};
#include "unicode_tables.inc"

enum class Kind : uint8_t { Term, Concat, Alt, Repeat, Start, End, Ahead, NotAhead, Word, NotWord };

struct Node {
  Kind kind = Kind::Term;
  Terms::Id term = 0;
  std::vector<Node> kids;
  uint32_t min = 1, max = 1;
  bool special = false;  // contains an assertion
};

const CharSet kDigit = CharSet::of({{'0', '9'}});
const CharSet kWord = CharSet::of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
const CharSet kSpace = [] {
  CharSet s = CharSet::of({{9, 13}, {32, 32}});
  for (const auto& [first, last] : kWideSpaces) s.add(first, last);
  return s;
}();
const CharSet kLineEnd = CharSet::of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});

class Reader {
 public:
  Reader(std::string_view source, Terms& terms, Budget& budget)
      : terms_(terms), budget_(budget), source_(source) {
    for (size_t i = 0; i < source.size();) {
      uint8_t b = static_cast<uint8_t>(source[i]);
      uint32_t n = b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
      uint32_t cp = n == 1 ? b : n == 2 ? b & 31u : n == 3 ? b & 15u : b & 7u;
      for (uint32_t k = 1; k < n && i + k < source.size(); ++k)
        cp = (cp << 6) | (static_cast<uint8_t>(source[i + k]) & 63u);
      p_.push_back(cp);
      i += n;
    }
  }

  Node read() {
    if (p_.size() >= 4 && p_[0] == '(' && p_[1] == '?' && p_[2] == 'i' && p_[3] == ')') fold_ = true, i_ = 4;
    Node n = alternatives(0);
    if (i_ < p_.size()) fail("unmatched ')'");
    return n;
  }

 private:
  Terms& terms_;
  Budget& budget_;
  std::string_view source_;
  std::vector<uint32_t> p_;
  size_t i_ = 0;
  bool fold_ = false;

  [[noreturn]] void fail(const std::string& what) const {
    std::string shown(source_.substr(0, 80));
    throw CompileError("pattern", "",
                       what + " at character " + std::to_string(i_) + " of the regular expression /" + shown +
                           (source_.size() > 80 ? "…" : "") + "/");
  }
  bool more() const { return i_ < p_.size(); }
  bool at(uint32_t c) const { return i_ < p_.size() && p_[i_] == c; }
  bool take(uint32_t c) { return at(c) ? (++i_, true) : false; }

  Node alternatives(uint32_t depth) {
    if (depth > budget_.depth) fail("groups nested too deep");
    Node alt;
    alt.kind = Kind::Alt;
    do {
      Node seq;
      seq.kind = Kind::Concat;
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

  Node quantified(uint32_t depth) {
    Node a = atom(depth);
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
      if (a.kind == Kind::Start || a.kind == Kind::End || a.kind == Kind::Word || a.kind == Kind::NotWord)
        fail("nothing to repeat");
      take('?');
      Node r;
      r.kind = Kind::Repeat, r.min = min, r.max = max, r.special = a.special;
      r.kids.push_back(std::move(a));
      a = std::move(r);
      if (at('*') || at('+') || at('?')) fail("nothing to repeat");
    }
    return a;
  }

  bool counts(uint32_t& min, uint32_t& max) {  // at '{'; leaves the position alone when it is no quantifier
    size_t j = i_ + 1;
    auto number = [&](uint32_t& out) {
      size_t b = j;
      uint64_t v = 0;
      while (j < p_.size() && p_[j] >= '0' && p_[j] <= '9')
        v = std::min<uint64_t>(v * 10 + p_[j++] - '0', kInf - 1);
      out = static_cast<uint32_t>(v);
      return j > b;
    };
    if (!number(min)) return false;
    max = min;
    if (j < p_.size() && p_[j] == ',') {
      ++j;
      if (!number(max)) max = kInf;
    }
    if (j >= p_.size() || p_[j] != '}') return false;
    i_ = j + 1;
    return true;
  }

  static Node assertion(Kind k) {
    Node n;
    n.kind = k, n.special = true;
    return n;
  }
  Node chars(CharSet s) {
    if (fold_) {
      CharSet more;
      for (auto r : s.ranges) {
        for (uint32_t c = 'a'; c <= 'z'; ++c) {
          if (c >= r.first && c <= r.second) more.add(c - 32, c - 32);
          if (c - 32 >= r.first && c - 32 <= r.second) more.add(c, c);
        }
      }
      s.add(more);
      s.normalise();
    }
    Node n;
    n.term = terms_.set(s.without_surrogates());
    return n;
  }

  Node atom(uint32_t depth) {
    uint32_t c = p_[i_++];
    switch (c) {
      case '^':
        return assertion(Kind::Start);
      case '$':
        return assertion(Kind::End);
      case '.':
        return chars(kLineEnd.complement());
      case '[':
        return chars(char_class());
      case '(': {
        Kind look = Kind::Term;
        if (take('?')) {
          if (take(':')) {
          } else if (take('=')) {
            look = Kind::Ahead;
          } else if (take('!')) {
            look = Kind::NotAhead;
          } else if (take('<')) {
            if (at('=') || at('!')) fail("a lookbehind, which is not supported,");
            while (more() && !at('>')) ++i_;
            if (!take('>')) fail("unterminated group name");
          } else {
            fail("unknown group syntax");
          }
        }
        Node n = alternatives(depth + 1);
        if (!take(')')) fail("missing ')'");
        if (look == Kind::Term) return n;
        Node l = assertion(look);
        l.kids.push_back(std::move(n));
        return l;
      }
      case '\\': {
        if (!more()) fail("a lone backslash at the end");
        if (take('b')) return assertion(Kind::Word);
        if (take('B')) return assertion(Kind::NotWord);
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
    switch (p_[i_]) {
      case 'd':
        s = kDigit;
        break;
      case 'D':
        s = kDigit.complement();
        break;
      case 'w':
        s = kWord;
        break;
      case 'W':
        s = kWord.complement();
        break;
      case 's':
        s = kSpace;
        break;
      case 'S':
        s = kSpace.complement();
        break;
      case 'p':
      case 'P': {
        bool negative = p_[i_] == 'P';
        ++i_;
        std::string name;
        if (take('{')) {
          while (more() && !at('}')) append_utf8(name, p_[i_++]);
          if (!more()) fail("unterminated property name");
        } else {
          fail("expected '{' after \\p");
        }
        s = property(name);
        if (negative) s = s.complement();
        break;
      }
      default:
        return false;
    }
    ++i_;
    return true;
  }

  CharSet property(std::string name) const {
    for (const char* prefix : {"General_Category=", "gc="})
      if (name.rfind(prefix, 0) == 0) name = name.substr(std::string(prefix).size());
    static const std::pair<const char*, const char*> longer[] = {{"Letter", "L"},
                                                                 {"Lowercase_Letter", "Ll"},
                                                                 {"Uppercase_Letter", "Lu"},
                                                                 {"Titlecase_Letter", "Lt"},
                                                                 {"Modifier_Letter", "Lm"},
                                                                 {"Other_Letter", "Lo"},
                                                                 {"Mark", "M"},
                                                                 {"Nonspacing_Mark", "Mn"},
                                                                 {"Spacing_Mark", "Mc"},
                                                                 {"Enclosing_Mark", "Me"},
                                                                 {"Number", "N"},
                                                                 {"Decimal_Number", "Nd"},
                                                                 {"digit", "Nd"},
                                                                 {"Letter_Number", "Nl"},
                                                                 {"Other_Number", "No"},
                                                                 {"Punctuation", "P"},
                                                                 {"punct", "P"},
                                                                 {"Connector_Punctuation", "Pc"},
                                                                 {"Dash_Punctuation", "Pd"},
                                                                 {"Open_Punctuation", "Ps"},
                                                                 {"Close_Punctuation", "Pe"},
                                                                 {"Initial_Punctuation", "Pi"},
                                                                 {"Final_Punctuation", "Pf"},
                                                                 {"Other_Punctuation", "Po"},
                                                                 {"Symbol", "S"},
                                                                 {"Math_Symbol", "Sm"},
                                                                 {"Currency_Symbol", "Sc"},
                                                                 {"Modifier_Symbol", "Sk"},
                                                                 {"Other_Symbol", "So"},
                                                                 {"Separator", "Z"},
                                                                 {"Space_Separator", "Zs"},
                                                                 {"Line_Separator", "Zl"},
                                                                 {"Paragraph_Separator", "Zp"},
                                                                 {"Other", "C"},
                                                                 {"Control", "Cc"},
                                                                 {"cntrl", "Cc"},
                                                                 {"Format", "Cf"},
                                                                 {"Private_Use", "Co"},
                                                                 {"Unassigned", "Cn"}};
    for (auto& [from, to] : longer)
      if (name == from) name = to;
    if (name == "Any") return CharSet::all();
    if (name == "ASCII") return CharSet::of({{0, 127}});
    CharSet s;
    for (auto& c : kCategories)
      if (name == c.name || (name.size() == 1 && name[0] == c.name[0]) ||
          (name == "LC" && c.name[0] == 'L' && (c.name[1] == 'l' || c.name[1] == 'u' || c.name[1] == 't')))
        for (size_t i = 0; i < c.n; ++i) s.add(c.ranges[2 * i], c.ranges[2 * i + 1]);
    if (s.ranges.empty()) fail("the Unicode property '" + name + "', which is not supported,");
    s.normalise();
    return s;
  }

  uint32_t hex(int digits) {
    uint32_t v = 0;
    for (int k = 0; k < digits; ++k) {
      uint32_t c = more() ? p_[i_++] : 0;
      if (c >= '0' && c <= '9')
        v = v * 16 + c - '0';
      else if (c >= 'a' && c <= 'f')
        v = v * 16 + c - 'a' + 10;
      else if (c >= 'A' && c <= 'F')
        v = v * 16 + c - 'A' + 10;
      else
        fail("bad hexadecimal escape");
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
        if (v >= 0xD800 && v < 0xDC00 && i_ + 1 < p_.size() && p_[i_] == '\\' && p_[i_ + 1] == 'u') {
          size_t back = i_;
          i_ += 2;
          uint32_t lo = hex(4);
          if (lo >= 0xDC00 && lo < 0xE000) return 0x10000 + ((v - 0xD800) << 10) + (lo - 0xDC00);
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
    if (fold_ && negative) {
      CharSet more;
      for (auto r : s.ranges)
        for (uint32_t c = 'a'; c <= 'z'; ++c) {
          if (c >= r.first && c <= r.second) more.add(c - 32, c - 32);
          if (c - 32 >= r.first && c - 32 <= r.second) more.add(c, c);
        }
      s.add(more);
      s.normalise();
    }
    return negative ? s.complement() : s;
  }
};

// Translation with the rest of the match as an argument, so that an assertion can speak about everything
// after it.
class Translator {
 public:
  Translator(Terms& terms, Budget& budget) : t_(terms), budget_(budget) {}

  enum class Before { Nothing, Something, Either };

  Terms::Id plain(const Node& n) {
    switch (n.kind) {
      case Kind::Term:
        return n.term;
      case Kind::Concat: {
        Terms::Id out = t_.epsilon();
        for (size_t i = n.kids.size(); i-- > 0;) out = t_.concat(plain(n.kids[i]), out);
        return out;
      }
      case Kind::Alt: {
        std::vector<Terms::Id> parts;
        for (auto& k : n.kids) parts.push_back(plain(k));
        return t_.alt(std::move(parts));
      }
      case Kind::Repeat:
        return t_.repeat(plain(n.kids[0]), n.min, n.max);
      default:
        refuse("an assertion inside a repetition");
    }
  }

  Terms::Id with_rest(const Node& n, Terms::Id rest, Before before) {
    budget_.tick();
    if (++steps_ > 100000) throw CompileError("budget", "", "a regular expression with too many assertions");
    if (!n.special) return t_.concat(plain(n), rest);
    switch (n.kind) {
      case Kind::Concat: {
        std::vector<Before> b{before};
        for (auto& k : n.kids) b.push_back(after(k, b.back()));
        for (size_t i = n.kids.size(); i-- > 0;) rest = with_rest(n.kids[i], rest, b[i]);
        return rest;
      }
      case Kind::Alt: {
        std::vector<Terms::Id> parts;
        for (auto& k : n.kids) parts.push_back(with_rest(k, rest, before));
        return t_.alt(std::move(parts));
      }
      case Kind::Repeat: {
        if (n.max == kInf || n.max > 8) refuse("an assertion inside a repetition");
        std::vector<Terms::Id> parts;
        Terms::Id out = rest;
        if (n.max > 1 && before != Before::Something) before = Before::Either;
        for (uint32_t k = 0; k <= n.max; ++k) {
          if (k >= n.min) parts.push_back(out);
          if (k < n.max) out = with_rest(n.kids[0], out, before);
        }
        return t_.alt(std::move(parts));
      }
      case Kind::Start:
        if (before == Before::Either) refuse("'^' after something that may be empty");
        return before == Before::Nothing ? rest : t_.none();
      case Kind::End:
        return t_.both({t_.epsilon(), rest});
      case Kind::Ahead:
      case Kind::NotAhead: {
        Terms::Id look = with_rest(n.kids[0], t_.anything(), before);
        return t_.both({n.kind == Kind::Ahead ? look : t_.negate(look), rest});
      }
      case Kind::Word:
      case Kind::NotWord:
        refuse("a word boundary where its surroundings are not fixed");
      default:
        return t_.concat(n.term, rest);
    }
  }

  // Whether something precedes what follows n.
  Before after(const Node& n, Before before) {
    if (before == Before::Something) return before;
    auto [can_empty, can_fill] = widths(n);
    if (!can_fill) return before;
    return can_empty ? Before::Either : Before::Something;
  }

  [[noreturn]] static void refuse(const char* what) {
    throw CompileError("pattern", "",
                       std::string("the regular expression has ") + what + ", which is not supported");
  }

 private:
  Terms& t_;
  Budget& budget_;
  uint32_t steps_ = 0;

  std::pair<bool, bool> widths(const Node& n) {
    switch (n.kind) {
      case Kind::Term:
        return {t_.nullable(n.term), n.term != t_.epsilon()};
      case Kind::Concat: {
        std::pair<bool, bool> w{true, false};
        for (auto& k : n.kids) {
          auto x = widths(k);
          w.first &= x.first, w.second |= x.second;
        }
        return w;
      }
      case Kind::Alt: {
        std::pair<bool, bool> w{false, false};
        for (auto& k : n.kids) {
          auto x = widths(k);
          w.first |= x.first, w.second |= x.second;
        }
        return w;
      }
      case Kind::Repeat: {
        auto x = widths(n.kids[0]);
        return {n.min == 0 || x.first, n.max > 0 && x.second};
      }
      default:
        return {true, false};
    }
  }
};

Pattern compile_uncached(std::string_view source, bool whole, Budget& budget) {
  Terms terms(budget);
  Node n = Reader(source, terms, budget).read();
  Translator tr(terms, budget);
  Terms::Id root;
  if (whole) {
    root = tr.with_rest(n, terms.epsilon(), Translator::Before::Nothing);
  } else {
    Terms::Id first = tr.with_rest(n, terms.anything(), Translator::Before::Nothing);
    Terms::Id later = tr.with_rest(n, terms.anything(), Translator::Before::Something);
    if (first == later)
      root = terms.concat(terms.anything(), first);
    else
      root =
          terms.alt({first, terms.concat(terms.set(CharSet::all()), terms.concat(terms.anything(), later))});
  }
  // A counted run of one set is that set's star, cut to a window of lengths.
  Pattern p;
  const auto& t = terms.term(root);
  if (t.op == Terms::Op::Repeat && terms.term(t.kids[0]).op == Terms::Op::Set &&
      (t.min > 1 || (t.max != kInf && t.max > 1))) {
    p.min = t.min, p.max = t.max;
    Terms::Id body = t.kids[0];
    root = terms.repeat(body, 0, kInf);
  }
  p.lang = terms.compile(root);
  return p;
}

struct Cache {
  std::mutex lock;
  std::list<std::string> order;
  std::unordered_map<std::string, Pattern> map;
};

}  // namespace

Pattern compile_pattern(std::string_view source, bool whole, Budget& budget) {
  static Cache cache;
  std::string key = (whole ? "w" : "s") + std::string(source);
  {
    std::lock_guard<std::mutex> hold(cache.lock);
    if (auto it = cache.map.find(key); it != cache.map.end()) return it->second;
  }
  Pattern p = compile_uncached(source, whole, budget);
  if (source.size() <= 4096 && p.lang->n_states() <= 4096) {
    std::lock_guard<std::mutex> hold(cache.lock);
    if (cache.map.emplace(key, p).second) {
      cache.order.push_back(key);
      if (cache.order.size() > 1024) {
        cache.map.erase(cache.order.front());
        cache.order.pop_front();
      }
    }
  }
  return p;
}

}  // namespace llamay::grammar
