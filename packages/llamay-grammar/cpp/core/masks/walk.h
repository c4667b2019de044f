// One mask in the making: a walk through the tries of a vocabulary, beside the configurations that read it.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "automata/dfa.h"
#include "machine/machine.h"
#include "masks/crossings.h"
#include "masks/value_entries.h"
#include "vocabulary/vocabulary.h"

namespace llamay::grammar {

inline void set_bit(uint32_t* mask, uint32_t t) { mask[t / 32] |= 1u << (t % 32); }
inline void clear_bit(uint32_t* mask, uint32_t t) { mask[t / 32] &= ~(1u << (t % 32)); }

struct MaskWalk {
  const Machine& m;
  const Vocabulary& v;
  const Trie &main, &symbols;
  uint32_t* mask;
  Scratch& s;
  CrossingList* crossings;  // null: no crossing is cached
  ValueEntries* values;     // null: no value entry is cached
  // Tokens that met a name which this walk does not spell out: they are read byte by byte afterwards.
  std::vector<uint32_t> doubtful;
  const Frame* nowhere_ = nullptr;
  // The entry of a value in the making, read outside of any object: the tokens that end in it, and the bytes
  // that other tokens have behind it.
  struct Values {
    const Frame* bottom;
    std::vector<uint32_t>& inside;
    std::vector<std::pair<std::string, uint32_t>> behind;
    void end(const Trie& trie, uint32_t n, bool of_number);
  };
  Values* collecting = nullptr;
  bool alone = false;                        // no other configuration writes into the mask
  bool blank = true;                         // the mask has not been written yet, not even zeros
  bool mixed = false;                        // the mask has tokens that are not only whitespace
  std::vector<uint32_t>* record = nullptr;   // the tokens that a crossing sets
  std::vector<uint32_t>* touched = nullptr;  // the tokens that are set in a mask of its own
  std::vector<std::vector<uint32_t>> zeros;  // masks that are lent to `apart` and come back cleared
  // Lists of configurations, one for each level of the walk. They are reused, since allocating them takes
  // longer than a mask.
  using Pool = std::vector<std::unique_ptr<Configurations>>;
  static Pool& kept_pool() {
    thread_local Pool p;
    return p;
  }
  Pool pool = std::move(kept_pool());
  size_t depth = 0;
  ~MaskWalk() { kept_pool() = std::move(pool); }
  MaskWalk(const MaskWalk&) = delete;
  MaskWalk& operator=(const MaskWalk&) = delete;

  MaskWalk(const Machine& machine, const Vocabulary& vocabulary, uint32_t* out, Scratch& scratch,
           CrossingList* list, ValueEntries* value_entries)
      : m(machine),
        v(vocabulary),
        main(vocabulary.trie()),
        symbols(vocabulary.trie(TrieId::Symbols)),
        mask(out),
        s(scratch),
        crossings(list),
        values(value_entries) {}

  bool canonical() const { return m.program().canonical_escapes; }
  Lexeme string_kind() const { return canonical() ? Lexeme::JsonCanonical : Lexeme::JsonString; }

  Configurations& buffer() {
    if (depth == pool.size()) pool.push_back(std::make_unique<Configurations>());
    Configurations& t = *pool[depth++];
    t.clear();
    return t;
  }

  // Whether `x` is inside a text that must differ from one which this walk has not spelled out, and the
  // difference may matter before the text ends.
  bool unsure(const Configuration& x) const {
    if (x.doubt) return true;
    if (!x.top || !x.top->names || !x.top->names->unknown) return false;
    if (x.mode == Mode::Name) {
      if (x.top->place == Place::Tagged) return true;
      return x.state != kDead && !m.program().objects[x.top->atom].rest->infinite(x.state);
    }
    return x.top->place == Place::Array &&
           (x.mode == Mode::String || x.mode == Mode::Number || x.mode == Mode::Literal);
  }

  // Whether byte `b` ends a name that only its text would tell from the names before.
  bool unsure_end(const Configuration& x, uint8_t b) const {
    return b == '"' && x.mode == Mode::Name && x.scan == 0 && x.state != kDead && x.top->names &&
           x.top->names->unknown;
  }

