// Names of members, in objects and in tags: declared names, and other names that the object has not used yet.
#include <string>
#include <vector>

#include "machine/machine.h"

namespace llamay::grammar {

void Machine::begin_name(const Configuration& in, Configurations& out) const {
  const ObjectAtom& a = p_.objects[in.top->atom];
  Configuration t;
  t.mode = Mode::Name, t.top = in.top, t.text = in.text;
  t.b = a.names->empty() ? kDead : 0;
  t.state = rest_open(in.top) ? 0 : kDead;
  out.push_back(t);
}

std::string Machine::spelled(const Link* partial) {
  std::string out;
  std::vector<const Link*> parts;
  for (; partial; partial = partial->previous) parts.push_back(partial);
  for (size_t i = parts.size(); i-- > 0;) out.append(parts[i]->text, parts[i]->length);
  return out;
}

bool Machine::name_used(const Frame* f, std::string_view name) const {
  uint64_t h = hash_text(name);
  for (const Link* n = f->names; n; n = n->previous)
    if (n->hash == h && std::string_view(n->text, n->length) == name) return true;
  return false;
}

// Whether the name can still become an undeclared, unused name. The used names are counted only if the number
// of possible names is finite.
bool Machine::rest_live(const Configuration& t, uint32_t state, const Link* partial) const {
  const Language& l = *p_.objects[t.top->atom].rest;
  if (l.infinite(state)) return true;
  uint64_t most = p_.objects[t.top->atom].names->words.size();
  for (const Link* n = t.top->names; n; n = n->previous) ++most;
  if (l.count_words(state) > most) return true;
  std::string prefix = spelled(partial);
  uint64_t used = 0;
  for (const Link* n = t.top->names; n; n = n->previous)
    used += std::string_view(n->text, n->length).substr(0, prefix.size()) == prefix;
  // Declared names with this prefix are no undeclared names either.
  const Language& names = *p_.objects[t.top->atom].names;
  for (const std::string& w : names.words)
    used += std::string_view(w).substr(0, prefix.size()) == prefix && l.matches(w);
  return l.count_words(state) > used;
}

// Reads one more byte of a name. The configuration stays alive while an available name has this prefix.
template <bool kJson>
Scan Machine::read_name(Configuration& t, uint8_t b, Scratch& s) const {
  const ObjectAtom& a = p_.objects[t.top->atom];
  auto trie_live = [&](uint32_t node) {
    return node != kDead && any_open(t.top, a.names->nodes[node].lo, a.names->nodes[node].hi);
  };
  return scan_byte<kJson>(
      t.scan, b,
      [&](uint32_t cp) {
        if (t.b != kDead) t.b = a.names->next(t.b, cp);
        if (t.state != kDead) {
          t.state = a.rest->next(t.state, cp);
          if (t.state != kDead) {
            std::string utf8;
            append_utf8(utf8, cp);
            t.partial = make_link(utf8, t.partial, s);
            if (!rest_live(t, t.state, t.partial)) t.state = kDead;
          }
          if (t.state == kDead) t.partial = nullptr;
        }
        return t.state != kDead || trie_live(t.b);
      },
      [&](uint32_t lo, uint32_t hi) {
        if (t.b != kDead && a.names->any_next(t.b, lo, hi, trie_live)) return true;
        if (t.state == kDead) return false;
        uint64_t used = a.names->words.size();
        for (const Link* n = t.top->names; n; n = n->previous) ++used;
        auto many = [&](uint32_t n) { return a.rest->infinite(n) || a.rest->count_words(n) > used; };
        return any_left(*a.rest, t.state, lo, hi, used, kInf, many, [&](uint32_t cp, uint32_t n) {
          std::string utf8;
          append_utf8(utf8, cp);
          return rest_live(t, n, make_link(utf8, t.partial, s));
        });
      },
      p_.canonical_escapes);
}

void Machine::step_name(const Configuration& in, uint8_t b, Configurations& out, Scratch& s) const {
  Configuration t = in;
  const Scan r = read_name<true>(t, b, s);
  if (r == Scan::Live) out.push_back(t);
  if (r == Scan::Close) end_name(in, out, s);
}

// Appends the configurations after a complete name; `t` has read the last character of the name.
void Machine::end_name(const Configuration& t, Configurations& out, Scratch& s) const {
  const ObjectAtom& a = p_.objects[t.top->atom];
  if (t.b != kDead)
    if (uint32_t word = a.names->label(t.b); word != kDead) {
      if (bit(t.top->open(), word)) close_known(t, word, out, s);
      return;  // a declared name is not an undeclared name as well
    }
  if (t.state == kDead) return;
  uint32_t label = a.rest->label(t.state);
  if (label == kDead) return;
  std::string name = spelled(t.partial);
  if (name_used(t.top, name)) return;
  Link* link = make_link(name, t.top->names, s);
  link->hash = hash_text(name);
  close_unknown(t, label, link, out, s);
}

// Reads a byte of a tag. No closing character marks the end of a tag: when the text of a tag is complete, the
// value may begin, and when a longer tag has this text as a prefix, another configuration continues the tag.
void Machine::step_head(const Configuration& in, uint8_t b, Configurations& out, Scratch& s) const {
  const ObjectAtom& a = p_.objects[in.top->atom];
  Configuration t = in;
  if (read_name<false>(t, b, s) != Scan::Live) return;
  if (t.scan != 0 || (t.b != kDead && a.names->nodes[t.b].n_children > 0) ||
      (t.state != kDead && a.rest->max_length(t.state) > 0))
    out.push_back(t);
  if (t.scan == 0) end_name(t, out, s);
}

}  // namespace llamay::grammar
