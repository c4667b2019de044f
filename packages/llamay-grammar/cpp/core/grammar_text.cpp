#include <algorithm>

#include "json.h"
#include "network.h"

namespace llamay::grammar {
namespace {

// What the two notations share: characters, comments and positions.
class TextReader {
 public:
  TextReader(const std::string& source, Budget& budget) : budget_(budget) {
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

 protected:
  std::vector<uint32_t> p_;
  size_t i_ = 0;
  Budget& budget_;

  [[noreturn]] void fail(const std::string& what) const {
    size_t line = 1, column = 1;
    for (size_t k = 0; k < i_ && k < p_.size(); ++k) {
      ++column;
      if (p_[k] == '\n') ++line, column = 1;
    }
    throw CompileError("grammar", "",
                       what + " (line " + std::to_string(line) + ", column " + std::to_string(column) + ")");
  }
  bool more() const { return i_ < p_.size(); }
  bool at(uint32_t c) const { return i_ < p_.size() && p_[i_] == c; }
  bool at(const char* text) const {
    size_t k = i_;
    for (; *text; ++text, ++k)
      if (k >= p_.size() || p_[k] != static_cast<uint8_t>(*text)) return false;
    return true;
  }
  bool take(uint32_t c) { return at(c) ? (++i_, true) : false; }
  static bool name_char(uint32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string name() {
    std::string n;
    while (more() && name_char(p_[i_])) n.push_back(static_cast<char>(p_[i_++]));
    if (n.empty()) fail("expected the name of a rule");
    return n;
  }
  uint32_t number() {
    uint64_t v = 0;
    size_t b = i_;
    while (more() && p_[i_] >= '0' && p_[i_] <= '9')
      v = std::min<uint64_t>(v * 10 + p_[i_++] - '0', kInf - 1);
    if (i_ == b) fail("expected a number");
    return static_cast<uint32_t>(v);
  }
  uint32_t hex(int most, bool exactly) {
    uint32_t v = 0;
    int n = 0;
    for (; n < most && more(); ++n) {
      uint32_t c = p_[i_], d;
      if (c >= '0' && c <= '9')
        d = c - '0';
      else if (c >= 'a' && c <= 'f')
        d = c - 'a' + 10;
      else if (c >= 'A' && c <= 'F')
        d = c - 'A' + 10;
      else
        break;
      v = v * 16 + d;
      ++i_;
    }
    if (n == 0 || (exactly && n != most)) fail("expected hexadecimal digits");
    if (v > kMaxCodePoint || (v >= 0xD800 && v < 0xE000)) fail("not a character");
    return v;
  }
  // From its opening bracket on; `character` reads one, in the notation's way of writing it.
  template <class Character>
  Expr character_class(Character character) {
    ++i_;
    Expr e;
    e.kind = Expr::Set;
    bool negative = take('^');
    while (true) {
      if (!more()) fail("a character class without its closing bracket");
      if (take(']')) break;
      uint32_t lo = character(), hi = lo;
      if (at('-') && i_ + 1 < p_.size() && p_[i_ + 1] != ']') {
        ++i_;
        hi = character();
        if (hi < lo) fail("a character range in the wrong order");
      }
      e.set.add(lo, hi);
    }
    e.set.normalise();
    if (negative) e.set = e.set.complement();
    return e;
  }
  static Expr repeat(Expr e, uint32_t min, uint32_t max) {
    Expr r;
    r.kind = Expr::Repeat, r.min = min, r.max = max;
    r.kids.push_back(std::move(e));
    return r;
  }
  static Expr one(std::vector<Expr> kids, Expr::Kind kind) {
    if (kids.size() == 1) return std::move(kids[0]);
    Expr e;
    e.kind = kind, e.kids = std::move(kids);
    return e;
  }
  void depth(uint32_t d) const {
    if (d > budget_.depth) fail("groups nested too deep");
  }
};

class Gbnf : TextReader {
 public:
  using TextReader::TextReader;

  void read(NetworkBuilder& out) {
    space(true);
    if (!more()) fail("the grammar is empty");
    while (more()) {
      std::string rule = name();
      space(false);
      if (!at("::=")) fail("expected '::='");
      i_ += 3;
      space(true);
      out.define(rule, choice(0, false));
      space(true);
    }
  }

 private:
  void space(bool lines) {
    while (more()) {
      if (at('#')) {
        while (more() && !at('\n')) ++i_;
      } else if (at(' ') || at('\t') || (lines && (at('\n') || at('\r')))) {
        ++i_;
      } else {
        break;
      }
    }
  }

  Expr choice(uint32_t d, bool nested) {
    depth(d);
    std::vector<Expr> alternatives{sequence(d, nested)};
    while (take('|')) {
      space(true);
      alternatives.push_back(sequence(d, nested));
    }
    return one(std::move(alternatives), Expr::Choice);
  }

  Expr sequence(uint32_t d, bool nested) {
    std::vector<Expr> parts;
    while (more()) {
      budget_.tick();
      if (at('"')) {
        parts.push_back(literal());
      } else if (at('[')) {
        parts.push_back(set());
      } else if (at('.')) {
        ++i_;
        Expr e;
        e.kind = Expr::Set, e.set = CharSet::all();
        parts.push_back(std::move(e));
      } else if (at('(')) {
        ++i_;
        space(true);
        parts.push_back(choice(d + 1, true));
        if (!take(')')) fail("expected ')'");
      } else if (name_char(p_[i_])) {
        // A name that is followed by "::=" begins the next rule.
        size_t back = i_;
        Expr e;
        e.kind = Expr::Rule, e.text = name();
        size_t after = i_;
        space(false);
        if (at("::=")) {
          i_ = back;
          break;
        }
        i_ = after;
        parts.push_back(std::move(e));
      } else if (at('<') || at('!')) {
        fail("tokens by number or name; write the text they stand for,");
      } else {
        break;
      }
      parts.back() = quantified(std::move(parts.back()));
      space(nested);
      if (!nested && more() && (at('\n') || at('\r'))) {
        // Outside of groups a line ends the rule, unless the next one goes on with '|'.
        size_t back = i_;
        space(true);
        if (!at('|')) {
          i_ = back;
          break;
        }
      }
    }
    return one(std::move(parts), Expr::Sequence);
  }

  Expr quantified(Expr e) {
    while (more()) {
      if (take('*')) {
        e = repeat(std::move(e), 0, kInf);
      } else if (take('+')) {
        e = repeat(std::move(e), 1, kInf);
      } else if (take('?')) {
        e = repeat(std::move(e), 0, 1);
      } else if (take('{')) {
        space(false);
        uint32_t min = at(',') ? 0 : number(), max = min;
        space(false);
        if (take(',')) {
          space(false);
          max = at('}') ? kInf : number();
          space(false);
        }
        if (!take('}')) fail("expected '}'");
        if (max < min) fail("a repetition whose maximum is below its minimum");
        e = repeat(std::move(e), min, max);
      } else {
        break;
      }
    }
    return e;
  }

  uint32_t character() {
    if (!take('\\')) return p_[i_++];
    if (!more()) fail("a lone backslash at the end");
    uint32_t c = p_[i_++];
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hex(2, true);
      case 'u':
        return hex(4, true);
      case 'U':
        return hex(8, true);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return c;
      default:
        --i_;
        fail("unknown escape");
    }
  }

  Expr literal() {
    ++i_;
    Expr e;
    e.kind = Expr::Text;
    while (true) {
      if (!more() || at('\n')) fail("a literal without its closing quote");
      if (take('"')) return e;
      append_utf8(e.text, character());
    }
  }

  Expr set() {
    return character_class([&] { return character(); });
  }
};

// https://www.w3.org/TR/REC-xml/#sec-notation
class Ebnf : TextReader {
 public:
  using TextReader::TextReader;

