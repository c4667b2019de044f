// Rules in llama.cpp's GBNF: https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md
#include "grammars/reader.h"
#include "support/budget.h"

namespace llamay::grammar {
namespace {

class Gbnf : GrammarReader {
 public:
  using GrammarReader::GrammarReader;

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
    while (consume('|')) {
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
        if (!consume(')')) fail("expected ')'");
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
      if (consume('*')) {
        e = repeat(std::move(e), 0, kInf);
      } else if (consume('+')) {
        e = repeat(std::move(e), 1, kInf);
      } else if (consume('?')) {
        e = repeat(std::move(e), 0, 1);
      } else if (consume('{')) {
        space(false);
        uint32_t min = at(',') ? 0 : number(), max = min;
        space(false);
        if (consume(',')) {
          space(false);
          max = at('}') ? kInf : number();
          space(false);
        }
        if (!consume('}')) fail("expected '}'");
        if (max < min) fail("a repetition whose maximum is below its minimum");
        e = repeat(std::move(e), min, max);
      } else {
        break;
      }
    }
    return e;
  }

  uint32_t character() {
    if (!consume('\\')) return p_[i_++];
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
      if (consume('"')) return e;
      append_utf8(e.text, character());
    }
  }

  Expr set() {
    return character_class([&] { return character(); });
  }
};

}  // namespace

void read_gbnf(const std::string& source, NetworkBuilder& builder, Budget& budget) {
  Gbnf(source, budget).read(builder);
}

}  // namespace llamay::grammar
