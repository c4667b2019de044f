#include "mask.h"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>

#include "json.h"

namespace llamay::grammar {

namespace {

// Below this many nodes it is cheaper to read the bytes than to look up what is remembered.
constexpr uint32_t kSmallSubtree = 24;

void set_bit(uint32_t* mask, uint32_t t) { mask[t / 32] |= 1u << (t % 32); }
void clear_bit(uint32_t* mask, uint32_t t) { mask[t / 32] &= ~(1u << (t % 32)); }

// Symbols of JSON by their first bytes. Which of them a place could read is known without a step for each, so
// most siblings in a trie are passed over.
enum Symbol : uint16_t {
  kBlank = 1,
  kQuote = 2,
  kOpenObject = 4,
  kOpenArray = 8,
  kDigit = 16,  // or a minus
  kNullLetter = 32,
  kFalseLetter = 64,
  kTrueLetter = 128,
  kCloseObject = 256,
  kCloseArray = 512,
  kColon = 1024,
  kComma = 2048,
  kOther = 4096,
};
constexpr uint16_t kValues =
    kQuote | kOpenObject | kOpenArray | kDigit | kNullLetter | kFalseLetter | kTrueLetter;
constexpr uint16_t kEverything = 8191;

constexpr std::array<uint16_t, 256> kSymbolOf = [] {
  std::array<uint16_t, 256> t{};
  for (auto& x : t) x = kOther;
  auto set = [&](std::string_view bytes, uint16_t symbol) {
    for (char c : bytes) t[static_cast<uint8_t>(c)] = symbol;
  };
  set(" \n\t\r", kBlank), set("\"", kQuote), set("{", kOpenObject), set("[", kOpenArray);
  set("-0123456789", kDigit), set("n", kNullLetter), set("f", kFalseLetter), set("t", kTrueLetter);
  set("}", kCloseObject), set("]", kCloseArray), set(":", kColon), set(",", kComma);
  return t;
}();

bool between_symbols(Mode m) {
  return m == Mode::Value || m == Mode::ArrayHead || m == Mode::ObjectHead || m == Mode::NextName ||
         m == Mode::Colon || m == Mode::After;
}

uint16_t symbols_at(const Program& p, const Thread& t) {
  switch (t.mode) {
    case Mode::Value: {
      const Node& n = p.nodes[t.a];
      uint16_t out = kBlank;
      if (!n.strings.empty()) out |= kQuote;
      if (!n.objects.empty()) out |= kOpenObject;
      if (!n.arrays.empty()) out |= kOpenArray;
      if (!n.numbers.empty()) out |= kDigit;
      if (n.literals != 0) out |= kNullLetter | kFalseLetter | kTrueLetter;
      return out;
    }
    case Mode::ArrayHead:
      return kBlank | kCloseArray | kValues;
    case Mode::ObjectHead:
      return kBlank | kQuote | kCloseObject;
    case Mode::NextName:
      return kBlank | kQuote;
    case Mode::Colon:
      return kBlank | kColon;
    case Mode::After:
      return kBlank | kComma | (t.top->place == Place::Array ? kCloseArray : kCloseObject);
    default:
      return kEverything;
  }
}

// Limits that no token can reach are the same as none, so that states far from their limits share one entry.
void normalise(const Lang& l, const Vocabulary& v, uint32_t& min, uint32_t& max) {
  if (max != kInf && max >= v.longest() + l.longest_min + 1) max = kInf;
  if (l.all_infinite && min > v.longest() + 1) min = v.longest() + 1;
}

}  // namespace

struct Masker::Walk {
  const Machine& m;
  const Vocabulary& v;
  const Trie &main, &symbols;
  uint32_t* mask;
  Scratch& s;
  // Tokens whose reading met a name that this walk does not spell out: they are read byte by byte afterwards.
  CrossingList* crossings;
  std::vector<uint32_t> doubtful;
  const Frame* nowhere_ = nullptr;
  bool alone = false;                        // nothing but this thread writes into the mask
  bool blank = true;                         // nothing is written yet, zeros neither
  std::vector<uint32_t>* record = nullptr;   // what a crossing sets
  std::vector<uint32_t>* touched = nullptr;  // what is set in a mask of its own
  std::vector<std::vector<uint32_t>> zeros;  // masks that are lent out and come back cleared
  // Lists of threads, one for each level of the walk: kept, since a mask takes less time than allocating
  // them.
  using Pool = std::vector<std::unique_ptr<Threads>>;
  static Pool& kept_pool() {
    thread_local Pool p;
    return p;
  }
  Pool pool = std::move(kept_pool());
  size_t depth = 0;
  ~Walk() { kept_pool() = std::move(pool); }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  Walk(const Machine& machine, const Vocabulary& vocabulary, uint32_t* out, Scratch& scratch,
       CrossingList* list)
      : m(machine),
        v(vocabulary),
        main(vocabulary.trie()),
        symbols(vocabulary.trie(TrieId::Symbols)),
        mask(out),
        s(scratch),
        crossings(list) {}

