// Numbers and lexemes of the network: entries, and the tokens that cross the end of a lexeme.
#include "masks/walk.h"

namespace llamay::grammar {

namespace {

// The number of trie nodes that the search for an end of a text visits before it assumes that there is an
// end.
constexpr uint32_t kFewLooks = 64;

}  // namespace

const Language* MaskWalk::words_only(const Configuration& t) const {
  if (t.scan != 0) return nullptr;
  const Program& p = m.program();
  const Language* l = t.mode == Mode::String   ? p.strings[t.a].language.get()
                      : t.mode == Mode::Number ? p.numbers[t.a].language.get()
                      : t.mode == Mode::Raw    ? p.lexemes[t.a].language.get()
                                               : nullptr;
  if (!l || !l->trie) return nullptr;
  // A number, or a lexeme of the net, may end before any byte.
  return t.mode != Mode::String && m.may_end_here(t) ? nullptr : l;
}

bool MaskWalk::number(const Trie& trie, uint32_t n, const Configuration& t, TrieId id) {
  const NumberAtom& a = m.program().numbers[t.a];
  if (a.language->trie || m.unique_item(t) || m.watched(t)) return false;
  const uint32_t max = a.max == kInf ? kInf : a.max - t.count;
  if (v.reaches(*a.language, max)) return false;
  const bool member = t.top->place == Place::Array || t.top->place == Place::Object;
  const Lexeme kind = member ? Lexeme::Member : Lexeme::Plain;
  lexeme(trie, n, t, v.entry(kind, *a.language, t.state, t.scan, 0, kInf, n, id), true);
  return true;
}

bool MaskWalk::numbers(const Trie& trie, const Configuration& t) {
  const Node& node = m.program().nodes[t.a];
  // The bytes are read one by one if a space must come first, if the text is compared with other items, or if
  // the value has several kinds of numbers.
  if (m.space_missing(t) || t.text || node.numbers.size() != 1) return false;
  Configuration x;
  x.mode = Mode::Number, x.a = node.numbers[0], x.top = t.top, x.text = t.text;
  return number(trie, 0, x, &trie == &main ? TrieId::All : TrieId::Symbols);
}

void MaskWalk::lexeme(const Trie& trie, uint32_t n, const Configuration& t, const EntryPtr& e,
                      bool open_ended) {
  stay(*e);
  if (!e->exits.empty())
    cross(e, n, t, [&] {
      Configurations& after = buffer();
      m.finish_lexeme(m.blurred(t, s), after, s);
      for (const auto& x : e->exits) follow(*x.rest, 0, after, !open_ended);
      --depth;
    });
  if (open_ended && m.may_end_here(t)) {
    Configurations& after = buffer();
    m.finish_lexeme(t, after, s);
    follow(trie, n, after, false);
    --depth;
  }
}

// Whether a word of a language may end inside a token; also true if the search reaches its limit.
bool MaskWalk::ends_inside(const Trie& trie, uint32_t n, const Language& language, uint32_t state,
                           uint32_t& looks) {
  const bool wide = language.any_next(state, 128, kMaxCodePoint, [](uint32_t next) { return next != kDead; });
  const Trie::Kids kids = trie.kids(n);
  for (uint32_t k = 0; k < kids.n; ++k) {
    if (kids.bytes[k] >= 128) {
      if (wide) return true;
      continue;
    }
    const uint32_t next = language.next(state, kids.bytes[k]);
    if (next == kDead) continue;
    if (looks-- == 0 || language.accepts(next) || ends_inside(trie, kids.nodes[k], language, next, looks))
      return true;
  }
  return false;
}

void MaskWalk::ends(const Trie& trie, uint32_t n, const Configuration& t) {
  // The part after the lexeme may be large, such as a call of one of many tools, and few tokens end a text.
  // So the walk begins with a search for such a token.
  uint32_t looks = kFewLooks;
  if (t.scan == 0 && !m.may_end_here(t) &&
      !ends_inside(trie, n, *m.program().lexemes[t.a].language, t.state, looks))
    return;
  Configurations after, got;
  m.finish_lexeme(t, after, s);
  uint64_t first = 0;
  for (uint32_t b = 0; b < 256; ++b) {
    got.clear();
    for (const Configuration& x : after) m.step(x, static_cast<uint8_t>(b), got, s);
    if (!got.empty()) first |= b < 128 ? uint64_t{1} << byte_class(static_cast<uint8_t>(b)) : kWideClasses;
  }
  if (m.may_end_here(t))
    for (const Configuration& x : after) walk(trie, n, x);
  Configuration alone = t;
  alone.top = nowhere();
  inner(trie, n, alone, after, first);
}

void MaskWalk::inner(const Trie& trie, uint32_t n, const Configuration& t, const Configurations& after,
                     uint64_t first) {
  Configurations next;
  const Trie::Kids kids = trie.kids(n);
  for (uint32_t k = 0; k < kids.n; ++k) {
    const uint32_t c = kids.nodes[k];
    if ((trie.below(c) & first) == 0) continue;
    next.clear();
    m.step(t, kids.bytes[k], next, s);
    for (const Configuration& x : next) {
      if (x.mode != Mode::Raw) continue;
      if (m.may_end_here(x))
        for (const Configuration& a : after) walk(trie, c, a);
      inner(trie, c, x, after, first);
    }
  }
}

const Frame* MaskWalk::nowhere() {
  if (!nowhere_) {
    Frame* f = new (s.allocate(sizeof(Frame))) Frame;
    f->place = Place::Root;
    nowhere_ = f;
  }
  return nowhere_;
}

}  // namespace llamay::grammar
