#include "grammars/tagged.h"

#include <algorithm>
#include <numeric>

#include "automata/algebra.h"
#include "automata/words.h"
#include "formulas/formula.h"
#include "program/feasible.h"
#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

std::string stripped(const std::string& text) {
  const char* blank = " \t\r\n";
  const size_t from = text.find_first_not_of(blank);
  return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(blank) + 1 - from);
}

bool bit(const std::vector<uint64_t>& bits, size_t i) { return bits[i / 64] >> (i % 64) & 1; }
void clear(std::vector<uint64_t>& bits, size_t i) { bits[i / 64] &= ~(uint64_t{1} << (i % 64)); }

std::string escaped(const std::string& name) {  // for a JSON pointer
  std::string out;
  for (char c : name) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

}  // namespace

struct TaggedObjects::Context {
  const TagSpec* spec = nullptr;
  uint32_t number = 0;         // equal tags have equal numbers
  std::vector<TagPart> lead;   // the parts before a name, up to the last special token
  std::string before, behind;  // the texts directly before and after a name
  std::vector<TagPart> after;  // the parts between `behind` and the value
  bool typed = false;          // whether the tag says that the value is a string
  std::string stop, end;       // no string contains `stop`; `end` is the whole text after a string
  std::string close;           // `end` if it is one text without special tokens; otherwise empty
  std::vector<TagPart> then;   // the parts of `end` if `close` is empty
  LanguagePtr names;           // the names that can stand in the tag
};

uint32_t TaggedObjects::state() {
  if (p_.net.size() >= budget_.nodes) throw CompileError("budget", "", "the grammar has too many states");
  p_.net.emplace_back();
  return static_cast<uint32_t>(p_.net.size() - 1);
}

uint32_t TaggedObjects::lexeme(const StringAtom& atom) {
  p_.lexemes.push_back(atom);
  return static_cast<uint32_t>(p_.lexemes.size() - 1);
}

uint32_t TaggedObjects::word(const std::string& text) {
  auto [it, fresh] = words_.emplace(text, 0);
  if (fresh) it->second = lexeme({language_of_words({text}, budget_), 0, kInf});
  return it->second;
}

uint32_t TaggedObjects::chain(uint32_t from, const std::vector<TagPart>& parts, bool string) {
  for (const TagPart& part : parts) {
    const uint32_t to = state();
    const std::string& text = part.kind == TagPart::Typed && !string ? part.other : part.text;
    Edge e{Edge::Skip, 0, to};
    if (part.kind == TagPart::Token)
      e = {Edge::Token, part.token, to};
    else if (!text.empty())
      e = {Edge::Lexeme, word(text), to};
    p_.net[from].edges.push_back(e);
    from = to;
  }
  return from;
}

// Adds edges from state `from` to state `to` that read the text of a string and the end of the text. Returns
// false if no text fits.
bool TaggedObjects::content(uint32_t from, uint32_t to, const StringAtom& atom, uint8_t mixed,
                            const Context& c) {
  LanguagePtr& raw = contents_[{c.stop + '\0' + c.end, mixed}];
  if (!raw) raw = raw_texts(c.stop, c.end, mixed, budget_);
  StringAtom a{combine(atom.language, raw, Combine::And, budget_), atom.min, atom.max};
  if (a.min > 0 && !a.language->gap_free) a = {with_length(a.language, a.min, a.max, budget_), 0, kInf};
  if (a.language->empty() || a.language->min_length(0) > a.max || a.language->max_length(0) < a.min)
    return false;
  const size_t n = static_cast<size_t>(
      std::count_if(c.close.begin(), c.close.end(), [](char x) { return (x & 0xC0) != 0x80; }));
  // One automaton reads both the text and its end: few tokens reach the end in this automaton, and its masks
  // are cached. The appended end leaves gaps in the lengths of the words, so that a minimum and a maximum of
  // the length cannot be checked with two comparisons.
  const bool open = a.min == 0 || (a.max == kInf && a.language->all_infinite);
  const bool small =
      a.language->trie || uint64_t{a.language->n_states()} * (n + 1) <= budget_.automaton_states;
  if (n > 0 && open && small) {
    LanguagePtr& whole = closed_[{a.language->uid, c.close}];
    if (!whole) whole = closed_by(a.language, c.close, budget_);
    const uint32_t more = static_cast<uint32_t>(n);
    a = {whole, a.min > 0 ? a.min + more : 0, a.max == kInf ? kInf : a.max + more, true};
    p_.net[from].edges.push_back({Edge::Lexeme, lexeme(a), to});
    return true;
  }
  const uint32_t behind = state();
  p_.net[from].edges.push_back({Edge::Lexeme, lexeme(a), behind});
  Edge last{Edge::Skip, 0, to};
  if (!c.close.empty()) last = {Edge::Lexeme, word(c.close), to};
  p_.net[behind].edges.push_back(last);
  return true;
}

