// Arrays and objects: the items and members that may come next, and the ends of arrays and objects.
#include <algorithm>

#include "machine/machine.h"
#include "program/feasible.h"
#include "text/json.h"

namespace llamay::grammar {

// ---- Arrays ----

bool Machine::item_option_ok(const Frame* f, const Option& o) const {
  const ArrayAtom& a = p_.arrays[f->atom];
  if (a.contains.empty()) return true;
  uint32_t have[6];
  for (size_t c = 0; c < a.contains.size(); ++c) {
    const bool counts = o.gain >> c & 1;
    // The `contains` rule has enough items already: the option that does not count reads the same documents.
    if (counts && a.contains[c].max == UINT64_MAX && f->have[c] >= a.contains[c].min) return false;
    have[c] = f->have[c] + counts;
  }
  return array_feasible(p_, a, f->count + 1, have);
}

bool Machine::can_begin_item(const Frame* f) const {
  const ArrayAtom& a = p_.arrays[f->atom];
  if (f->count >= a.max) return false;
  const Slot& slot = f->count < a.prefix.size() ? a.prefix[f->count] : a.rest;
  return std::any_of(slot.begin(), slot.end(), [&](const Option& o) {
    return item_option_ok(f, o) && (!a.unique || value_left(f, o.node));
  });
}

void Machine::begin_item(const Configuration& in, Configurations& out, Scratch& s) const {
  const Frame* f = in.top;
  const ArrayAtom& a = p_.arrays[f->atom];
  const Slot& slot = f->count < a.prefix.size() ? a.prefix[f->count] : a.rest;
  for (const Option& o : slot) {
    if (!item_option_ok(f, o) || (a.unique && !value_left(f, o.node))) continue;
    Frame* g = copy(f, s);
    g->count = std::min(g->count + 1, a.count_cap);
    for (size_t c = 0; c < a.contains.size(); ++c)
      if (o.gain >> c & 1) ++g->have[c];
    Configuration t;
    t.mode = Mode::Value, t.a = o.node, t.top = g, t.gap = in.gap, t.spaces = in.spaces, t.text = in.text;
    if (a.deep) {
      Link* l = make_link({}, in.text, s);
      l->begins = true, l->hash = deep_arrays(g);
      t.text = l;
    }
    out.push_back(t);
  }
}

bool Machine::can_close_array(const Frame* f) const {
  const ArrayAtom& a = p_.arrays[f->atom];
  if (f->count < a.min) return false;
  for (size_t c = 0; c < a.contains.size(); ++c)
    if (f->have[c] < a.contains[c].min || f->have[c] > a.contains[c].max) return false;
  return true;
}

// ---- Objects ----

// Fills open(): the declared members that may be written next.
void Machine::refresh(Frame* f) const {
  const ObjectAtom& a = p_.objects[f->atom];
  const uint32_t w = f->n_words;
  uint64_t *seen = f->seen(), *open = f->open();
  for (uint32_t i = 0; i < w; ++i) open[i] = a.possible[i] & ~seen[i];
  if (f->count >= a.max) {
    for (uint32_t i = 0; i < w; ++i) open[i] = 0;
    return;
  }
  if (!a.clauses.empty())
    for (uint32_t k = 0; k < a.known.size(); ++k) {
      if (!bit(open, k)) continue;
      seen[k / 64] |= uint64_t{1} << (k % 64);
      ++f->count;
      bool ok =
          std::any_of(a.known[k].begin(), a.known[k].end(), [&](const Option& o) { return option_ok(f, o); });
      --f->count;
      seen[k / 64] &= ~(uint64_t{1} << (k % 64));
      if (!ok) open[k / 64] &= ~(uint64_t{1} << (k % 64));
    }
  const bool simple = a.max == UINT64_MAX && !p_.schema_order;
  if (simple) return;
  std::vector<uint64_t> need(a.required.begin(), a.required.end());
  for (uint32_t i = 0; i < w; ++i) need[i] |= seen[i];
  need = with_dependencies(a, std::move(need));
  auto missing = [&](const std::vector<uint64_t>& bits) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < w; ++i) n += static_cast<uint64_t>(__builtin_popcountll(bits[i] & ~seen[i]));
    return n;
  };
  for (uint32_t k = 0; k < a.known.size(); ++k) {
    if (!bit(open, k)) continue;
    std::vector<uint64_t> with = need;
    with[k / 64] |= uint64_t{1} << (k % 64);
    if (!a.depends.empty()) with = with_dependencies(a, std::move(with));
    bool ok = a.max == UINT64_MAX || f->count + missing(with) <= a.max;
    if (ok && p_.schema_order) {
      ok = f->names == nullptr || a.rank[k] == kNone;  // undeclared members come last
      uint64_t later = a.rest ? UINT64_MAX : 0;
      for (uint32_t j = 0; ok && j < a.known.size(); ++j) {
        if (bit(seen, j) || j == k) continue;
        if (a.rank[j] < a.rank[k])
          ok = !bit(with.data(), j);
        else if (later != UINT64_MAX && bit(a.possible.data(), j))
          ++later;
      }
      if (ok && later != UINT64_MAX && f->count + 1 + later < a.min) ok = false;
    }
    if (!ok) open[k / 64] &= ~(uint64_t{1} << (k % 64));
  }
  if (p_.schema_order) {  // members before the last one seen can no longer come
    uint32_t last = 0;
    bool some = false;
    for (uint32_t k = 0; k < a.known.size(); ++k)
      if (bit(seen, k) && (!some || a.rank[k] > last)) last = a.rank[k], some = true;
    for (uint32_t k = 0; some && k < a.known.size(); ++k)
      if (a.rank[k] < last) open[k / 64] &= ~(uint64_t{1} << (k % 64));
  }
}

