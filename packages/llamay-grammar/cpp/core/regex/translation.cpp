// The translation of assertions to intersections with the rest of the expression.
#include "regex/translation.h"

#include <string>
#include <utility>

#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

// Whether the text before a position is empty, non-empty, or either.
enum class Before : uint8_t { Nothing, Something, Either };

// The translation has the rest of the expression as an argument (continuation-passing style), because an
// assertion constrains the whole text after its position.
class Translator {
 public:
  Translator(Terms& terms, Budget& budget) : t_(terms), budget_(budget) {}

  // Returns the texts that are a match of `n` followed by a text of `rest`.
  Terms::Id with_rest(const RegexNode& n, Terms::Id rest, Before before) {
    budget_.tick();
    if (++steps_ > 100000) throw CompileError("budget", "", "a regular expression with too many assertions");
    if (!n.special) return t_.concat(plain(n), rest);
    switch (n.kind) {
      case RegexNode::Concat: {
        std::vector<Before> b{before};
        for (auto& k : n.kids) b.push_back(after(k, b.back()));
        for (size_t i = n.kids.size(); i-- > 0;) rest = with_rest(n.kids[i], rest, b[i]);
        return rest;
      }
      case RegexNode::Alt: {
        std::vector<Terms::Id> parts;
        for (auto& k : n.kids) parts.push_back(with_rest(k, rest, before));
        return t_.alt(std::move(parts));
      }
      case RegexNode::Repeat: {
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
      case RegexNode::Start:
        if (before == Before::Either) refuse("'^' after something that may be empty");
        return before == Before::Nothing ? rest : t_.none();
      case RegexNode::End:
        return t_.both({t_.epsilon(), rest});
      case RegexNode::Ahead:
      case RegexNode::NotAhead: {
        Terms::Id look = with_rest(n.kids[0], t_.anything(), before);
        return t_.both({n.kind == RegexNode::Ahead ? look : t_.negate(look), rest});
      }
      case RegexNode::Word:
      case RegexNode::NotWord:
        refuse("a word boundary where its surroundings are not fixed");
      default:
        return t_.concat(n.term, rest);
    }
  }

 private:
  Terms& t_;
  Budget& budget_;
  uint32_t steps_ = 0;

  [[noreturn]] static void refuse(const char* what) {
    throw CompileError("pattern", "",
                       std::string("the regular expression has ") + what + ", which is not supported");
  }

  // Returns the term of a node without assertions, which does not depend on the text after the match.
  Terms::Id plain(const RegexNode& n) {
    switch (n.kind) {
      case RegexNode::Term:
        return n.term;
      case RegexNode::Concat: {
        Terms::Id out = t_.epsilon();
        for (size_t i = n.kids.size(); i-- > 0;) out = t_.concat(plain(n.kids[i]), out);
        return out;
      }
      case RegexNode::Alt: {
        std::vector<Terms::Id> parts;
        for (auto& k : n.kids) parts.push_back(plain(k));
        return t_.alt(std::move(parts));
      }
      case RegexNode::Repeat:
        return t_.repeat(plain(n.kids[0]), n.min, n.max);
      default:
        refuse("an assertion inside a repetition");
    }
  }

  // Returns the state of the text before the position after `n`.
  Before after(const RegexNode& n, Before before) {
    if (before == Before::Something) return before;
    auto [can_empty, can_fill] = widths(n);
    if (!can_fill) return before;
    return can_empty ? Before::Either : Before::Something;
  }

  // Returns whether `n` can match the empty text, and whether `n` can match a non-empty text.
  std::pair<bool, bool> widths(const RegexNode& n) {
    switch (n.kind) {
      case RegexNode::Term:
        return {t_.nullable(n.term), n.term != t_.epsilon()};
      case RegexNode::Concat: {
        std::pair<bool, bool> w{true, false};
        for (auto& k : n.kids) {
          auto x = widths(k);
          w.first &= x.first, w.second |= x.second;
        }
        return w;
      }
      case RegexNode::Alt: {
        std::pair<bool, bool> w{false, false};
        for (auto& k : n.kids) {
          auto x = widths(k);
          w.first |= x.first, w.second |= x.second;
        }
        return w;
      }
      case RegexNode::Repeat: {
        auto x = widths(n.kids[0]);
        return {n.min == 0 || x.first, n.max > 0 && x.second};
      }
      default:
        return {true, false};
    }
  }
};

}  // namespace

Terms::Id translate_regex(const RegexNode& node, bool whole, Terms& terms, Budget& budget) {
  Translator translator(terms, budget);
  if (whole) return translator.with_rest(node, terms.epsilon(), Before::Nothing);
  // A match begins at the start of the text, or behind at least one character.
  const Terms::Id first = translator.with_rest(node, terms.anything(), Before::Nothing);
  const Terms::Id later = translator.with_rest(node, terms.anything(), Before::Something);
  if (first == later) return terms.concat(terms.anything(), first);
  return terms.alt({first, terms.concat(terms.set(CharSet::all()), terms.concat(terms.anything(), later))});
}

}  // namespace llamay::grammar