// Returns the state in which the value of a member begins, or kNone if tags can hold no value of the node.
uint32_t TaggedObjects::value(uint32_t node, uint8_t mixed, const Context& c) {
  auto [it, fresh] = values_.emplace(Key{node, mixed, c.number}, kNone);
  if (!fresh) return it->second;
  budget_.tick();
  Node n = p_.nodes[node];
  const uint32_t start = state();
  bool some = false;
  // A tag that says the type of a value must be followed by a value of that type.
  auto join = [&](uint32_t value, bool string) {
    const uint32_t last = chain(start, c.after, string);
    p_.net[last].edges.push_back({Edge::Skip, 0, value});
    some = true;
  };
  if (!n.strings.empty()) {
    const uint32_t from = state(), behind = state();
    bool any = false;
    for (uint32_t s : n.strings) {
      const StringAtom atom = p_.strings[s];
      any |= content(from, behind, atom, c.typed ? 0 : mixed, c);
    }
    const uint32_t last = chain(behind, c.then, true);
    p_.net[last].final = true;
    if (any) join(from, true);
  }
  n.strings.clear();
  if (n.literals || !n.numbers.empty() || !n.arrays.empty() || !n.objects.empty()) {
    auto [bare, made] = bare_.emplace(Key{node}, kNone);
    if (made) {
      if (p_.nodes.size() >= budget_.nodes) throw CompileError("budget", "", "too many distinct values");
      p_.nodes.push_back(n);
      bare->second = static_cast<uint32_t>(p_.nodes.size() - 1);
    }
    const uint32_t from = state(), behind = state();
    p_.net[from].edges.push_back({Edge::Value, bare->second, behind});
    uint32_t last = behind;
    if (!c.close.empty()) {
      last = state();
      p_.net[behind].edges.push_back({Edge::Lexeme, word(c.close), last});
    }
    last = chain(last, c.then, false);
    p_.net[last].final = true;
    join(from, false);
  }
  return values_[{node, mixed, c.number}] = some ? start : kNone;
}

Slot TaggedObjects::slot(const Slot& from, uint8_t mixed, const Context& c) {
  Slot out;
  for (Option o : from)
    if (p_.nodes[o.node].possible && (o.start = value(o.node, mixed, c)) != kNone) out.push_back(o);
  return out;
}