  std::string read(NetworkBuilder& out) {
    std::string first;
    space();
    if (!more()) fail("the grammar is empty");
    while (more()) {
      std::string rule = name();
      if (first.empty()) first = rule;
      space();
      if (!at("::=")) fail("expected '::='");
      i_ += 3;
      out.define(rule, choice(0));
      space();
      take(';');
      space();
    }
    return first;
  }

 private:
  void space() {
    while (more()) {
      if (at("/*")) {
        while (more() && !at("*/")) ++i_;
        if (!more()) fail("a comment without its end");
        i_ += 2;
      } else if (at(' ') || at('\t') || at('\n') || at('\r')) {
        ++i_;
      } else {
        break;
      }
    }
  }

  Expr choice(uint32_t d) {
    depth(d);
    std::vector<Expr> alternatives{sequence(d)};
    while (take('|')) alternatives.push_back(sequence(d));
    return one(std::move(alternatives), Expr::Choice);
  }

  Expr sequence(uint32_t d) {
    std::vector<Expr> parts;
    while (true) {
      budget_.tick();
      space();
      if (!more()) break;
      Expr e;
      if (at('"') || at('\'')) {
        uint32_t quote = p_[i_++];
        e.kind = Expr::Text;
        while (!at(quote)) {
          if (!more()) fail("a literal without its closing quote");
          append_utf8(e.text, p_[i_++]);
        }
        ++i_;
      } else if (at("#x")) {
        i_ += 2;
        e.kind = Expr::Text;
        append_utf8(e.text, hex(8, false));
      } else if (at('[')) {
        e = set();
      } else if (take('(')) {
        e = choice(d + 1);
        space();
        if (!take(')')) fail("expected ')'");
      } else if (name_char(p_[i_])) {
        size_t back = i_;
        e.kind = Expr::Rule, e.text = name();
        space();
        if (at("::=")) {
          i_ = back;
          break;
        }
      } else {
        break;
      }
      space();
      if (at('-')) {  // A - B: characters only, where it is exact
        ++i_;
        space();
        if (e.kind != Expr::Set || !at('[')) fail("'-' is supported between character classes only");
        Expr minus = set();
        CharSet keep = e.set.complement();
        keep.add(minus.set);
        keep.normalise();
        e.set = keep.complement();
        space();
      }
      if (take('*'))
        e = repeat(std::move(e), 0, kInf);
      else if (take('+'))
        e = repeat(std::move(e), 1, kInf);
      else if (take('?'))
        e = repeat(std::move(e), 0, 1);
      parts.push_back(std::move(e));
    }
    return one(std::move(parts), Expr::Sequence);
  }

  Expr set() {
    return character_class([&]() -> uint32_t {
      if (!at("#x")) return p_[i_++];
      i_ += 2;
      return hex(8, false);
    });
  }
};

}  // namespace

void read_gbnf(const std::string& source, NetworkBuilder& builder, Budget& budget) {
  Gbnf(source, budget).read(builder);
}

std::string read_ebnf(const std::string& source, NetworkBuilder& builder, Budget& budget) {
  return Ebnf(source, budget).read(builder);
}

}  // namespace llamay::grammar
