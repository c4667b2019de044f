// A reader of regular expressions by recursive descent.
#include "regex/syntax.h"

#include <set>
#include <utility>

#include "regex/characters.h"

namespace llamay::grammar {
namespace {

class Reader : RegexCharacters {
 public:
  Reader(std::string_view source, Terms& terms, Budget& budget)
      : RegexCharacters(source), terms_(terms), budget_(budget) {}

  RegexNode read() {
    if (at("(?i)")) fold_ = true, i_ = 4;
    RegexNode n = alternatives(0);
    if (i_ < p_.size()) fail("unmatched ')'");
    return n;
  }

 private:
  Terms& terms_;
  Budget& budget_;

  std::set<std::vector<uint32_t>> names_;  // of the groups that can take part in one match with the next one

  RegexNode alternatives(uint32_t depth) {
    if (depth > budget_.depth) fail("groups nested too deep");
    RegexNode alt;
    alt.kind = RegexNode::Alt;
    const auto before = names_;
    auto all = names_;
    do {
      names_ = before;
      RegexNode seq;
      seq.kind = RegexNode::Concat;
      while (more() && !at('|') && !at(')')) {
        budget_.tick();
        seq.kids.push_back(quantified(depth));
        seq.special |= seq.kids.back().special;
      }
      alt.special |= seq.special;
      alt.kids.push_back(seq.kids.size() == 1 ? std::move(seq.kids[0]) : std::move(seq));
      all.insert(names_.begin(), names_.end());
    } while (consume('|'));
    names_ = std::move(all);
    return alt.kids.size() == 1 ? std::move(alt.kids[0]) : std::move(alt);
  }

  RegexNode quantified(uint32_t depth) {
    RegexNode a = atom(depth);
    uint32_t min, max;
    if (!quantifier(min, max)) return a;
    if (max < min) fail("a repetition whose maximum is below its minimum");
    if (a.kind == RegexNode::Start || a.kind == RegexNode::End || a.kind == RegexNode::Word ||
        a.kind == RegexNode::NotWord)
      fail("nothing to repeat");
    consume('?');
    RegexNode r;
    r.kind = RegexNode::Repeat, r.min = min, r.max = max, r.special = a.special;
    r.kids.push_back(std::move(a));
    const size_t back = i_;
    if (quantifier(min, max)) i_ = back, fail("a second quantifier; put the first one into a group,");
    return r;
  }

  bool quantifier(uint32_t& min, uint32_t& max) {
    if (consume('*'))
      min = 0, max = kInf;
    else if (consume('+'))
      min = 1, max = kInf;
    else if (consume('?'))
      min = 0, max = 1;
    else
      return at('{') && counts(min, max);
    return true;
  }

  bool counts(uint32_t& min, uint32_t& max) {  // at '{'; leaves the position alone when it is no quantifier
    const size_t back = i_++;
    if (const auto low = decimal(kInf - 1)) {
      min = max = *low;
      if (consume(',')) max = decimal(kInf - 1).value_or(kInf);
      if (consume('}')) return true;
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
    RegexNode n;
    n.term = terms_.set(meant(std::move(s)).without_surrogates());
    return n;
  }

  RegexNode group(uint32_t depth) {  // behind its parenthesis
    const RegexNode::Kind look = consume('?') ? group_kind() : RegexNode::Term;
    RegexNode n = alternatives(depth + 1);
    if (!consume(')')) fail("missing ')'");
    if (look == RegexNode::Term) return n;
    RegexNode l = assertion(look);
    l.kids.push_back(std::move(n));
    return l;
  }

  RegexNode::Kind group_kind() {
    if (consume(':')) return RegexNode::Term;
    if (consume('=')) return RegexNode::Ahead;
    if (consume('!')) return RegexNode::NotAhead;
    if (!consume('<')) fail("unknown group syntax");
    if (at('=') || at('!')) fail("a lookbehind, which is not supported,");
    std::vector<uint32_t> name;
    const size_t back = i_;
    while (more() && !at('>')) {
      const uint32_t c = p_[i_];
      const bool letter = (c | 32) >= 'a' && (c | 32) <= 'z', digit = c >= '0' && c <= '9';
      if (!letter && c != '_' && c != '$' && c < 128 && (!digit || name.empty()))
        fail("a group name that is no identifier");
      name.push_back(c), ++i_;
    }
    if (!more()) fail("unterminated group name");
    if (name.empty()) fail("a group without a name");
    if (!names_.insert(std::move(name)).second) i_ = back, fail("a group name that another group has");
    consume('>');
    return RegexNode::Term;
  }

  RegexNode atom(uint32_t depth) {
    uint32_t c = p_[i_++];
    switch (c) {
      case '^':
        return assertion(RegexNode::Start);
      case '$':
        return assertion(RegexNode::End);
      case '.':
        return chars(dot());
      case '[':
        return chars(char_class());
      case '(':
        return group(depth);
      case '\\': {
        if (!more()) fail("a lone backslash at the end");
        if (consume('b')) return assertion(RegexNode::Word);
        if (consume('B')) return assertion(RegexNode::NotWord);
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
      case '{': {
        uint32_t min, max;
        --i_;
        if (counts(min, max)) fail("nothing to repeat");
        ++i_;
        return chars(CharSet::of({{c, c}}));
      }
      default:
        return chars(CharSet::of({{c, c}}));
    }
  }
};

}  // namespace

RegexNode read_regex(std::string_view source, Terms& terms, Budget& budget) {
  return Reader(source, terms, budget).read();
}

}  // namespace llamay::grammar
