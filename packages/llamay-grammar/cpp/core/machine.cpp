#include "machine.h"

#include <algorithm>

#include "json.h"
#include "links.h"

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
  block_ = 0, used_ = 0, searched = 0;
  at_ = blocks_.empty() ? nullptr : blocks_[0].get();
  left_ = blocks_.empty() ? 0 : sizes_[0];
}

namespace {

bool is_space(uint8_t b) { return b == ' ' || b == '\n' || b == '\t' || b == '\r'; }

}  // namespace

bool same_thread(const Thread& a, const Thread& b) {
  if (a.mode != b.mode || a.gap != b.gap || a.spaces != b.spaces || a.a != b.a || a.b != b.b ||
      a.state != b.state || a.scan != b.scan || a.count != b.count || a.doubt != b.doubt ||
      !same_links(a.partial, b.partial))
    return false;
  const Frame *f = a.top, *g = b.top;
  if (f == g) return same_links(a.text, b.text);
  if (!f || !g || f->place != g->place || f->atom != g->atom || f->parent != g->parent ||
      f->count != g->count || f->gained != g->gained || f->n_words != g->n_words ||
      !same_links(f->names, g->names))
    return false;
  return std::memcmp(f->have, g->have, sizeof f->have) == 0 &&
         std::memcmp(f->bits, g->bits, size_t{f->n_words} * 16) == 0 && same_links(a.text, b.text);
}

Frame* Machine::frame(Place place, uint32_t atom, const Frame* parent, uint32_t words, Scratch& s) const {
  Frame* f = new (s.take(sizeof(Frame) + size_t{words} * 16)) Frame;
  f->place = place, f->atom = atom, f->parent = parent, f->n_words = static_cast<uint16_t>(words);
  std::memset(f->bits, 0, size_t{words} * 16);
  return f;
}

Frame* Machine::copy(const Frame* g, Scratch& s) const {
  Frame* f = frame(g->place, g->atom, g->parent, g->n_words, s);
  f->count = g->count, f->gained = g->gained, f->names = g->names, f->lead = g->lead;
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
  if (top->place == Place::Tagged) return between_members(top, out, s, visited);
  if (top->place == Place::Lead) return begin_name({.top = top->parent}, out);
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
      case Edge::Tagged:
        for (uint32_t o : p_.tagged[e.arg].objects) {
          Frame* f = frame(Place::Tagged, o, top, p_.objects[o].words(), s);
          f->lead = p_.tagged[e.arg].lead;
          refresh(f);
          between_members(f, out, s, visited);
        }
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

void Machine::finish_lexeme(const Thread& t, Threads& out, Scratch& s) const {
  const size_t first = out.size();
  finish_value(t, out, s);
  drop_repeats(out, first, s);
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

void Machine::step(const Thread& in, uint8_t b, Threads& out, Scratch& s) const { step(in, b, true, out, s); }

// check: whether threads that only lead to repeated items are dropped.
void Machine::step(const Thread& in, uint8_t b, bool check, Threads& out, Scratch& s) const {
  if (!p_.deep) return read(in, in, b, check, out, s);
  const size_t first = out.size();
  if (in.text) {
    Thread t = in;
    const char c = static_cast<char>(b);
    t.text = make_link(std::string_view(&c, 1), in.text, s);
    read(in, t, b, check, out, s);
  } else {
    read(in, in, b, check, out, s);
  }
  if (check) drop_repeats(out, first, s);
}

// `in` is `before` with the byte added to its text.
void Machine::read(const Thread& before, const Thread& in, uint8_t b, bool check, Threads& out,
                   Scratch& s) const {
  switch (in.mode) {
    case Mode::String:
      return step_string(in, b, out, s);
    case Mode::Name:
      return in.top->place == Place::Tagged ? step_head(in, b, out, s) : step_name(in, b, out, s);
    case Mode::Number:
    case Mode::Raw: {
      step_raw(in, b, out, s);
      if (may_end_here(in)) {
        Threads after;
        finish_value(before, after, s);
        for (const Thread& t : after) step(t, b, check, out, s);
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
        if (can_close_array(in.top)) end_value(in, in.top->parent, out, s);
      } else if (can_begin_item(in.top)) {
        Threads items;
        Thread i = before;
        i.gap = false;
        begin_item(i, items, s);
        for (const Thread& x : items) step(x, b, check, out, s);
      }
      return;
    case Mode::ObjectHead:
      if (b == '}') {
        if (can_close_object(in.top)) end_value(in, in.top->parent, out, s);
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
        if (b == ']' && can_close_array(in.top)) end_value(in, in.top->parent, out, s);
        if (b == ',' && can_begin_item(in.top)) {
          Thread i = in;
          i.gap = true, i.spaces = 0;
          begin_item(i, out, s);
        }
      } else if (in.top->place == Place::Object) {
        if (b == '}' && can_close_object(in.top)) end_value(in, in.top->parent, out, s);
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
  t.top = in.top, t.text = in.text;
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
      },
      p_.canonical_escapes);
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

}  // namespace llamay::grammar
