#include "machine.h"

#include <algorithm>

#include "feasible.h"
#include "json.h"

namespace llamay::grammar {

void Scratch::grow(size_t n) {
  size_t next = at_ == nullptr ? 0 : block_ + 1;
  while (next < blocks_.size() && sizes_[next] < n) ++next;
  if (next >= blocks_.size()) {
    size_t size = std::max<size_t>(n, 1 << 16);
    blocks_.push_back(std::make_unique<char[]>(size));
    sizes_.push_back(size);
    next = blocks_.size() - 1;
  }
  block_ = next;
  at_ = blocks_[next].get(), left_ = sizes_[next];
}

void Scratch::reset() {
  if (blocks_.size() > 64) blocks_.resize(1), sizes_.resize(1);
  block_ = 0, used_ = 0;
  at_ = blocks_.empty() ? nullptr : blocks_[0].get();
  left_ = blocks_.empty() ? 0 : sizes_[0];
}

namespace {

uint64_t hash_text(std::string_view s) {
  uint64_t h = 1469598103934665603ull;
  for (char c : s) h = (h ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return h;
}

Link* make_link(std::string_view text, const Link* previous, Scratch& s) {
  size_t n = sizeof(Link) + (text.size() > 4 ? text.size() - 4 : 0);
  Link* l = new (s.take(n)) Link;
  l->previous = previous, l->length = static_cast<uint32_t>(text.size());
  std::memcpy(l->text, text.data(), text.size());
  return l;
}

bool bit(const uint64_t* bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

bool is_space(uint8_t b) { return b == ' ' || b == '\n' || b == '\t' || b == '\r'; }

const char* literal_text(uint32_t which) { return which == 1 ? "null" : which == 2 ? "false" : "true"; }

}  // namespace

bool same_thread(const Thread& a, const Thread& b) {
  if (a.mode != b.mode || a.gap != b.gap || a.spaces != b.spaces || a.a != b.a || a.b != b.b ||
      a.state != b.state || a.scan != b.scan || a.count != b.count || a.partial != b.partial)
    return false;
  const Frame *f = a.top, *g = b.top;
  if (f == g) return true;
  if (!f || !g || f->place != g->place || f->atom != g->atom || f->parent != g->parent ||
      f->count != g->count || f->gained != g->gained || f->names != g->names || f->n_words != g->n_words)
    return false;
  return std::memcmp(f->have, g->have, sizeof f->have) == 0 &&
         std::memcmp(f->bits, g->bits, size_t{f->n_words} * 16) == 0;
}

Frame* Machine::frame(Place place, uint32_t atom, const Frame* parent, uint32_t words, Scratch& s) const {
  Frame* f = new (s.take(sizeof(Frame) + size_t{words} * 16)) Frame;
  f->place = place, f->atom = atom, f->parent = parent, f->n_words = static_cast<uint16_t>(words);
  std::memset(f->bits, 0, size_t{words} * 16);
  return f;
}

Frame* Machine::copy(const Frame* g, Scratch& s) const {
  Frame* f = frame(g->place, g->atom, g->parent, g->n_words, s);
  f->count = g->count, f->gained = g->gained, f->names = g->names;
  std::memcpy(f->have, g->have, sizeof f->have);
  std::memcpy(f->bits, g->bits, size_t{g->n_words} * 16);
  return f;
}

void Machine::start(Threads& out, Scratch& s) const {
  network(p_.start, frame(Place::Root, 0, nullptr, 0, s), out, s, nullptr);
}

// ---- The network of rules ----

void Machine::complete(const Frame* top, Threads& out, Scratch& s, Visited* visited) const {
  if (top->place == Place::Net) {
    network(top->atom, top->parent, out, s, visited);
    return;
  }
  Thread t;
  t.mode = Mode::After, t.top = top;
  out.push_back(t);
}

// Everything that can be reached without reading. `visited` cuts the loops that rules which may be empty
// make.
void Machine::network(uint32_t q, const Frame* parent, Threads& out, Scratch& s, Visited* visited) const {
  Visited own;
  if (!visited) visited = &own;
  for (auto& v : *visited)
    if (v.first == q && v.second == parent) return;
  visited->emplace_back(q, parent);
  const NetState& state = p_.net[q];
  if (state.final) complete(parent, out, s, visited);
  for (const Edge& e : state.edges) {
    if (e.kind == Edge::Skip) {
      network(e.to, parent, out, s, visited);
      continue;
    }
    // A call in the last place needs no frame: that keeps right recursion flat.
    const NetState& next = p_.net[e.to];
    const Frame* top = next.final && next.edges.empty() ? parent : frame(Place::Net, e.to, parent, 0, s);
    Thread t;
    t.top = top, t.a = e.arg;
    switch (e.kind) {
      case Edge::Lexeme: {
        const StringAtom& a = p_.lexemes[e.arg];
        t.mode = Mode::Raw;
        if (a.lang->max_length(0) > 0) out.push_back(t);
        if (a.min == 0 && a.lang->accepts(0)) complete(top, out, s, visited);
        break;
      }
      case Edge::Value:
        t.mode = Mode::Value;
        if (p_.nodes[e.arg].possible) out.push_back(t);
        break;
      case Edge::Token:
        t.mode = Mode::Token;
        out.push_back(t);
        break;
      case Edge::Call:
        network(e.arg, top, out, s, visited);
        break;
      case Edge::Skip:
        break;
    }
  }
}

bool Machine::accepts(const Thread& t) const {
  if (t.mode == Mode::After) return t.top->place == Place::Root;
  if (t.mode != Mode::Number && t.mode != Mode::Raw) return false;
  if (!may_end_here(t)) return false;
  thread_local Scratch s;
  s.reset();
  Threads after;
  complete(t.top, after, s);
  for (const Thread& x : after)
    if (x.mode == Mode::After && x.top->place == Place::Root) return true;
  return false;
}

bool Machine::may_end_here(const Thread& t) const {
  if (t.scan != 0) return false;
  switch (t.mode) {
    case Mode::String: {
      const StringAtom& a = p_.strings[t.a];
      return a.lang->accepts(t.state) && t.count >= a.min &&
             !(unique_item(t) && t.top->names && name_used(t.top, '"' + spelled(t.partial)));
    }
    case Mode::Number:
      return p_.numbers[t.a].lang->accepts(t.state) &&
             !(unique_item(t) && t.top->names && name_used(t.top, '#' + spelled(t.partial)));
    case Mode::Raw: {
      const StringAtom& a = p_.lexemes[t.a];
      return t.count > 0 && t.count >= a.min && a.lang->accepts(t.state);
    }
    default:
      return false;
  }
}

void Machine::finish_lexeme(const Thread& t, Threads& out, Scratch& s) const { finish_value(t, out, s); }

// ---- Items that must differ: the values used so far are texts with a letter for their type in front ----

namespace {
char kind_of(const Thread& t) { return t.mode == Mode::String ? '"' : t.mode == Mode::Number ? '#' : '!'; }
}  // namespace

void Machine::finish_value(const Thread& t, Threads& out, Scratch& s) const {
  if (!unique_item(t)) return complete(t.top, out, s);
  std::string value =
      kind_of(t) + (t.mode == Mode::Literal ? std::string(literal_text(t.a)) : spelled(t.partial));
  Link* link = make_link(value, t.top->names, s);
  link->hash = hash_text(value);
  close_item(t, link, out, s);
}

void Machine::close_item(const Thread& t, const Link* value, Threads& out, Scratch& s) const {
  Frame* f = copy(t.top, s);
  f->names = value;
  complete(f, out, s);
}

bool Machine::words_left(const Frame* f, const Lang& l, uint32_t state, char kind,
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

bool Machine::value_left(const Frame* f, uint32_t node) const {
  const Node& n = p_.nodes[node];
  for (uint32_t which : {1u, 2u, 4u})
    if ((n.literals & which) && !name_used(f, std::string("!") + literal_text(which))) return true;
  for (uint32_t a : n.strings)
    if (words_left(f, *p_.strings[a].lang, 0, '"', nullptr)) return true;
  for (uint32_t a : n.numbers)
    if (words_left(f, *p_.numbers[a].lang, 0, '#', nullptr)) return true;
  return false;
}

void Machine::step_token(const Thread& t, uint32_t token, Threads& out, Scratch& s) const {
  if (t.mode == Mode::Token && t.a == token) complete(t.top, out, s);
  if ((t.mode == Mode::Number || t.mode == Mode::Raw) && may_end_here(t)) {
    Threads after;
    complete(t.top, after, s);
    for (const Thread& x : after)
      if (x.mode == Mode::Token && x.a == token) complete(x.top, out, s);
  }
}

// ---- One byte ----

bool Machine::space(Thread& t, uint8_t b, Threads& out) const {
  if (!is_space(b)) return false;
  bool ok = p_.whitespace == Whitespace::Flexible ? t.spaces < p_.max_whitespace
            : p_.whitespace == Whitespace::Spaced ? t.gap && t.spaces == 0 && b == ' '
                                                  : false;
  if (ok) ++t.spaces, out.push_back(t);
  return true;
}

bool Machine::space_missing(const Thread& t) const {
  return p_.whitespace == Whitespace::Spaced && t.gap && t.spaces == 0;
}

void Machine::step(const Thread& in, uint8_t b, Threads& out, Scratch& s) const {
  switch (in.mode) {
    case Mode::String:
      return step_string(in, b, out, s);
    case Mode::Name:
      return step_name(in, b, out, s);
    case Mode::Number:
    case Mode::Raw: {
      step_raw(in, b, out, s);
      if (may_end_here(in)) {
        Threads after;
        finish_value(in, after, s);
        for (const Thread& t : after) step(t, b, out, s);
      }
      return;
    }
    case Mode::Literal: {
      const char* text = literal_text(in.a);
      if (static_cast<uint8_t>(text[in.count]) != b) return;
      Thread t = in;
      if (text[++t.count] == 0)
        finish_value(t, out, s);
      else
        out.push_back(t);
      return;
    }
    case Mode::Token:
      return;
    default:
      break;
  }
  Thread t = in;
  if (in.mode == Mode::After && in.top->place == Place::Root) return;
  if (space(t, b, out)) return;
  if (space_missing(t)) return;
  switch (in.mode) {
    case Mode::Value:
      return begin_value(in, b, out, s);
    case Mode::ArrayHead:
      if (b == ']') {
        if (can_close_array(in.top)) complete(in.top->parent, out, s);
      } else if (can_begin_item(in.top)) {
        Threads items;
        Thread i = in;
        i.gap = false;
        begin_item(i, items, s);
        for (const Thread& x : items) step(x, b, out, s);
      }
      return;
    case Mode::ObjectHead:
      if (b == '}') {
        if (can_close_object(in.top)) complete(in.top->parent, out, s);
      } else if (b == '"') {
        if (can_add(in.top)) begin_name(in, out);
      }
      return;
    case Mode::NextName:
      if (b == '"') begin_name(in, out);
      return;
    case Mode::Colon:
      if (b == ':') {
        t.mode = Mode::Value, t.gap = true, t.spaces = 0;
        out.push_back(t);
      }
      return;
    case Mode::After:
      if (in.top->place == Place::Array) {
        if (b == ']' && can_close_array(in.top)) complete(in.top->parent, out, s);
        if (b == ',' && can_begin_item(in.top)) {
          Thread i = in;
          i.gap = true, i.spaces = 0;
          begin_item(i, out, s);
        }
      } else if (in.top->place == Place::Object) {
        if (b == '}' && can_close_object(in.top)) complete(in.top->parent, out, s);
        if (b == ',' && can_add(in.top)) {
          t.mode = Mode::NextName, t.gap = true, t.spaces = 0;
          out.push_back(t);
        }
      }
      return;
    default:
      return;
  }
}

void Machine::begin_value(const Thread& in, uint8_t b, Threads& out, Scratch& s) const {
  const Node& n = p_.nodes[in.a];
  Thread t;
  t.top = in.top;
  switch (b) {
    case '"':
      t.mode = Mode::String;
      for (uint32_t a : n.strings) {
        t.a = a;
        if (!unique_item(t) || words_left(t.top, *p_.strings[a].lang, 0, '"', nullptr)) out.push_back(t);
      }
      return;
    case '{':
      t.mode = Mode::ObjectHead;
      for (uint32_t o : n.objects) {
        Frame* f = frame(Place::Object, o, in.top, p_.objects[o].words(), s);
        refresh(f);
        t.top = f;
        out.push_back(t);
      }
      return;
    case '[':
      t.mode = Mode::ArrayHead;
      for (uint32_t a : n.arrays) {
        t.top = frame(Place::Array, a, in.top, 0, s);
        out.push_back(t);
      }
      return;
    case 'n':
    case 'f':
    case 't': {
      uint32_t which = b == 'n' ? 1 : b == 'f' ? 2 : 4;
      if (!(n.literals & which)) return;
      t.mode = Mode::Literal, t.a = which, t.count = 1;
      if (!unique_item(t) || !name_used(t.top, std::string("!") + literal_text(which))) out.push_back(t);
      return;
    }
    default:
      if (b != '-' && (b < '0' || b > '9')) return;
      t.mode = Mode::Number;
      for (uint32_t a : n.numbers) {
        t.a = a;
        step_raw(t, b, out, s);
      }
  }
}

template <class Left>
bool Machine::any_left(const Lang& l, uint32_t state, uint32_t lo, uint32_t hi, uint64_t used, Left left) {
  // Only where few words are left is each character asked.
  if (l.any_next(state, lo, hi, [&](uint32_t n) { return l.infinite(n) || l.count_words(n) > used; }))
    return true;
  uint64_t live = 0;
  for (uint32_t cp = lo; cp <= hi; ++cp) {
    if (!l.any_next(state, cp, std::min(hi, cp | 0xFF), [](uint32_t) { return true; })) {
      cp |= 0xFF;  // nothing in this block
      continue;
    }
    uint32_t n = l.next(state, cp);
    if (n == kDead) continue;
    if (++live > used || left(cp, n)) return true;
  }
  return false;
}

void Machine::step_string(const Thread& in, uint8_t b, Threads& out, Scratch& s) const {
  const StringAtom& a = p_.strings[in.a];
  const Lang& l = *a.lang;
  const bool unique = unique_item(in);
  Thread t = in;
  Scan r = scan_byte<true>(
      t.scan, b,
      [&](uint32_t cp) {
        t.state = l.next(t.state, cp);
        if (t.state == kDead || !length_open(l, t.state, ++t.count, a.min, a.max)) return false;
        if (!unique) return true;
        std::string utf8;
        append_utf8(utf8, cp);
        t.partial = make_link(utf8, t.partial, s);
        return words_left(t.top, l, t.state, '"', t.partial);
      },
      [&](uint32_t lo, uint32_t hi) {
        if (unique) {
          uint64_t used = 0;
          for (const Link* n = t.top->names; n; n = n->previous) ++used;
          return any_left(l, t.state, lo, hi, used, [&](uint32_t cp, uint32_t n) {
            std::string utf8;
            append_utf8(utf8, cp);
            return words_left(t.top, l, n, '"', make_link(utf8, t.partial, s));
          });
        }
        return l.any_next(t.state, lo, hi,
                          [&](uint32_t n) { return length_open(l, n, t.count + 1, a.min, a.max); });
      });
  if (r == Scan::Live) out.push_back(t);
  if (r == Scan::Close && may_end_here(in)) finish_value(in, out, s);
}

void Machine::step_raw(const Thread& in, uint8_t b, Threads& out, Scratch& s) const {
  const bool number = in.mode == Mode::Number, unique = number && unique_item(in);
  const Lang& l = number ? *p_.numbers[in.a].lang : *p_.lexemes[in.a].lang;
  const uint32_t min = number ? 0 : p_.lexemes[in.a].min,
                 max = number ? p_.numbers[in.a].max : p_.lexemes[in.a].max;
  const bool counted = min > 0 || max != kInf;
  Thread t = in;
  Scan r = scan_byte<false>(
      t.scan, b,
      [&](uint32_t cp) {
        t.state = l.next(t.state, cp);
        if (t.state == kDead) return false;
        // The count of a lexeme without limits only says whether anything was read.
        t.count = counted ? t.count + 1 : 1;
        if (counted && !length_open(l, t.state, t.count, min, max)) return false;
        if (!unique) return true;
        const char c = static_cast<char>(cp);
        t.partial = make_link(std::string_view(&c, 1), t.partial, s);
        return words_left(t.top, l, t.state, '#', t.partial);
      },
      [&](uint32_t lo, uint32_t hi) {
        return l.any_next(t.state, lo, hi,
                          [&](uint32_t n) { return !counted || length_open(l, n, t.count + 1, min, max); });
      });
  if (r == Scan::Live) out.push_back(t);
}

// ---- Arrays ----

bool Machine::item_option_ok(const Frame* f, const Option& o) const {
  const ArrayAtom& a = p_.arrays[f->atom];
  if (a.contains.empty()) return true;
  uint32_t have[6];
  for (size_t c = 0; c < a.contains.size(); ++c) {
    const bool counts = o.gain >> c & 1;
    // Counting what needs no more counting: the option without it says the same.
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

void Machine::begin_item(const Thread& in, Threads& out, Scratch& s) const {
  const Frame* f = in.top;
  const ArrayAtom& a = p_.arrays[f->atom];
  const Slot& slot = f->count < a.prefix.size() ? a.prefix[f->count] : a.rest;
  for (const Option& o : slot) {
    if (!item_option_ok(f, o) || (a.unique && !value_left(f, o.node))) continue;
    Frame* g = copy(f, s);
    g->count = std::min(g->count + 1, a.count_cap);
    for (size_t c = 0; c < a.contains.size(); ++c)
      if (o.gain >> c & 1) ++g->have[c];
    Thread t;
    t.mode = Mode::Value, t.a = o.node, t.top = g, t.gap = in.gap, t.spaces = in.spaces;
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
      ok = f->names == nullptr;  // undeclared members come last
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
  if (p_.schema_order) {  // what stands before the last member seen is over
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
  if (!a.clauses.empty() && a.max != UINT64_MAX) {
    // Every label has the same options here (the compiler saw to it).
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

void Machine::begin_name(const Thread& in, Threads& out) const {
  const ObjectAtom& a = p_.objects[in.top->atom];
  Thread t;
  t.mode = Mode::Name, t.top = in.top;
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

// Whether an undeclared name can still be completed. Only where finitely many remain must the used ones be
// counted.
bool Machine::rest_live(const Thread& t, uint32_t state, const Link* partial) const {
  const Lang& l = *p_.objects[t.top->atom].rest;
  if (l.infinite(state)) return true;
  uint64_t most = p_.objects[t.top->atom].names->words.size();
  for (const Link* n = t.top->names; n; n = n->previous) ++most;
  if (l.count_words(state) > most) return true;
  std::string prefix = spelled(partial);
  uint64_t used = 0;
  for (const Link* n = t.top->names; n; n = n->previous)
    used += std::string_view(n->text, n->length).substr(0, prefix.size()) == prefix;
  // Declared names below this prefix are not available to the rest either.
  const Lang& names = *p_.objects[t.top->atom].names;
  for (const std::string& w : names.words)
    used += std::string_view(w).substr(0, prefix.size()) == prefix && l.matches(w);
  return l.count_words(state) > used;
}

void Machine::step_name(const Thread& in, uint8_t b, Threads& out, Scratch& s) const {
  const ObjectAtom& a = p_.objects[in.top->atom];
  Thread t = in;
  auto trie_live = [&](uint32_t node) {
    return node != kDead && any_open(in.top, a.names->nodes[node].lo, a.names->nodes[node].hi);
  };
  Scan r = scan_byte<true>(
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
        return any_left(*a.rest, t.state, lo, hi, used, [&](uint32_t cp, uint32_t n) {
          std::string utf8;
          append_utf8(utf8, cp);
          return rest_live(t, n, make_link(utf8, t.partial, s));
        });
      });
  if (r == Scan::Live) out.push_back(t);
  if (r != Scan::Close) return;
  if (in.b != kDead)
    if (uint32_t word = a.names->label(in.b); word != kDead) {
      if (bit(in.top->open(), word)) close_known(in, word, out, s);
      return;  // a declared name is never one of the rest
    }
  if (in.state == kDead) return;
  uint32_t label = a.rest->label(in.state);
  if (label == kDead) return;
  std::string name = spelled(in.partial);
  if (name_used(in.top, name)) return;
  Link* link = make_link(name, in.top->names, s);
  link->hash = hash_text(name);
  close_unknown(in, label, link, out, s);
}

bool Machine::option_ok(const Frame* after, const Option& o) const {
  const ObjectAtom& a = p_.objects[after->atom];
  if (a.clauses.empty()) return true;
  uint64_t undeclared = 0;
  for (const Link* n = after->names; n; n = n->previous) ++undeclared;
  return object_feasible(p_, a, after->seen(), undeclared, after->gained | o.gain);
}

void Machine::members(const Thread& in, Frame* f, const Slot& slot, Threads& out, Scratch& s) const {
  ++f->count;
  for (const Option& o : slot) {
    if (!option_ok(f, o)) continue;
    // Meeting what is met already: the option without it says the same.
    if (o.gain & in.top->gained)
      if (std::any_of(slot.begin(), slot.end(),
                      [&](const Option& x) { return x.gain == (o.gain & ~in.top->gained); }))
        continue;
    Frame* g = f;
    if (slot.size() > 1) g = copy(f, s);
    g->gained |= o.gain;
    refresh(g);
    Thread t;
    t.mode = Mode::Colon, t.a = o.node, t.top = g;
    out.push_back(t);
  }
}

void Machine::close_known(const Thread& in, uint32_t word, Threads& out, Scratch& s) const {
  Frame* f = copy(in.top, s);
  f->seen()[word / 64] |= uint64_t{1} << (word % 64);
  members(in, f, p_.objects[f->atom].known[word], out, s);
}

void Machine::close_unknown(const Thread& in, uint32_t label, const Link* name, Threads& out,
                            Scratch& s) const {
  Frame* f = copy(in.top, s);
  f->names = name;
  members(in, f, p_.objects[f->atom].rest_slots[label], out, s);
}

}  // namespace llamay::grammar