  bool canonical() const { return m.program().canonical_escapes; }
  Lexeme string_kind() const { return canonical() ? Lexeme::JsonCanonical : Lexeme::JsonString; }

  Threads& buffer() {
    if (depth == pool.size()) pool.push_back(std::make_unique<Threads>());
    Threads& t = *pool[depth++];
    t.clear();
    return t;
  }

  // Inside a text that must differ from one that this walk has not spelled out.
  bool unsure(const Thread& x) const {
    if (x.doubt) return true;
    if (!x.top || !x.top->names || !x.top->names->unknown) return false;
    if (x.mode == Mode::Name) return true;
    return x.top->place == Place::Array &&
           (x.mode == Mode::String || x.mode == Mode::Number || x.mode == Mode::Literal);
  }

  // The tokens of a subtree are to be read byte by byte.
  void doubt(const Trie& trie, uint32_t n) {
    const uint32_t* id = trie.tokens_at(n);
    doubtful.insert(doubtful.end(), id, id + trie.n_below(n));
  }
  // Goes on at node n of a trie with what threads have become; `here`: they also allow the tokens that end
  // there.
  void follow(const Trie& trie, uint32_t n, Threads& after, bool here) {
    for (const Thread& f : after) {
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
    clear();
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
    if (blank)
      std::memcpy(mask, e.dense.data(), size_t{v.words()} * 4);
    else
      for (uint32_t i = 0, k = v.words(); i < k; ++i) mask[i] |= e.dense[i];
    blank = false;
  }

  // Runs `fill` where bits can be taken back without touching what others set: into a mask of its own, unless
  // nobody else writes into this one.
  template <class F>
  void apart(bool needed, const Entry& e, F fill) {
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

  // Following one thread at a time is exponential where a grammar is ambiguous. When that shows, the whole
  // mask is made again with sets of threads, which is slower and polynomial.
  struct Ambiguous {};
  static constexpr uint32_t kMaxWalks = 50000;
  uint32_t walks = 0;
  static constexpr uint64_t kMaxWork = 1000000;
  uint64_t work = 0;

  void walk_together(uint32_t n, const Threads& set) {
    const Trie::Kids kids = main.kids(n);
    for (uint32_t i = 0; i < kids.n; ++i) {
      const uint32_t c = kids.nodes[i];
      Threads next;
      for (const Thread& t : set) m.step(t, kids.bytes[i], next, s);
      if (next.empty()) continue;
      if ((work += next.size()) > kMaxWork)
        throw std::length_error("the grammar is too ambiguous here: its mask needs too many steps");
      if (next.size() > 4) merge_threads(next, s);
      tokens(main, c);
      if (!main.leaf(c)) walk_together(c, next);
    }
  }

  // Everything that can follow node n of the trie when `t` is the state there. The tokens at n are already
  // set.
  void walk(const Trie& trie, uint32_t n, const Thread& t) {
    if (++walks > kMaxWalks) throw Ambiguous{};
    if (n == 0 && &trie == &main && skips_blanks(t)) return symbol(t);
    // Nothing but declared names: their bytes are fewer than the vocabulary's.
    const bool tagged = t.mode == Mode::Name && t.top->place == Place::Tagged;
    if (t.mode == Mode::Name && t.state == kDead && !tagged && !m.watched(t)) {
      if (t.b != kDead) declared_names(trie, n, t, t.b, t.scan, nullptr, kDead);
      return;
    }
    const bool known = &trie == &main || &trie == &symbols;
    if (known && trie.end(n) - n >= kSmallSubtree) {
      const TrieId id = &trie == &main ? TrieId::All : TrieId::Symbols;
      switch (t.mode) {
        case Mode::String: {
          const StringAtom& a = m.program().strings[t.a];
          if (a.lang->trie) break;
          if (m.watched(t)) break;
          if (m.unique_item(t)) {
            if (!a.lang->all_infinite || a.min > 0 || a.max != kInf) break;
            return item(trie, n, t, *a.lang, id);
          }
          uint32_t min = t.count < a.min ? a.min - t.count : 0, max = a.max == kInf ? kInf : a.max - t.count;
          normalise(*a.lang, v, min, max);
          return lexeme(trie, n, t, v.entry(string_kind(), *a.lang, t.state, t.scan, min, max, n, id), false);
        }
        case Mode::Number: {
          const NumberAtom& a = m.program().numbers[t.a];
          if (a.lang->trie || m.unique_item(t) || m.watched(t)) break;
          uint32_t min = 0, max = a.max == kInf ? kInf : a.max - t.count;
          if (max != kInf && max >= 16 + a.lang->longest_min) max = kInf;
          if (max != kInf) break;
          const bool member = t.top->place == Place::Array || t.top->place == Place::Object;
          const Lexeme kind = member ? Lexeme::Member : Lexeme::Plain;
          return lexeme(trie, n, t, v.entry(kind, *a.lang, t.state, t.scan, min, max, n, id), true);
        }
        case Mode::Raw: {
          const StringAtom& a = m.program().lexemes[t.a];
          if (a.lang->trie) break;
          const bool counted = a.min > 0 || a.max != kInf;
          uint32_t min = t.count < a.min ? a.min - t.count : 0, max = a.max == kInf ? kInf : a.max - t.count;
          if (!counted) min = 0;
          normalise(*a.lang, v, min, max);
          if (a.closed)
            return lexeme(trie, n, t, v.entry(Lexeme::Plain, *a.lang, t.state, t.scan, min, max, n, id),
                          true);
          EntryPtr e = v.entry(Lexeme::Last, *a.lang, t.state, t.scan, min, max, n, id);
          if (only_ends(t.top)) return lexeme(trie, n, t, e, true);
          stay(*e);
          return ends(trie, n, t);
        }
        case Mode::Name: {
          if (t.state == kDead || m.watched(t)) break;
          const ObjectAtom& a = m.program().objects[t.top->atom];
          if (a.rest->trie) break;
          if (tagged) {
            if (t.scan != 0 || !a.rest->infinite(t.state)) break;
            return head(trie, n, t, id);
          }
          return name(trie, n, t, id);
        }
        default:
          break;
      }
    }
    const uint16_t symbols = symbols_at(m.program(), t);
    Threads& next = buffer();
    const Trie::Kids kids = trie.kids(n);
    for (uint32_t k = 0; k < kids.n; ++k) {
      if (!(kSymbolOf[kids.bytes[k]] & symbols)) continue;
      const uint32_t c = kids.nodes[k];
      if (trie.thinned() && trie.n_below(c) == 0) continue;
      next.clear();
      m.step(t, kids.bytes[k], next, s);
      if (next.empty()) continue;
      bool real = false;
      for (const Thread& x : next) {
        if (unsure(x)) {
          doubt(trie, c);
          continue;
        }
        real = true;
        if (!trie.leaf(c)) walk(trie, c, x);
      }
      if (real) tokens(trie, c);
    }
    --depth;
  }

  // Between two symbols, with room for all the whitespace that a token has in front of one.
  bool skips_blanks(const Thread& t) const {
    const Program& p = m.program();
    if (!between_symbols(t.mode) || p.whitespace != Whitespace::Flexible) return false;
    if (t.mode == Mode::After && t.top->place == Place::Root) return false;
    return t.spaces + v.longest_lead() <= p.max_whitespace;
  }
  void symbol(const Thread& t) {
    const uint32_t room = m.program().max_whitespace - t.spaces;
    if (const uint32_t* all = v.blank_mask(room); all && blank && !record && !touched)
      std::memcpy(mask, all, size_t{v.words()} * 4), blank = false;
    else
      put(v.blanks().data(), v.n_blanks(room));
    walk(symbols, 0, t);
    walk(v.indented(), 0, t);
  }

  // A lexeme of the net after which only more of it, or the end of the document, can follow needs no walk
  // behind its end; where anything else follows, its ends are too many to be remembered.
  static bool only_ends(const Frame* top) { return top->place == Place::Root; }

  // What can follow a lexeme that may end after any of its bytes: only subtrees that contain a byte with
  // which something can follow are looked at.
  void ends(const Trie& trie, uint32_t n, const Thread& t) {
    Threads after, got;
    m.finish_lexeme(t, after, s);
    uint64_t first = 0;
    for (uint32_t b = 0; b < 256; ++b) {
      got.clear();
      for (const Thread& x : after) m.step(x, static_cast<uint8_t>(b), got, s);
      if (!got.empty()) first |= b < 128 ? uint64_t{1} << byte_class(static_cast<uint8_t>(b)) : kWideClasses;
    }
    if (m.may_end_here(t))
      for (const Thread& x : after) walk(trie, n, x);
    Thread alone = t;
    alone.top = nowhere();
    inner(trie, n, alone, after, first);
  }

  // A place where nothing follows, so that stepping a lexeme shows the lexeme alone.
  const Frame* nowhere() {
    if (!nowhere_) {
      Frame* f = new (s.take(sizeof(Frame))) Frame;
      f->place = Place::Root;
      nowhere_ = f;
    }
    return nowhere_;
  }

  void inner(const Trie& trie, uint32_t n, const Thread& t, const Threads& after, uint64_t first) {
    Threads next;
    const Trie::Kids kids = trie.kids(n);
    for (uint32_t k = 0; k < kids.n; ++k) {
      const uint32_t c = kids.nodes[k];
      if ((trie.below(c) & first) == 0) continue;
      next.clear();
      m.step(t, kids.bytes[k], next, s);
      for (const Thread& x : next) {
        if (x.mode != Mode::Raw) continue;
        if (m.may_end_here(x))
          for (const Thread& a : after) walk(trie, c, a);
        inner(trie, c, x, after, first);
      }
    }
  }

  // Runs `walk` for the exits of an entry, or repeats what it did the last time at this place. Behind the
  // first byte of tokens, at node n, no later mask comes back to it.
  template <class F>
  void cross(const EntryPtr& e, uint32_t n, const Thread& t, F walk_exits) {
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

  void lexeme(const Trie& trie, uint32_t n, const Thread& t, const EntryPtr& e, bool open_ended) {
    stay(*e);
    if (!e->exits.empty())
      cross(e, n, t, [&] {
        Threads& after = buffer();
        m.finish_lexeme(m.blurred(t, s), after, s);
        for (const auto& x : e->exits) follow(*x.rest, 0, after, !open_ended);
        --depth;
      });
    if (open_ended && m.may_end_here(t)) {
      Threads& after = buffer();
      m.finish_lexeme(t, after, s);
      follow(trie, n, after, false);
      --depth;
    }
  }

  // A name or an item that this walk does not spell out, behind those that are there.
  const Link* unspelled(const Thread& t) {
    Link* link = new (s.take(sizeof(Link))) Link;
    link->unknown = true, link->previous = t.top->names;
    return link;
  }

  // Inside a name that need not be a declared one: the remembered masks hold for every name that is neither
  // declared nor used before; the few that are get a walk of their own.
  void name(const Trie& trie, uint32_t n, const Thread& t, TrieId id) {
    const ObjectAtom& a = m.program().objects[t.top->atom];
    const bool declared = t.b != kDead, used = t.top->names != nullptr;
    EntryPtr e = v.entry(string_kind(), *a.rest, t.state, t.scan, 0, kInf, n, id);
    apart((declared || used) && !(alone && blank), *e, [&] {
      stay(*e);
      cross(e, n, t, [&] {
        for (const auto& x : e->exits) {
          const Link* link = unspelled(t);
          Threads& after = buffer();
          m.close_unknown(m.blurred(t, s), x.label, link, after, s);
          m.drop_repeats(after, 0, s);
          follow(*x.rest, 0, after, true);
          --depth;
        }
      });
      const Others others{*a.rest, a.names->words.size() + t.top->count};
      if (declared) declared_names(trie, n, t, t.b, t.scan, &others, t.state);
      if (used) used_texts(trie, n, t, Machine::spelled(t.partial), others);
    });
  }

  // Inside the tag of a name that need not be a declared one. A token that may lead to a name that is
  // declared or used is read byte by byte, all others hold for every other name.
  void head(const Trie& trie, uint32_t n, const Thread& t, TrieId id) {
    const ObjectAtom& a = m.program().objects[t.top->atom];
    EntryPtr e = v.entry(Lexeme::Plain, *a.rest, t.state, t.scan, 0, kInf, n, id);
    stay(*e);
    cross(e, n, t, [&] {
      for (const auto& x : e->exits) {
        const Link* link = unspelled(t);
        Threads after;
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
  // The tokens that end at a node, or all below it too, are to be read byte by byte.
  void ask(const Trie& trie, uint32_t n, bool below) {
    if (below) return doubt(trie, n);
    const uint32_t* id = trie.tokens_at(n);
    doubtful.insert(doubtful.end(), id, id + trie.n_at(n));
  }
  void declared_heads(const Trie& trie, uint32_t n, const Lang& names, uint32_t node) {
    const Lang::Node& at = names.nodes[node];
    for (uint32_t i = at.first_child; i < at.first_child + at.n_children; ++i) {
      const uint32_t c = trie.child(n, names.nodes[i].byte);
      if (c == Trie::kNoNode) continue;
      const bool ends = names.label(i) != kDead;
      ask(trie, c, ends);
      if (!ends) declared_heads(trie, c, names, i);
    }
  }

  // Inside a string that must differ from other items: what is remembered holds for all strings but those.
  void item(const Trie& trie, uint32_t n, const Thread& t, const Lang& lang, TrieId id) {
    EntryPtr e = v.entry(string_kind(), lang, t.state, t.scan, 0, kInf, n, id);
    apart(t.top->names != nullptr, *e, [&] {
      stay(*e);
      const Link* link = unspelled(t);
      Threads after;
      m.close_item(m.blurred(t, s), link, after, s);
      m.drop_repeats(after, 0, s);
      for (const auto& x : e->exits) follow(*x.rest, 0, after, true);
      used_texts(trie, n, t, '"' + Machine::spelled(t.partial), {lang, 0});
    });
  }

  // Calls `one` for the children of n that can continue a text whose next bytes are `plain`: as they are, as
  // an escape, or by its end.
  template <class F>
  static void continuations(const Trie& trie, uint32_t n, uint32_t scan, std::string_view plain, F one) {
    auto look = [&](char b) {
      if (uint32_t c = trie.child(n, static_cast<uint8_t>(b)); c != Trie::kNoNode) one(c);
    };
    if (scan == scan::kEscape) {
      // Tokens with a backslash are many, and few go on with one of these.
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

  // The texts that a mask already holds the tokens of: all of a language but some, of which there are at most
  // so many. Where one of those begins, in a state of the language, there may be no others, nor where it is
  // inside a character: reading a token tells.
  struct Others {
    const Lang& lang;
    uint64_t taken;
    void ask(Walk& walk, const Trie& trie, uint32_t n, uint32_t state, uint32_t scan) const {
      if (state == kDead || lang.all_infinite) return;
      if (scan != 0 || (!lang.infinite(state) && lang.count_words(state) <= taken)) walk.ask(trie, n, false);
    }
  };

  // `others`: what only looks like a declared name is taken back.
  void declared_names(const Trie& trie, uint32_t n, const Thread& t, uint32_t node, uint32_t scan,
                      const Others* others, uint32_t state) {
    const Lang& names = *m.program().objects[t.top->atom].names;
    char next[256];
    const Lang::Node& at = names.nodes[node];
    for (uint32_t i = 0; i < at.n_children; ++i)
      next[i] = static_cast<char>(names.nodes[at.first_child + i].byte);
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
    continuations(trie, n, scan, std::string_view(next, at.n_children), [&](uint32_t c) {
      uint32_t to = node, sc = scan, of_others = state;
      Scan r = scan_byte<true>(
          sc, trie.byte(c),
          [&](uint32_t cp) {
            to = names.next(to, cp);
            if (of_others != kDead) of_others = others->lang.next(of_others, cp);
            return to != kDead;
          },
          [&](uint32_t lo, uint32_t hi) { return names.any_next(to, lo, hi, [](uint32_t) { return true; }); },
          canonical());
      if (r == Scan::Dead) return;
      if (r == Scan::Close) {
        uint32_t word = names.label(node);
        if (word == kDead) return;
        if (others) take_back(trie, c);
        if (!m.any_open(t.top, word, word + 1)) return;
        Threads& after = buffer();
        m.close_known(m.blurred(t, s), word, after, s);
        m.drop_repeats(after, 0, s);
        follow(trie, c, after, true);
        --depth;
        return;
      }
      if (m.any_open(t.top, names.nodes[to].lo, names.nodes[to].hi)) {
        if (sc == 0 || goes_on(trie.byte(c))) tokens(trie, c);
      }
      if (others) others->ask(*this, trie, c, of_others, sc);
      declared_names(trie, c, t, to, sc, others, of_others);
    });
  }

  void used_texts(const Trie& trie, uint32_t n, const Thread& t, const std::string& prefix,
                  const Others& others) {
    for (const Link* l = t.top->names; l; l = l->previous) {
      std::string_view text(l->text, l->length);
      if (!l->unknown && text.substr(0, prefix.size()) == prefix)
        used_text(trie, n, text.substr(prefix.size()), t.scan, others, t.state);
    }
  }

  void used_text(const Trie& trie, uint32_t n, std::string_view rest, uint32_t scan, const Others& others,
                 uint32_t state) {
    continuations(trie, n, scan, rest.substr(0, 1), [&](uint32_t c) {
      std::string_view left = rest;
      uint32_t sc = scan, to = state;
      auto head = [&]() -> uint32_t {
        if (left.empty()) return kMaxCodePoint + 1;
        uint8_t b = static_cast<uint8_t>(left[0]);
        uint32_t k = b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
        uint32_t cp = k == 1 ? b : k == 2 ? b & 31u : k == 3 ? b & 15u : b & 7u;
        for (uint32_t i = 1; i < k && i < left.size(); ++i)
          cp = (cp << 6) | (static_cast<uint8_t>(left[i]) & 63u);
        return cp;
      };
      Scan r = scan_byte<true>(
          sc, trie.byte(c),
          [&](uint32_t cp) {
            if (cp != head()) return false;
            left.remove_prefix(cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
            if (to != kDead) to = others.lang.next(to, cp);
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

  bool reads(const Threads& from, std::string_view text) {
    Threads now = from, next;
    for (char ch : text) {
      next.clear();
      for (const Thread& t : now) m.step(t, static_cast<uint8_t>(ch), next, s);
      if (next.empty()) return false;
      std::swap(now, next);
    }
    return true;
  }
};

void Masker::add(const Threads& threads, uint32_t* mask, Scratch& scratch) const {
  Walk w(m_, v_, mask, scratch, crossings_);
  w.alone = threads.size() == 1;
  try {
    for (const Thread& t : threads) {
      if (t.mode == Mode::Token) {
        w.put(&t.a, 1);
        continue;
      }
      if ((t.mode == Mode::Number || t.mode == Mode::Raw) && m_.may_end_here(t)) {
        Threads after;
        m_.finish_lexeme(t, after, scratch);
        for (const Thread& x : after)
          if (x.mode == Mode::Token) w.put(&x.a, 1);
      }
      w.walk(v_.trie(), 0, t);
    }
  } catch (const Walk::Ambiguous&) {
    std::memset(mask, 0, size_t{v_.words()} * 4);
    Walk again(m_, v_, mask, scratch, nullptr);
    again.blank = false;
    again.walk_together(0, threads);
    for (const Thread& t : threads) {
      Threads after;
      if (t.mode == Mode::Token) after.push_back(t);
      if ((t.mode == Mode::Number || t.mode == Mode::Raw) && m_.may_end_here(t))
        m_.finish_lexeme(t, after, scratch);
      for (const Thread& x : after)
        if (x.mode == Mode::Token) set_bit(mask, x.a);
    }
    return;
  }
  w.clear();
  if (!w.doubtful.empty()) {
    std::sort(w.doubtful.begin(), w.doubtful.end());
    w.doubtful.erase(std::unique(w.doubtful.begin(), w.doubtful.end()), w.doubtful.end());
    for (uint32_t t : w.doubtful) {
      if (w.reads(threads, v_.bytes(t)))
        set_bit(mask, t);
      else
        clear_bit(mask, t);
    }
  }
}

}  // namespace llamay::grammar
