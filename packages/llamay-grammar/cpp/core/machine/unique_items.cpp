// Items under uniqueItems. Scalar items are words of automata, and the unused words can be counted. Arrays
// and objects are compared as documents: the text of an item is kept while the item is read, and a
// configuration stays alive while a document continues it with an item that differs from all earlier items.
#include <algorithm>
#include <optional>

#include "automata/lengths.h"
#include "machine/machine.h"
#include "program/feasible.h"
#include "support/compile_error.h"
#include "text/json.h"
#include "text/unicode.h"

namespace llamay::grammar {

// ---- Scalars: a used value is a text with a prefix for its type ----

namespace {
char kind_of(const Configuration& t) {
  return t.mode == Mode::String ? '"' : t.mode == Mode::Number ? '#' : '!';
}
}  // namespace

void Machine::finish_value(const Configuration& t, Configurations& out, Scratch& s) const {
  if (!unique_item(t)) return end_value(t, t.top, out, s);
  std::string value =
      kind_of(t) + (t.mode == Mode::Literal ? std::string(literal_text(t.a)) : spelled(t.partial));
  Link* link = make_link(value, t.top->names, s);
  link->hash = hash_text(value);
  close_item(t, link, out, s);
}

void Machine::close_item(const Configuration& t, const Link* value, Configurations& out, Scratch& s) const {
  Frame* f = copy(t.top, s);
  f->names = value;
  end_value(t, f, out, s);
}

bool Machine::words_left(const Frame* f, const Language& l, uint32_t state, char kind,
                         const Link* partial) const {
  if (l.infinite(state)) return true;
  uint64_t used = 0;
  for (const Link* n = f->names; n; n = n->previous) ++used;
  if (l.count_words(state) > used) return true;
  std::string prefix = kind + spelled(partial);
  used = 0;
  for (const Link* n = f->names; n; n = n->previous) {
    std::string_view text(n->text, n->length);
    used += text.substr(0, prefix.size()) == prefix && l.matches(text.substr(1));
  }
  return l.count_words(state) > used;
}

bool Machine::string_left(const Frame* f, const StringAtom& a, uint32_t state, const Link* partial,
                          uint32_t count) const {
  const Language& l = *a.language;
  const uint32_t left = room(a, count);
  if (left == kInf) return words_left(f, l, state, '"', partial);
  if (l.infinite(state) && left >= a.ample) return true;
  uint64_t used = 0;
  for (const Link* n = f->names; n; n = n->previous) ++used;
  if (many_words(a, state, left, used)) return true;
  const std::string prefix = '"' + spelled(partial);
  used = 0;
  for (const Link* n = f->names; n; n = n->previous) {
    const std::string_view text(n->text, n->length);
    used += text.substr(0, prefix.size()) == prefix && l.matches(text.substr(1)) &&
            code_points(text.substr(1)).size() <= a.max;
  }
  return many_words(a, state, left, used);
}

bool Machine::many_words(const StringAtom& a, uint32_t state, uint32_t left, uint64_t used) {
  const Language& l = *a.language;
  if (left == kInf || l.max_length(state) <= left) return l.infinite(state) || l.count_words(state) > used;
  if (l.infinite(state) && left >= a.ample) return true;
  return l.min_length(state) <= left && words_within(l, state, left, used + 1) > used;
}

bool Machine::value_left(const Frame* f, uint32_t node) const {
  const Node& n = p_.nodes[node];
  for (uint32_t which : {1u, 2u, 4u})
    if ((n.literals & which) && !name_used(f, std::string("!") + literal_text(which))) return true;
  for (uint32_t a : n.strings)
    if (string_left(f, p_.strings[a], 0, nullptr, 0)) return true;
  for (uint32_t a : n.numbers)
    if (words_left(f, *p_.numbers[a].language, 0, '#', nullptr)) return true;
  return false;
}

// ---- Documents ----

uint64_t Machine::deep_arrays(const Frame* f) const {
  uint64_t n = 0;
  for (; f; f = f->parent) n += f->place == Place::Array && p_.arrays[f->atom].deep;
  return n;
}

namespace {

constexpr uint32_t kDeepest = 1000;  // nesting of an item that is compared

// Returns the text since the beginning of the item of a level, or nothing if a part of it is not spelled out.
std::optional<std::string> item_text(const Link* text, uint64_t level) {
  std::vector<const Link*> parts;
  for (; !(text->begins && text->hash == level); text = text->previous) {
    if (text->unknown) return std::nullopt;
    parts.push_back(text);
  }
  std::string out;
  for (size_t i = parts.size(); i-- > 0;) out.append(parts[i]->text, parts[i]->length);
  return out;
}

bool any_unknown(const Link* names) {
  for (; names; names = names->previous)
    if (names->unknown) return true;
  return false;
}

}  // namespace

Configuration Machine::blurred(const Configuration& t, Scratch& s) const {
  Configuration out = t;
  if (!t.text) return out;
  Link* l = make_link({}, t.text, s);
  l->unknown = true;
  out.text = l;
  return out;
}

void Machine::end_value(const Configuration& t, const Frame* top, Configurations& out, Scratch& s) const {
  if (!t.text) return complete(top, out, s);
  if (top->place == Place::Array && p_.arrays[top->atom].deep) return end_item(t, top, out, s);
  Configuration x;
  x.mode = Mode::After, x.top = top, x.text = t.text, x.doubt = t.doubt;
  out.push_back(x);
}

void Machine::end_item(const Configuration& t, const Frame* top, Configurations& out, Scratch& s) const {
  const uint64_t level = deep_arrays(top);
  Configuration x;
  x.mode = Mode::After, x.doubt = t.doubt;
  Link* value;
  if (auto text = item_text(t.text, level)) {
    std::string same;
    try {
      same = json_canonical(parse_json(*text, kDeepest));
    } catch (const CompileError&) {
      throw std::length_error("an item under uniqueItems is nested deeper than " + std::to_string(kDeepest) +
                              " values");
    }
    if (name_used(top, same)) return;
    x.doubt |= any_unknown(top->names);
    value = make_link(same, top->names, s);
    value->hash = hash_text(same);
  } else {
    x.doubt |= top->names != nullptr;
    value = make_link({}, top->names, s);
    value->unknown = true;
  }
  Frame* f = copy(top, s);
  f->names = value;
  x.top = f;
  x.text = level > 1 ? t.text : nullptr;
  out.push_back(x);
}

// Whether frame f, after the value that is being read in it, has more continuations than an array can have
// items.
bool Machine::plenty(const Configuration& t, const Frame* f) const {
  if (f->place == Place::Object) {
    const ObjectAtom& a = p_.objects[f->atom];
    if (a.rest && a.rest->infinite(0) && rest_open(f) && (t.mode != Mode::Name || t.top != f)) return true;
    if (!a.clauses.empty()) return false;
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n_words; ++i)
      n += static_cast<uint64_t>(__builtin_popcountll(f->open()[i] & a.plenty[i]));
    // The name that is being read may be one of the counted names; then another name must be left.
    if (t.mode == Mode::Name && t.top == f) return n > 1 && a.max == UINT64_MAX && !p_.schema_order;
    return n > 0;
  }
  if (f->place != Place::Array) return false;
  const ArrayAtom& a = p_.arrays[f->atom];
  if (!a.contains.empty() || f->count >= a.max) return false;
  const Slot& slot = f->count < a.prefix.size() ? a.prefix[f->count] : a.rest;
  for (const Option& o : slot)
    if (p_.nodes[o.node].plenty) return true;
  return !a.unique && !a.deep && a.max == UINT64_MAX && f->count >= a.prefix.size() && !slot.empty();
}

