// The computation of one mask: a walk through the tries of a vocabulary, in step with the configurations that
// read the bytes on the way.
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
  // Tokens for which the walk would need the text of a name that it has not spelled out. These tokens are
  // read byte by byte after the walk.
  std::vector<uint32_t> doubtful;
  const Frame* nowhere_ = nullptr;
  // A value entry under construction. The value is read outside of any object: `inside` has the tokens that
  // end in the value, `behind` the other tokens with their bytes after the value.
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
  std::vector<uint32_t>* touched = nullptr;  // the tokens that are set in a separate mask
  std::vector<std::vector<uint32_t>> zeros;  // cleared masks for `apart`
  // Lists of configurations, one for each level of the walk. The lists are reused, since their allocation
  // would take longer than the mask.
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

  // Whether `x` is inside a text that must differ from a text that the walk has not spelled out, if the
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

  // Whether byte `b` ends a name that must be compared with an earlier name that the walk has not spelled
  // out.
  bool unsure_end(const Configuration& x, uint8_t b) const {
    return b == '"' && x.mode == Mode::Name && x.scan == 0 && x.state != kDead && x.top->names &&
           x.top->names->unknown;
  }

  // Marks the tokens of a subtree as doubtful: they are read byte by byte later.
  void doubt(const Trie& trie, uint32_t n) {
    const uint32_t* id = trie.tokens_at(n);
    doubtful.insert(doubtful.end(), id, id + trie.n_below(n));
  }
  // Continues the walk at node n of a trie with each configuration of `after`. With `here`, the tokens that
  // end at n are allowed, too.
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

  // Runs `fill`, which may clear bits, on a separate mask, so that `fill` clears no bits of other
  // configurations. With `needed` false, there are no other configurations and `fill` runs on the mask
  // itself.
  template <class F>
  void apart(bool needed, const Entry& e, F fill);

  // In an ambiguous grammar, a walk with one configuration at a time takes exponential time. A walk with too
  // many steps is abandoned; the mask is then computed with sets of configurations, which is slower but takes
  // polynomial time.
  struct Ambiguous {};
  static constexpr uint32_t kMaxWalks = 50000;
  uint32_t walks = 0;
  static constexpr uint64_t kMaxWork = 1000000;
  uint64_t work = 0;

  void walk_together(uint32_t n, const Configurations& set);

  // Sets the tokens below node n of the trie that `t`, the configuration at n, can read. The tokens at n are
  // already set.
  void walk(const Trie& trie, uint32_t n, const Configuration& t);

  // Returns the language of the lexeme of `t` if the language is a trie of words and the lexeme cannot end
  // here without a quote; otherwise null.
  const Language* words_only(const Configuration& t) const;

  // Sets the tokens inside a number from the entry of the number. Returns false, and sets nothing, if the
  // number has no entry.
  bool number(const Trie& trie, uint32_t n, const Configuration& t, TrieId id);
  // As `number`, for a value that may begin with a number, at the root of a trie.
  bool numbers(const Trie& trie, const Configuration& t);

  // Whether `t` is between two symbols and may read all the whitespace that a token has before a symbol.
  bool skips_blanks(const Configuration& t) const;
  void symbol(const Configuration& t);

  // Whether only the end of the document follows a lexeme of the network. Such a lexeme needs no walk after
  // its end. Other lexemes have too many ends for the cache.
  static bool only_ends(const Frame* top) { return top->place == Place::Root; }

  // Sets the tokens that end a lexeme without a closing character. Only subtrees with a byte that can follow
  // the lexeme are visited.
  void ends(const Trie& trie, uint32_t n, const Configuration& t);
  // Whether a word of the language from `state` on may end inside a token below n. Returns true if the limit
  // `looks` of visited nodes is reached.
  static bool ends_inside(const Trie& trie, uint32_t n, const Language& language, uint32_t state,
                          uint32_t& looks);

  // Returns a frame without a continuation: a lexeme on this frame can be read up to its end and no further.
  const Frame* nowhere();

  void inner(const Trie& trie, uint32_t n, const Configuration& t, const Configurations& after,
             uint64_t first);

  // Runs `walk_exits` for the exits of an entry, or sets the cached tokens that `walk_exits` set before for
  // this entry and frame. Only crossings at the root of a trie are cached, because no later mask needs the
  // crossings at an inner node.
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

  // Returns a link for a name or an item that the walk does not spell out, in front of the existing links.
  const Link* unspelled(const Configuration& t) {
    Link* link = new (s.allocate(sizeof(Link))) Link;
    link->unknown = true, link->previous = t.top->names;
    return link;
  }

  // Sets the tokens inside a name that may be undeclared. The cached entries are valid for every name that is
  // neither declared nor used before; a separate walk follows the declared and the used names.
  void name(const Trie& trie, uint32_t n, const Configuration& t, TrieId id);

  // Sets the tokens of the value after a name that the walk does not spell out, from the root of a trie.
  void value(const std::shared_ptr<const Trie>& trie, Configurations& after);
  ValueEntryPtr value_entry(const std::shared_ptr<const Trie>& trie, uint32_t node);

  // Sets the tokens inside the tag of a name that may be undeclared. Tokens that may lead to a declared or
  // used name are read byte by byte; the entry decides all other tokens.
  void head(const Trie& trie, uint32_t n, const Configuration& t, TrieId id);
  // Marks the tokens that end at a node as doubtful; with `below`, also the tokens below the node.
  void ask(const Trie& trie, uint32_t n, bool below);
  void declared_heads(const Trie& trie, uint32_t n, const Language& names, uint32_t node);

  // Sets the tokens inside a string that must differ from other items. The entry is valid for all strings
  // except these items.
  void item(const Trie& trie, uint32_t n, const Configuration& t, const Language& language, TrieId id);

  // The texts whose tokens the mask already has: all words of a language except at most `taken` excepted
  // words. A prefix of an excepted word may have no other continuation in the language, and so may a part of
  // a character: then the tokens must be read byte by byte.
  struct Others {
    const Language& language;
    uint64_t taken;
    // Whether the language has all texts. Then the mask has every prefix of an excepted word, too, and only
    // the ends differ.
    bool everything() const { return language.uid == every_text()->uid; }
    void ask(MaskWalk& walk, const Trie& trie, uint32_t n, uint32_t state, uint32_t scan) const;
  };

  // Sets the tokens of declared names. With `others`, clears tokens that the mask has only because the
  // language of the other names contains a declared name.
  void declared_names(const Trie& trie, uint32_t n, const Configuration& t, uint32_t node, uint32_t scan,
                      const Others* others, uint32_t state);
  // As `declared_names`, after a part of a character or of an escape, and for characters of several bytes.
  void declared_escapes(const Trie& trie, uint32_t n, const Configuration& t, uint32_t node, uint32_t scan,
                        const Others* others, uint32_t state);
  // Handles the end of the declared name `word`, whose closing quote is node n.
  void declared_end(const Trie& trie, uint32_t n, const Configuration& t, uint32_t word,
                    const Others* others);

  void used_texts(const Trie& trie, uint32_t n, const Configuration& t, const std::string& prefix,
                  const Others& others);

  void used_text(const Trie& trie, uint32_t n, std::string_view rest, uint32_t scan, const Others& others,
                 uint32_t state);

  bool reads(const Configurations& from, std::string_view text);
};

}  // namespace llamay::grammar
