#include "machine/machine.h"

#include <algorithm>

#include "automata/lengths.h"
#include "text/json.h"

namespace llamay::grammar {

namespace {

bool is_space(uint8_t b) { return b == ' ' || b == '\n' || b == '\t' || b == '\r'; }

}  // namespace

Frame* Machine::frame(Place place, uint32_t atom, const Frame* parent, uint32_t words, Scratch& s) const {
  Frame* f = new (s.allocate(frame_bytes(words))) Frame;
  f->place = place, f->atom = atom, f->parent = parent, f->n_words = static_cast<uint16_t>(words);
  std::memset(f->bits, 0, size_t{words} * 16);
  return f;
}

Frame* Machine::copy(const Frame* g, Scratch& s) const {
  Frame* f = new (s.allocate(frame_bytes(g->n_words))) Frame;
  copy_frame(*f, *g);
  return f;
}

void Machine::start(Configurations& out, Scratch& s) const {
  network(p_.start, frame(Place::Root, 0, nullptr, 0, s), out, s, nullptr);
}

bool Machine::accepts(const Configuration& t) const {
  if (t.mode == Mode::After) return t.top->place == Place::Root;
  if (t.mode != Mode::Number && t.mode != Mode::Raw) return false;
  if (!may_end_here(t)) return false;
  thread_local Scratch s;
  s.reset();
  Configurations after;
  complete(t.top, after, s);
  for (const Configuration& x : after)
    if (x.mode == Mode::After && x.top->place == Place::Root) return true;
  return false;
}

bool Machine::may_end_here(const Configuration& t) const {
  if (t.scan != 0) return false;
  switch (t.mode) {
    case Mode::String: {
      const StringAtom& a = p_.strings[t.a];
      return a.language->accepts(t.state) && t.count >= a.min &&
             !(unique_item(t) && t.top->names && name_used(t.top, '"' + spelled(t.partial)));
    }
    case Mode::Number:
      return p_.numbers[t.a].language->accepts(t.state) &&
             !(unique_item(t) && t.top->names && name_used(t.top, '#' + spelled(t.partial)));
    case Mode::Raw: {
      const StringAtom& a = p_.lexemes[t.a];
      return t.count > 0 && t.count >= a.min && a.language->accepts(t.state);
    }
    default:
      return false;
  }
}

void Machine::finish_lexeme(const Configuration& t, Configurations& out, Scratch& s) const {
  const size_t first = out.size();
  finish_value(t, out, s);
  drop_repeats(out, first, s);
}

void Machine::step_token(const Configuration& t, uint32_t token, Configurations& out, Scratch& s) const {
  if (t.mode == Mode::Token && t.a == token) complete(t.top, out, s);
  if ((t.mode == Mode::Number || t.mode == Mode::Raw) && may_end_here(t)) {
    Configurations after;
    complete(t.top, after, s);
    for (const Configuration& x : after)
      if (x.mode == Mode::Token && x.a == token) complete(x.top, out, s);
  }
}

// ---- One byte ----

bool Machine::space(Configuration& t, uint8_t b, Configurations& out) const {
  if (!is_space(b)) return false;
  bool ok = p_.whitespace == Whitespace::Flexible ? t.spaces < p_.max_whitespace
            : p_.whitespace == Whitespace::Spaced ? t.gap && t.spaces == 0 && b == ' '
                                                  : false;
  if (ok) ++t.spaces, out.push_back(t);
  return true;
}

bool Machine::space_missing(const Configuration& t) const {
  return p_.whitespace == Whitespace::Spaced && t.gap && t.spaces == 0;
}

void Machine::step(const Configuration& in, uint8_t b, Configurations& out, Scratch& s) const {
  step(in, b, true, out, s);
}

// With `check`, configurations that lead to repeated items only are dropped.
void Machine::step(const Configuration& in, uint8_t b, bool check, Configurations& out, Scratch& s) const {
  if (!p_.deep) return read(in, in, b, check, out, s);
  const size_t first = out.size();
  if (in.text) {
    Configuration t = in;
    const char c = static_cast<char>(b);
    t.text = make_link(std::string_view(&c, 1), in.text, s);
    read(in, t, b, check, out, s);
  } else {
    read(in, in, b, check, out, s);
  }
  if (check) drop_repeats(out, first, s);
}

// `in` is the configuration `before` with the byte appended to its text.
void Machine::read(const Configuration& before, const Configuration& in, uint8_t b, bool check,
                   Configurations& out, Scratch& s) const {
  switch (in.mode) {
    case Mode::String:
      return step_string(in, b, out, s);
    case Mode::Name:
      return in.top->place == Place::Tagged ? step_head(in, b, out, s) : step_name(in, b, out, s);
    case Mode::Number:
    case Mode::Raw: {
      step_raw(in, b, out, s);
      if (may_end_here(in)) {
        Configurations after;
        finish_value(before, after, s);
        for (const Configuration& t : after) step(t, b, check, out, s);
      }
      return;
    }
    case Mode::Literal: {
      const char* text = literal_text(in.a);
      if (static_cast<uint8_t>(text[in.count]) != b) return;
      Configuration t = in;
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
  Configuration t = in;
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
        Configurations items;
        Configuration i = before;
        i.gap = false;
        begin_item(i, items, s);
        for (const Configuration& x : items) step(x, b, check, out, s);
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
          Configuration i = in;
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

}  // namespace llamay::grammar