  // Marks the tokens of a subtree, which are to be read byte by byte.
  void doubt(const Trie& trie, uint32_t n) {
    const uint32_t* id = trie.tokens_at(n);
    doubtful.insert(doubtful.end(), id, id + trie.n_below(n));
  }
  // Walks on at node n of a trie with each configuration of `after`; `here`: they also allow the tokens that
  // end at n.
  void follow(const Trie& trie, uint32_t n, Configurations& after, bool here) {
    for (const Configuration& f : after) {
      if (unsure(f)) {
        doubt(trie, n);
        continue;
      }
      if (here) tokens(trie, n);
      walk(trie, n, f);
    }
  }

  void clear() {
    if (blank) std::memset(mask, 0, size_t{v.words()} * 4);
    blank = false;
  }
  void put(const uint32_t* x, size_t n) {
    if (collecting) {
      collecting->inside.insert(collecting->inside.end(), x, x + n);
      return;
    }
    clear();
    mixed |= n > 0;
    for (size_t i = 0; i < n; ++i) set_bit(mask, x[i]);
    if (record) record->insert(record->end(), x, x + n);
    if (touched) touched->insert(touched->end(), x, x + n);
  }
  void tokens(const Trie& t, uint32_t n) { put(t.tokens_at(n), t.n_at(n)); }
  void take_back(const Trie& t, uint32_t n) {
    clear();
    const uint32_t* x = t.tokens_at(n);
    for (uint32_t i = 0, k = t.n_below(n); i < k; ++i) clear_bit(mask, x[i]);
  }

  void stay(const Entry& e) {
    if (e.dense.empty()) return put(e.sparse.data(), e.sparse.size());
    mixed = true;
    if (blank)
      std::memcpy(mask, e.dense.data(), size_t{v.words()} * 4);
    else
      for (uint32_t i = 0, k = v.words(); i < k; ++i) mask[i] |= e.dense[i];
    blank = false;
  }

  // Runs `fill`, which may clear bits, on a mask of its own, so that it clears no bits of others; on the mask
  // itself where `needed` is false because there are no others.
  template <class F>
  void apart(bool needed, const Entry& e, F fill);

  // Following one configuration at a time is exponential where a grammar is ambiguous. A walk that takes too
  // many steps is given up, and the whole mask is made again with sets of configurations, which is slower and
  // polynomial.
  struct Ambiguous {};
  static constexpr uint32_t kMaxWalks = 50000;
  uint32_t walks = 0;
  static constexpr uint64_t kMaxWork = 1000000;
  uint64_t work = 0;

  void walk_together(uint32_t n, const Configurations& set);

  // Sets the tokens below node n of the trie that `t`, the configuration at n, can read. The tokens at n are
  // already set.
  void walk(const Trie& trie, uint32_t n, const Configuration& t);

  // The words of the lexeme of `t`, null unless they are finitely many and the lexeme cannot end here without
  // a quote.
  const Language* words_only(const Configuration& t) const;

  // Sets the tokens inside a number from its entry; false, and nothing is set, where there is no entry for
  // it.
  bool number(const Trie& trie, uint32_t n, const Configuration& t, TrieId id);
  // The same for the number with which a value may begin, from the root of a trie.
  bool numbers(const Trie& trie, const Configuration& t);

  // Whether `t` is between two symbols, with room for all the whitespace that a token has in front of a
  // symbol.
  bool skips_blanks(const Configuration& t) const;
  void symbol(const Configuration& t);

  // Whether only the end of the document follows a lexeme of the net. Such a lexeme needs no walk behind its
  // end; the ends of other lexemes are too many for the cache.
  static bool only_ends(const Frame* top) { return top->place == Place::Root; }

  // Sets the tokens in which a lexeme ends that may end after any of its bytes. Only subtrees with a byte
  // that can follow the lexeme are visited.
  void ends(const Trie& trie, uint32_t n, const Configuration& t);
  // Whether a word that is read from `state` on may end inside a token below n; true as well when `looks` are
  // used up.
  static bool ends_inside(const Trie& trie, uint32_t n, const Language& language, uint32_t state,
                          uint32_t& looks);

