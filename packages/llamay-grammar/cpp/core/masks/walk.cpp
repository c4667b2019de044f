// Values, lexemes and symbols: entries for whole subtrees of a trie, and steps between them.
#include "masks/walk.h"

#include <array>
#include <stdexcept>

#include "machine/merge.h"
#include "text/json.h"

namespace llamay::grammar {

namespace {

// Symbols of JSON by their first bytes. The set of symbols that a configuration can read is known without a
// step of the machine for each byte, so most children of a trie node are skipped.
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

uint16_t symbols_at(const Program& p, const Configuration& t) {
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

}  // namespace

void MaskWalk::walk(const Trie& trie, uint32_t n, const Configuration& t) {
  if (++walks > kMaxWalks) throw Ambiguous{};
  if (n == 0 && &trie == &main && skips_blanks(t)) return symbol(t);
  if (collecting && t.top == collecting->bottom) {
    if (t.mode == Mode::After) return collecting->end(trie, n, false);
    if (t.mode == Mode::Number && m.may_end_here(t)) collecting->end(trie, n, true);
  }
  // Only declared names are possible. The walk follows their bytes, which are fewer than the vocabulary's.
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
        if (a.language->trie) break;
        if (m.watched(t)) break;
        if (m.unique_item(t)) {
          if (!a.language->all_infinite || a.min > 0 || a.max != kInf) break;
          return item(trie, n, t, *a.language, id);
        }
        uint32_t min = t.count < a.min ? a.min - t.count : 0, max = a.max == kInf ? kInf : a.max - t.count;
        v.limit(*a.language, min, max);
        return lexeme(trie, n, t, v.entry(string_kind(), *a.language, t.state, t.scan, min, max, n, id),
                      false);
      }
      case Mode::Number:
        if (number(trie, n, t, id)) return;
        break;
      case Mode::Raw: {
        const StringAtom& a = m.program().lexemes[t.a];
        if (a.language->trie) break;
        const bool counted = a.min > 0 || a.max != kInf;
        uint32_t min = t.count < a.min ? a.min - t.count : 0, max = a.max == kInf ? kInf : a.max - t.count;
        if (!counted) min = 0;
        v.limit(*a.language, min, max);
        if (a.closed)
          return lexeme(trie, n, t, v.entry(Lexeme::Plain, *a.language, t.state, t.scan, min, max, n, id),
                        true);
        EntryPtr e = v.entry(Lexeme::Last, *a.language, t.state, t.scan, min, max, n, id);
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
  uint16_t may_read = symbols_at(m.program(), t);
  if (known && n == 0 && t.mode == Mode::Value && numbers(trie, t)) may_read &= ~kDigit;
  Configurations& next = buffer();
  auto read = [&](uint8_t byte, uint32_t c) {
    if (trie.thinned() && trie.n_below(c) == 0) return;
    if (unsure_end(t, byte)) return doubt(trie, c);
    next.clear();
    m.step(t, byte, next, s);
    bool real = false;
    for (const Configuration& x : next) {
      if (unsure(x)) {
        doubt(trie, c);
        continue;
      }
      real = true;
      if (!trie.leaf(c)) walk(trie, c, x);
    }
    if (real) tokens(trie, c);
  };
  if (const Language* words = words_only(t)) {
    // The walk follows the bytes of the words, which are fewer than the vocabulary's.
    const Language::Node& at = words->nodes[t.state];
    auto look = [&](uint8_t byte) {
      if (uint32_t c = trie.child(n, byte); c != Trie::kNoNode) read(byte, c);
    };
    const bool json = t.mode == Mode::String;
    for (uint32_t i = at.first_child; i < at.first_child + at.n_children; ++i)
      if (const uint8_t b = words->nodes[i].byte; !json || (b != '"' && b != '\\')) look(b);
    if (json) look('"'), look('\\');
  } else {
    const Trie::Kids kids = trie.kids(n);
    for (uint32_t k = 0; k < kids.n; ++k)
      if (kSymbolOf[kids.bytes[k]] & may_read) read(kids.bytes[k], kids.nodes[k]);
  }
  --depth;
}

bool MaskWalk::skips_blanks(const Configuration& t) const {
  const Program& p = m.program();
  if (!between_symbols(t.mode) || p.whitespace != Whitespace::Flexible) return false;
  if (t.mode == Mode::After && t.top->place == Place::Root) return false;
  return t.spaces + v.longest_lead() <= p.max_whitespace;
}

void MaskWalk::symbol(const Configuration& t) {
  const uint32_t room = m.program().max_whitespace - t.spaces;
  const bool before = mixed;
  if (const uint32_t* all = v.blank_mask(room); all && blank && !record && !touched)
    std::memcpy(mask, all, size_t{v.words()} * 4), blank = false;
  else
    put(v.blanks().data(), v.n_blanks(room));
  mixed = before;
  walk(symbols, 0, t);
  walk(v.indented(), 0, t);
}

void MaskWalk::walk_together(uint32_t n, const Configurations& set) {
  const Trie::Kids kids = main.kids(n);
  for (uint32_t i = 0; i < kids.n; ++i) {
    const uint32_t c = kids.nodes[i];
    Configurations next;
    for (const Configuration& t : set) m.step(t, kids.bytes[i], next, s);
    if (next.empty()) continue;
    if ((work += next.size()) > kMaxWork)
      throw std::length_error("the grammar is too ambiguous here: its mask needs too many steps");
    if (next.size() > 4) merge_configurations(next, s);
    tokens(main, c);
    if (!main.leaf(c)) walk_together(c, next);
  }
}

bool MaskWalk::reads(const Configurations& from, std::string_view text) {
  Configurations now = from, next;
  for (char ch : text) {
    next.clear();
    for (const Configuration& t : now) m.step(t, static_cast<uint8_t>(ch), next, s);
    if (next.empty()) return false;
    std::swap(now, next);
  }
  return true;
}

}  // namespace llamay::grammar