uint32_t TaggedObjects::object(const ObjectAtom& from, const Context& c) {
  const TagSpec& spec = *c.spec;
  const std::vector<std::string>& words = from.names->words;
  std::vector<uint32_t> order(words.size());
  std::iota(order.begin(), order.end(), 0u);
  std::vector<std::string> heads;
  for (const std::string& w : words) heads.push_back(c.before + w + c.behind);
  std::sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) { return heads[x] < heads[y]; });
  std::vector<uint32_t> place(words.size());
  for (uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  auto moved = [&](const std::vector<uint64_t>& bits) {
    std::vector<uint64_t> out(bits.size(), 0);
    for (size_t i = 0; i < words.size(); ++i)
      if (bit(bits, i)) out[place[i] / 64] |= uint64_t{1} << (place[i] % 64);
    return out;
  };
  auto all_moved = [&](std::vector<uint32_t> names) {
    for (uint32_t& n : names) n = place[n];
    return names;
  };

  ObjectAtom a;
  a.min = from.min, a.max = from.max;
  a.possible = moved(from.possible), a.required = moved(from.required);
  for (auto& [name, needs] : from.depends) a.depends.emplace_back(place[name], moved(needs));
  for (auto& x : from.clauses) a.clauses.push_back({all_moved(x.absent), all_moved(x.present)});
  for (uint32_t i : order) {
    const std::string& name = words[i];
    a.rank.push_back(from.rank[i]);
    auto mixed = spec.mixed.of.find(name);
    Slot s;
    if (bit(from.possible, i) && !c.names->matches(name)) {
      const std::string at = spec.at + "/properties/" + escaped(name);
      if (bit(from.required, i) || !lenient_)
        throw CompileError(
            "properties", at,
            "the name of this argument cannot be written in a tag: it is empty, begins or ends with a "
            "blank, or has one of < > \" & or a control character in it");
      p_.warnings.push_back(at + ": its name cannot be written in a tag; the argument is left out");
    } else if (bit(from.possible, i)) {
      s = slot(from.known[i], mixed == spec.mixed.of.end() ? spec.mixed.other : mixed->second, c);
    }
    if (s.empty()) clear(a.possible, a.known.size());
    a.known.push_back(std::move(s));
  }
  std::sort(heads.begin(), heads.end());
  a.names = language_of_words(heads, budget_);
  if (from.rest) {
    std::vector<bool> labels;
    for (const Slot& s : from.rest_slots) {
      a.rest_slots.push_back(slot(s, spec.mixed.other, c));
      labels.push_back(!a.rest_slots.back().empty());
    }
    a.rest = enclosed(from.rest, c.names, labels, c.before, c.behind, budget_);
    if (a.rest->empty()) a.rest = nullptr;
  }
  // A member is impossible if a member that it depends on is impossible.
  for (bool again = !a.depends.empty(); again;) {
    again = false;
    for (auto& [name, needs] : a.depends)
      for (uint32_t w = 0; w < needs.size() && bit(a.possible, name); ++w)
        if (needs[w] & ~a.possible[w]) clear(a.possible, name), again = true;
  }
  for (uint32_t w = 0; w < a.words(); ++w)
    if (a.required[w] & ~a.possible[w]) return kNone;
  const std::vector<uint64_t> nothing(a.words(), 0);
  if (!object_feasible(p_, a, nothing.data(), 0, 0)) return kNone;
  p_.objects.push_back(std::move(a));
  return static_cast<uint32_t>(p_.objects.size() - 1);
}

TaggedObject TaggedObjects::build(const TagSpec& spec) {
  Context c;
  c.spec = &spec;
  std::string same;
  for (const auto* parts : {&spec.open, &spec.after, &spec.close}) {
    for (const TagPart& part : *parts)
      same += std::to_string(part.kind) + std::to_string(part.token) + part.text + '\0' + part.other + '\0';
    same += '\1';
  }
  c.number = tags_.emplace(same, static_cast<uint32_t>(tags_.size())).first->second;
  c.lead = spec.open, c.after = spec.after, c.then = spec.close;
  if (!c.lead.empty() && c.lead.back().kind == TagPart::Text)
    c.before = c.lead.back().text, c.lead.pop_back();
  if (!c.after.empty() && c.after.front().kind == TagPart::Text)
    c.behind = c.after.front().text, c.after.erase(c.after.begin());
  for (const TagPart& part : c.after) c.typed |= part.kind == TagPart::Typed;
  std::string whole;
  for (const TagPart& part : c.then) whole += part.text;
  c.stop = stripped(whole);
  if (c.stop.empty()) throw CompileError("layout", "", "the tag that ends an argument is empty");
  c.end = whole;
  if (c.then.size() == 1 && c.then.front().kind == TagPart::Text) c.close = whole, c.then.clear();
  c.names = tag_names(stripped(c.behind).empty() ? c.behind : stripped(c.behind), budget_);

  TaggedObject out;
  for (uint32_t o : std::vector<uint32_t>(p_.nodes[spec.node].objects)) {
    const ObjectAtom from = p_.objects[o];
    if (const uint32_t made = object(from, c); made != kNone) out.objects.push_back(made);
  }
  if (out.objects.empty())
    throw CompileError("", spec.at.empty() ? "/" : spec.at,
                       "no value of this schema can be written between tags");
  if (!c.lead.empty()) {
    out.lead = state();
    p_.net[chain(out.lead, c.lead, true)].final = true;
  }
  return out;
}

}  // namespace llamay::grammar
