// Names of members, and items under uniqueItems. An entry is valid for all texts except the declared and used
// ones; the walk follows these texts one by one.
#include "masks/walk.h"

#include "text/unicode.h"

namespace llamay::grammar {

namespace {

// Calls `one` for the children of n that can continue a text with one of the bytes `plain`, literally or as
// an escape, or that can end the text.
template <class F>
void continuations(const Trie& trie, uint32_t n, uint32_t scan, std::string_view plain, F one) {
  auto look = [&](char b) {
    if (uint32_t c = trie.child(n, static_cast<uint8_t>(b)); c != Trie::kNoNode) one(c);
  };
  if (scan == scan::kEscape) {
    // Many tokens have a backslash, but few of them continue with one of these escapes.
    constexpr std::string_view kShort = "\b\f\n\r\t\"\\/", kWritten = "bfnrt\"\\/";
    for (char b : plain)
      if (size_t i = kShort.find(b); i != std::string_view::npos) look(kWritten[i]);
    return look('u');
  }
  if (scan != 0) {
    const Trie::Kids kids = trie.kids(n);
    for (uint32_t k = 0; k < kids.n; ++k) one(kids.nodes[k]);
    return;
  }
  for (char b : plain)
    if (b != '"' && b != '\\') look(b);
  look('"'), look('\\');
}

const uint64_t kQuote = uint64_t{1} << byte_class('"'), kBackslash = uint64_t{1} << byte_class('\\');

// Whether a JSON string may contain the ASCII character unescaped.
bool plain(uint8_t b) { return b >= 0x20 && b < 0x80 && b != '"' && b != '\\'; }

}  // namespace

template <class F>
void MaskWalk::apart(bool needed, const Entry& e, F fill) {
  if (!needed) return fill();
  clear();
  uint32_t* outer = mask;
  if (zeros.empty()) zeros.emplace_back(v.words());
  std::vector<uint32_t> own = std::move(zeros.back()), list;
  zeros.pop_back();
  mask = own.data();
  const bool few = e.dense.empty();
  std::vector<uint32_t>* before = touched;
  touched = few ? &list : nullptr;
  fill();
  mask = outer, touched = before;
  if (few) {
    std::vector<uint32_t> kept;
    for (uint32_t t : list)
      if (own[t / 32] >> (t % 32) & 1) kept.push_back(t), clear_bit(own.data(), t);
    put(kept.data(), kept.size());
  } else {
    for (uint32_t i = 0, k = v.words(); i < k; ++i) mask[i] |= own[i], own[i] = 0;
  }
  zeros.push_back(std::move(own));
}

void MaskWalk::Others::ask(MaskWalk& walk, const Trie& trie, uint32_t n, uint32_t state,
                           uint32_t scan) const {
  if (state == kDead || language.all_infinite) return;
  if (scan != 0 || (!language.infinite(state) && language.count_words(state) <= taken))
    walk.ask(trie, n, false);
}

void MaskWalk::name(const Trie& trie, uint32_t n, const Configuration& t, TrieId id) {
  const ObjectAtom& a = m.program().objects[t.top->atom];
  const bool declared = t.b != kDead, used = t.top->names != nullptr;
  EntryPtr e = v.entry(string_kind(), *a.rest, t.state, t.scan, 0, kInf, n, id);
  // Tokens of nothing but whitespace begin no name, so none of them is taken back.
  apart((declared || used) && (mixed || !alone), *e, [&] {
    stay(*e);
    cross(e, n, t, [&] {
      Configurations& after = buffer();
      uint32_t closed = kDead;
      for (const auto& x : e->exits) {
        if (x.label != closed) {
          after.clear();
          m.close_unknown(m.blurred(t, s), x.label, unspelled(t), after, s);
          m.drop_repeats(after, 0, s);
          closed = x.label;
        }
        value(x.rest, after);
      }
      --depth;
    });
    const Others others{*a.rest, a.names->words.size() + t.top->count};
    if (declared) declared_names(trie, n, t, t.b, t.scan, &others, t.state);
    if (used) used_texts(trie, n, t, Machine::spelled(t.partial), others);
  });
}

void MaskWalk::head(const Trie& trie, uint32_t n, const Configuration& t, TrieId id) {
  const ObjectAtom& a = m.program().objects[t.top->atom];
  EntryPtr e = v.entry(Lexeme::Plain, *a.rest, t.state, t.scan, 0, kInf, n, id);
  stay(*e);
  cross(e, n, t, [&] {
    for (const auto& x : e->exits) {
      const Link* link = unspelled(t);
      Configurations after;
      m.close_unknown(t, x.label, link, after, s);
      follow(*x.rest, 0, after, false);
    }
  });
  if (t.b != kDead) declared_heads(trie, n, *a.names, t.b);
  const std::string prefix = Machine::spelled(t.partial);
  for (const Link* l = t.top->names; l; l = l->previous) {
    std::string_view text(l->text, l->length);
    if (l->unknown || text.substr(0, prefix.size()) != prefix) continue;
    text.remove_prefix(prefix.size());
    uint32_t c = n;
    while (!text.empty() && c != Trie::kNoNode) {
      c = trie.child(c, static_cast<uint8_t>(text[0]));
      text.remove_prefix(1);
      if (c != Trie::kNoNode) ask(trie, c, text.empty());
    }
  }
}

void MaskWalk::declared_heads(const Trie& trie, uint32_t n, const Language& names, uint32_t node) {
  const Language::Node& at = names.nodes[node];
  for (uint32_t i = at.first_child; i < at.first_child + at.n_children; ++i) {
    const uint32_t c = trie.child(n, names.nodes[i].byte);
    if (c == Trie::kNoNode) continue;
    const bool ends = names.label(i) != kDead;
    ask(trie, c, ends);
    if (!ends) declared_heads(trie, c, names, i);
  }
}

void MaskWalk::ask(const Trie& trie, uint32_t n, bool below) {
  if (below) return doubt(trie, n);
  const uint32_t* id = trie.tokens_at(n);
  doubtful.insert(doubtful.end(), id, id + trie.n_at(n));
}

void MaskWalk::item(const Trie& trie, uint32_t n, const Configuration& t, const Language& language,
                    TrieId id) {
  EntryPtr e = v.entry(string_kind(), language, t.state, t.scan, 0, kInf, n, id);
  apart(t.top->names != nullptr, *e, [&] {
    stay(*e);
    const Link* link = unspelled(t);
    Configurations after;
    m.close_item(m.blurred(t, s), link, after, s);
    m.drop_repeats(after, 0, s);
    for (const auto& x : e->exits) follow(*x.rest, 0, after, true);
    used_texts(trie, n, t, '"' + Machine::spelled(t.partial), {language, 0});
  });
}

void MaskWalk::declared_names(const Trie& trie, uint32_t n, const Configuration& t, uint32_t node,
                              uint32_t scan, const Others* others, uint32_t state) {
  if (scan != 0) return declared_escapes(trie, n, t, node, scan, others, state);
  const Language& names = *m.program().objects[t.top->atom].names;
  const uint64_t below = trie.below(n);
  const bool ends_only = others && others->everything();
  const Language::Node& at = names.nodes[node];
  bool odd = (below & kBackslash) != 0;
  for (uint32_t i = at.first_child, last = i + at.n_children; i < last; ++i) {
    const Language::Node& to = names.nodes[i];
    if (!plain(to.byte)) {
      odd = true;
      continue;
    }
    const uint32_t c = trie.child(n, to.byte);
    if (c == Trie::kNoNode || (ends_only && !(trie.below(c) & kQuote))) continue;
    uint32_t of_others = state;
    if (!ends_only) {
      if (m.any_open(t.top, to.lo, to.hi)) tokens(trie, c);
      if (of_others != kDead) of_others = others->language.next(of_others, to.byte);
      if (others) others->ask(*this, trie, c, of_others, 0);
    }
    if (!trie.leaf(c)) declared_names(trie, c, t, i, 0, others, of_others);
  }
  if (below & kQuote)
    if (uint32_t word = names.label(node); word != kDead)
      if (uint32_t c = trie.child(n, '"'); c != Trie::kNoNode) declared_end(trie, c, t, word, others);
  if (odd) declared_escapes(trie, n, t, node, scan, others, state);
}

void MaskWalk::declared_end(const Trie& trie, uint32_t n, const Configuration& t, uint32_t word,
                            const Others* others) {
  if (others) take_back(trie, n);
  if (!m.any_open(t.top, word, word + 1)) return;
  Configurations& after = buffer();
  m.close_known(m.blurred(t, s), word, after, s);
  m.drop_repeats(after, 0, s);
  follow(trie, n, after, true);
  --depth;
}

void MaskWalk::declared_escapes(const Trie& trie, uint32_t n, const Configuration& t, uint32_t node,
                                uint32_t scan, const Others* others, uint32_t state) {
  const Language& names = *m.program().objects[t.top->atom].names;
  const bool ends_only = others && others->everything();
  char next[257];
  uint32_t n_next = 0;
  const Language::Node& at = names.nodes[node];
  for (uint32_t i = at.first_child; i < at.first_child + at.n_children; ++i)
    if (const uint8_t b = names.nodes[i].byte; scan != 0 || b >= 0x80) next[n_next++] = static_cast<char>(b);
  // Whether a byte inside an escape or a character leads to names that are still open.
  auto open = [&](uint32_t x) {
    return x != kDead && m.any_open(t.top, names.nodes[x].lo, names.nodes[x].hi);
  };
  auto goes_on = [&](uint8_t byte) {
    uint32_t sc = scan;
    return scan_byte<true>(
               sc, byte, [&](uint32_t cp) { return open(names.next(node, cp)); },
               [&](uint32_t lo, uint32_t hi) { return names.any_next(node, lo, hi, open); },
               canonical()) == Scan::Live;
  };
  auto read = [&](uint32_t c) {
    if (ends_only && !(trie.below(c) & kQuote)) return;
    uint32_t to = node, sc = scan, of_others = state;
    Scan r = scan_byte<true>(
        sc, trie.byte(c),
        [&](uint32_t cp) {
          to = names.next(to, cp);
          if (of_others != kDead) of_others = others->language.next(of_others, cp);
          return to != kDead;
        },
        [&](uint32_t lo, uint32_t hi) { return names.any_next(to, lo, hi, [](uint32_t) { return true; }); },
        canonical());
    if (r == Scan::Dead) return;
    if (m.any_open(t.top, names.nodes[to].lo, names.nodes[to].hi)) {
      if (sc == 0 || goes_on(trie.byte(c))) tokens(trie, c);
    }
    if (others) others->ask(*this, trie, c, of_others, sc);
    declared_names(trie, c, t, to, sc, others, of_others);
  };
  if (scan != 0) return continuations(trie, n, scan, std::string_view(next, n_next), read);
  next[n_next++] = '\\';
  for (uint32_t i = 0; i < n_next; ++i)
    if (const uint32_t c = trie.child(n, static_cast<uint8_t>(next[i])); c != Trie::kNoNode) read(c);
}

void MaskWalk::used_texts(const Trie& trie, uint32_t n, const Configuration& t, const std::string& prefix,
                          const Others& others) {
  for (const Link* l = t.top->names; l; l = l->previous) {
    std::string_view text(l->text, l->length);
    if (!l->unknown && text.substr(0, prefix.size()) == prefix)
      used_text(trie, n, text.substr(prefix.size()), t.scan, others, t.state);
  }
}

void MaskWalk::used_text(const Trie& trie, uint32_t n, std::string_view rest, uint32_t scan,
                         const Others& others, uint32_t state) {
  continuations(trie, n, scan, rest.substr(0, 1), [&](uint32_t c) {
    std::string_view left = rest;
    uint32_t sc = scan, to = state;
    size_t head_bytes = 0;
    auto head = [&]() -> uint32_t {
      head_bytes = 0;
      return left.empty() ? kMaxCodePoint + 1 : next_code_point(left, head_bytes);
    };
    Scan r = scan_byte<true>(
        sc, trie.byte(c),
        [&](uint32_t cp) {
          if (cp != head()) return false;
          left.remove_prefix(head_bytes);
          if (to != kDead) to = others.language.next(to, cp);
          return true;
        },
        [&](uint32_t lo, uint32_t hi) { return head() >= lo && head() <= hi; }, canonical());
    if (r == Scan::Dead) return;
    if (r == Scan::Close) {
      if (rest.empty()) take_back(trie, c);
      return;
    }
    others.ask(*this, trie, c, to, sc);
    used_text(trie, c, left, sc, others, to);
  });
}

}  // namespace llamay::grammar
