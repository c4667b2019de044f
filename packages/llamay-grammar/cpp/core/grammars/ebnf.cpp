// Rules in the EBNF of the W3C's specifications: https://www.w3.org/TR/REC-xml/#sec-notation
#include "grammars/reader.h"
#include "support/budget.h"

namespace llamay::grammar {
namespace {

class Ebnf : GrammarReader {
 public:
  using GrammarReader::GrammarReader;

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
      consume(';');
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
    while (consume('|')) alternatives.push_back(sequence(d));
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
      } else if (consume('(')) {
        e = choice(d + 1);
        space();
        if (!consume(')')) fail("expected ')'");
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
      if (consume('*'))
        e = repeat(std::move(e), 0, kInf);
      else if (consume('+'))
        e = repeat(std::move(e), 1, kInf);
      else if (consume('?'))
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

std::string read_ebnf(const std::string& source, NetworkBuilder& builder, Budget& budget) {
  return Ebnf(source, budget).read(builder);
}

}  // namespace llamay::grammar