bool Machine::any_open(const Frame* f, uint32_t lo, uint32_t hi) const {
  const uint64_t* open = f->open();
  for (uint32_t i = lo; i < hi;) {
    uint64_t word = open[i / 64] >> (i % 64);
    if (word) return i + static_cast<uint32_t>(__builtin_ctzll(word)) < hi;
    i = (i / 64 + 1) * 64;
  }
  return false;
}

bool Machine::rest_open(const Frame* f) const {
  const ObjectAtom& a = p_.objects[f->atom];
  if (!a.rest) return false;
  uint64_t need = 0;
  if (a.max != UINT64_MAX || p_.schema_order) {
    std::vector<uint64_t> bits(f->n_words);
    for (uint32_t i = 0; i < f->n_words; ++i) bits[i] = a.required[i] | f->seen()[i];
    bits = with_dependencies(a, std::move(bits));
    for (uint32_t i = 0; i < f->n_words; ++i)
      need += static_cast<uint64_t>(__builtin_popcountll(bits[i] & ~f->seen()[i]));
    if (p_.schema_order && need) return false;
  }
  if (f->count >= a.max || f->count + 1 + need > a.max) return false;
  if (!a.clauses.empty() && (a.max != UINT64_MAX || p_.schema_order)) {
    // With a maximum, all labels have the same options here, because the expander refuses other schemas.
    // Without one, what a label can meet can be met by a later member as well.
    uint64_t others = 1;
    for (const Link* n = f->names; n; n = n->previous) ++others;
    auto fits = [&](const Option& o) {
      return object_feasible(p_, a, f->seen(), others, f->gained | o.gain);
    };
    bool ok = false;
    for (const Slot& s : a.rest_slots) ok = ok || std::any_of(s.begin(), s.end(), fits);
    if (!ok) return false;
  }
  if (a.rest->infinite(0)) return true;
  uint64_t used = 0;
  for (const Link* n = f->names; n; n = n->previous) ++used;
  return a.rest->count_words(0) > used;
}

bool Machine::can_add(const Frame* f) const {
  return any_open(f, 0, static_cast<uint32_t>(p_.objects[f->atom].known.size())) || rest_open(f);
}

bool Machine::can_close_object(const Frame* f) const {
  const ObjectAtom& a = p_.objects[f->atom];
  if (f->count < a.min) return false;
  for (size_t c = 0; c < a.clauses.size(); ++c)
    if (!(f->gained >> c & 1) && std::all_of(a.clauses[c].absent.begin(), a.clauses[c].absent.end(),
                                             [&](uint32_t n) { return bit(f->seen(), n); }))
      return false;
  for (uint32_t i = 0; i < f->n_words; ++i)
    if (a.required[i] & ~f->seen()[i]) return false;
  for (auto& [name, needs] : a.depends)
    if (bit(f->seen(), name))
      for (uint32_t i = 0; i < f->n_words; ++i)
        if (needs[i] & ~f->seen()[i]) return false;
  return true;
}

bool Machine::option_ok(const Frame* after, const Option& o) const {
  const ObjectAtom& a = p_.objects[after->atom];
  if (a.clauses.empty()) return true;
  uint64_t undeclared = 0;
  for (const Link* n = after->names; n; n = n->previous) ++undeclared;
  return object_feasible(p_, a, after->seen(), undeclared, after->gained | o.gain);
}

void Machine::members(const Configuration& in, Frame* f, const Slot& slot, Configurations& out,
                      Scratch& s) const {
  ++f->count;
  for (const Option& o : slot) {
    if (!option_ok(f, o)) continue;
    // The condition is met already: the option that does not meet the condition reads the same documents.
    if (o.gain & in.top->gained)
      if (std::any_of(slot.begin(), slot.end(),
                      [&](const Option& x) { return x.gain == (o.gain & ~in.top->gained); }))
        continue;
    Frame* g = f;
    if (slot.size() > 1) g = copy(f, s);
    g->gained |= o.gain;
    refresh(g);
    if (g->place == Place::Tagged) {
      network(o.start, g, out, s, nullptr);
      continue;
    }
    Configuration t;
    t.mode = Mode::Colon, t.a = o.node, t.top = g, t.text = in.text;
    out.push_back(t);
  }
}

void Machine::close_known(const Configuration& in, uint32_t word, Configurations& out, Scratch& s) const {
  Frame* f = copy(in.top, s);
  f->seen()[word / 64] |= uint64_t{1} << (word % 64);
  members(in, f, p_.objects[f->atom].known[word], out, s);
}

void Machine::close_unknown(const Configuration& in, uint32_t label, const Link* name, Configurations& out,
                            Scratch& s) const {
  Frame* f = copy(in.top, s);
  f->names = name;
  members(in, f, p_.objects[f->atom].rest_slots[label], out, s);
}

// ---- Objects between tags ----

void Machine::between_members(const Frame* f, Configurations& out, Scratch& s, Visited* visited) const {
  if (can_close_object(f)) complete(f->parent, out, s, visited);
  if (!can_add(f)) return;
  if (f->lead == kNone)
    begin_name({.top = f}, out);
  else
    network(f->lead, frame(Place::Lead, 0, f, 0, s), out, s, visited);
}

}  // namespace llamay::grammar