// Whether the value or name that is being read has more continuations than an array can have items.
bool Machine::plenty(const Configuration& t) const {
  switch (t.mode) {
    case Mode::Value:
    case Mode::Colon:
      return p_.nodes[t.a].plenty;
    case Mode::String: {
      const StringAtom& a = p_.strings[t.a];
      if (t.scan != 0 && !a.language->all_infinite) return false;
      return plenty_words(*a.language, t.scan != 0 ? kNone : t.state, room(a, t.count), a.min, a.ample);
    }
    case Mode::Number:
      return plenty_words(*p_.numbers[t.a].language, t.state, p_.numbers[t.a].max, 0);
    case Mode::Name: {
      const ObjectAtom& a = p_.objects[t.top->atom];
      if (t.state != kDead && a.rest->infinite(t.state) && (t.scan == 0 || a.rest->all_infinite)) return true;
      if (t.b == kDead || t.scan != 0 || !a.clauses.empty()) return false;
      const Language::Node& n = a.names->nodes[t.b];
      for (uint32_t k = n.lo; k < n.hi; ++k)
        if (bit(t.top->open(), k) && bit(a.plenty.data(), k)) return true;
      return false;
    }
    default:
      return false;
  }
}

// Future::Ask means that only a search tells whether the item can still differ from earlier items. `asked`
// becomes the frame of the outermost array for which the search is needed.
Machine::Future Machine::future(const Configuration& t, const Frame*& asked) const {
  asked = nullptr;
  bool many = plenty(t);
  for (const Frame* f = t.top; f; f = f->parent) {
    const bool between = f == t.top && (t.mode == Mode::After || t.mode == Mode::ArrayHead);
    if (f->place == Place::Array && p_.arrays[f->atom].deep && !between) {
      if (many) break;
      if (f->names) asked = f;
    }
    many = many || plenty(t, f);
  }
  if (!asked) return Future::Plenty;
  for (const Link* l = t.text; l; l = l->previous)
    if (l->unknown) return Future::Unknown;
  for (const Frame* f = t.top; f; f = f->parent)
    if (f->place == Place::Array && p_.arrays[f->atom].deep && any_unknown(f->names)) return Future::Unknown;
  return Future::Ask;
}

bool Machine::watched(const Configuration& t) const {
  if (!t.text) return false;
  // Treats the value or name that is being read as complete, and counts only the continuations after it.
  Configuration x = t;
  if (t.mode == Mode::Name)
    x.state = x.b = kDead;
  else
    x.mode = Mode::Literal;
  const Frame* asked;
  if (future(x, asked) == Future::Plenty) return false;
  switch (t.mode) {
    case Mode::String:
      return !p_.strings[t.a].language->all_infinite || p_.strings[t.a].max != kInf;
    case Mode::Name:
      return t.state == kDead || !p_.objects[t.top->atom].rest->all_infinite;
    default:
      return true;
  }
}

}  // namespace llamay::grammar