  // A frame behind which nothing follows, so that the steps of a lexeme on it show the lexeme alone.
  const Frame* nowhere();

  void inner(const Trie& trie, uint32_t n, const Configuration& t, const Configurations& after,
             uint64_t first);

  // Runs `walk_exits` for the exits of an entry, or sets the tokens that it set the last time at this place.
  // Only crossings at the root are cached: no later mask needs those at a node n behind the first bytes of
  // tokens.
  template <class F>
  void cross(const EntryPtr& e, uint32_t n, const Configuration& t, F walk_exits) {
    const bool keep = crossings && !record && n == 0 && t.top->heap && !t.text;
    if (keep)
      if (const Crossing* c = crossings->find(t.mode, e.get(), t.top)) {
        put(c->tokens.data(), c->tokens.size());
        return;
      }
    std::vector<uint32_t> list;
    const size_t doubts = doubtful.size();
    if (keep) record = &list;
    walk_exits();
    if (!keep) return;
    record = nullptr;
    if (doubtful.size() == doubts) crossings->add(t.mode, e, t.top, std::move(list));
  }

  void lexeme(const Trie& trie, uint32_t n, const Configuration& t, const EntryPtr& e, bool open_ended);

  // A link for a name or an item that this walk does not spell out, behind the existing ones.
  const Link* unspelled(const Configuration& t) {
    Link* link = new (s.allocate(sizeof(Link))) Link;
    link->unknown = true, link->previous = t.top->names;
    return link;
  }

  // Inside a name that need not be a declared one: the cached entries hold for every name that is neither
  // declared nor used before; the declared and used ones get a walk of their own.
  void name(const Trie& trie, uint32_t n, const Configuration& t, TrieId id);

  // The value behind a name that this walk does not spell out, from the root of a trie.
  void value(const std::shared_ptr<const Trie>& trie, Configurations& after);
  ValueEntryPtr value_entry(const std::shared_ptr<const Trie>& trie, uint32_t node);

  // Inside the tag of a name that need not be a declared one. Tokens that may lead to a declared or used name
  // are read byte by byte; the entry decides all others.
  void head(const Trie& trie, uint32_t n, const Configuration& t, TrieId id);
  // Marks the tokens that end at a node, and with `below` those below it too, which are to be read byte by
  // byte.
  void ask(const Trie& trie, uint32_t n, bool below);
  void declared_heads(const Trie& trie, uint32_t n, const Language& names, uint32_t node);

  // Inside a string that must differ from other items: the entry holds for all strings but those items.
  void item(const Trie& trie, uint32_t n, const Configuration& t, const Language& language, TrieId id);

  // The texts whose tokens a mask already holds: all words of a language except at most `taken` many. Where
  // an excepted word begins, there may be no other word in that state of the language, and likewise inside a
  // character: then the tokens must be read.
  struct Others {
    const Language& language;
    uint64_t taken;
    // Whether the language has all texts: then every beginning of an excepted word is in the mask too, and
    // only ends differ.
    bool everything() const { return language.uid == every_text()->uid; }
    void ask(MaskWalk& walk, const Trie& trie, uint32_t n, uint32_t state, uint32_t scan) const;
  };

  // Sets the tokens of declared names. With `others`, takes back tokens that the mask holds only because a
  // declared name looks like one of the other names.
  void declared_names(const Trie& trie, uint32_t n, const Configuration& t, uint32_t node, uint32_t scan,
                      const Others* others, uint32_t state);
  // The same behind part of a character or an escape, and for characters that take more than a byte as
  // they are.
  void declared_escapes(const Trie& trie, uint32_t n, const Configuration& t, uint32_t node, uint32_t scan,
                        const Others* others, uint32_t state);
  // The name `word` ends with the quote at node n.
  void declared_end(const Trie& trie, uint32_t n, const Configuration& t, uint32_t word,
                    const Others* others);

  void used_texts(const Trie& trie, uint32_t n, const Configuration& t, const std::string& prefix,
                  const Others& others);

  void used_text(const Trie& trie, uint32_t n, std::string_view rest, uint32_t scan, const Others& others,
                 uint32_t state);

  bool reads(const Configurations& from, std::string_view text);
};

}  // namespace llamay::grammar
