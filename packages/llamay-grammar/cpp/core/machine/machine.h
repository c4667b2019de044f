// The machine that reads a document byte by byte: configurations, each with a stack of frames.
//
// A configuration is one parse of the bytes read so far. A configuration exists only as long as a valid
// document continues it, so the machine can read exactly those bytes that a valid document continues with.
// Frames and links are immutable once made, so a configuration is copied by copying pointers; forks and
// rollbacks therefore take constant time.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "machine/configuration.h"
#include "text/scanner.h"

namespace llamay::grammar {

class Machine {
 public:
  explicit Machine(const Program& program) : p_(program) {}

  void start(Configurations& out, Scratch& s) const;
  // Appends the configurations that follow `t` after one byte.
  void step(const Configuration& t, uint8_t byte, Configurations& out, Scratch& s) const;
  void step_token(const Configuration& t, uint32_t token, Configurations& out, Scratch& s) const;
  // Appends the configurations after the value or lexeme of `t`, if the value or lexeme may end here.
  void finish_lexeme(const Configuration& t, Configurations& out, Scratch& s) const;
  bool may_end_here(const Configuration& t) const;  // String (before the quote), Number, Raw
  bool accepts(const Configuration& t) const;       // whether the document may end

  // For masks: the steps at the end of a name.
  void close_known(const Configuration& t, uint32_t word, Configurations& out, Scratch& s) const;
  void close_unknown(const Configuration& t, uint32_t label, const Link* name, Configurations& out,
                     Scratch& s) const;
  bool rest_open(const Frame* f) const;
  bool name_used(const Frame* f, std::string_view name) const;
  bool any_open(const Frame* f, uint32_t lo, uint32_t hi) const;
  // Whether `t` is inside a scalar item of an array under uniqueItems. A Link then holds the text of the
  // item.
  bool unique_item(const Configuration& t) const {
    return t.top && t.top->place == Place::Array && p_.arrays[t.top->atom].unique;
  }
  void close_item(const Configuration& t, const Link* value, Configurations& out, Scratch& s) const;
  static std::string spelled(const Link* partial);
  // For configurations inside items that are compared as documents, from index `first` on: drops a
  // configuration if all documents that continue it repeat an earlier item, and marks a configuration if its
  // spelled-out text does not decide this.
  void drop_repeats(Configurations& configurations, size_t first, Scratch& s) const;
  // Whether `t` is inside a text with continuations that lead to repeated items only.
  bool watched(const Configuration& t) const;
  // Whether a space must come before any other byte.
  bool space_missing(const Configuration& t) const;
  // Returns the configuration of `t` after a text that is not spelled out.
  Configuration blurred(const Configuration& t, Scratch& s) const;

  const Program& program() const { return p_; }

 private:
  Frame* frame(Place place, uint32_t atom, const Frame* parent, uint32_t words, Scratch& s) const;
  Frame* copy(const Frame* f, Scratch& s) const;
  void read(const Configuration& before, const Configuration& in, uint8_t byte, bool check,
            Configurations& out, Scratch& s) const;
  void step(const Configuration& t, uint8_t byte, bool check, Configurations& out, Scratch& s) const;
  void end_value(const Configuration& t, const Frame* top, Configurations& out, Scratch& s) const;
  void end_item(const Configuration& t, const Frame* top, Configurations& out, Scratch& s) const;
  struct Search;
  enum class Future : uint8_t { Plenty, Unknown, Ask };
  Future future(const Configuration& t, const Frame*& asked) const;
  bool plenty(const Configuration& t) const;
  bool plenty(const Configuration& t, const Frame* f) const;
  using Visited = std::vector<std::pair<uint32_t, const Frame*>>;
  void complete(const Frame* top, Configurations& out, Scratch& s, Visited* visited = nullptr) const;
  void network(uint32_t state, const Frame* parent, Configurations& out, Scratch& s, Visited* visited) const;
  bool space(Configuration& t, uint8_t b, Configurations& out) const;
  void begin_value(const Configuration& t, uint8_t b, Configurations& out, Scratch& s) const;
  void begin_item(const Configuration& t, Configurations& out, Scratch& s) const;
  bool can_begin_item(const Frame* f) const;
  bool item_option_ok(const Frame* f, const Option& o) const;
  bool value_left(const Frame* f, uint32_t node) const;
  bool words_left(const Frame* f, const Language& l, uint32_t state, char kind, const Link* partial) const;
  // The same for the words of a string, whose length may be limited: `count` code points have been read.
  bool string_left(const Frame* f, const StringAtom& a, uint32_t state, const Link* partial,
                   uint32_t count) const;
  static uint32_t room(const StringAtom& a, uint32_t count) { return a.max == kInf ? kInf : a.max - count; }
  // Whether more than `used` words of at most `left` code points follow a state.
  static bool many_words(const StringAtom& a, uint32_t state, uint32_t left, uint64_t used);
  void finish_value(const Configuration& t, Configurations& out, Scratch& s) const;
  uint64_t deep_arrays(const Frame* f) const;  // from f down
  bool can_close_array(const Frame* f) const;
  bool can_close_object(const Frame* f) const;
  bool can_add(const Frame* f) const;
  void refresh(Frame* f) const;  // computes the declared members that may come next
  bool option_ok(const Frame* after, const Option& o) const;
  void begin_name(const Configuration& t, Configurations& out) const;
  void step_string(const Configuration& t, uint8_t b, Configurations& out, Scratch& s) const;
  void step_raw(const Configuration& t, uint8_t b, Configurations& out, Scratch& s) const;
  void step_name(const Configuration& t, uint8_t b, Configurations& out, Scratch& s) const;
  void step_head(const Configuration& t, uint8_t b, Configurations& out, Scratch& s) const;
  void end_name(const Configuration& t, Configurations& out, Scratch& s) const;
  template <bool kJson>
  Scan read_name(Configuration& t, uint8_t b, Scratch& s) const;
  void between_members(const Frame* f, Configurations& out, Scratch& s, Visited* visited) const;
  bool rest_live(const Configuration& t, uint32_t state, const Link* partial) const;
  // Whether a character of the range leads to an unused word; `used` is an upper bound of the used words, and
  // `room` the most characters of a word behind that character. `many` tells for a state whether more words
  // than the used ones follow it.
  template <class Many, class Left>
  static bool any_left(const Language& l, uint32_t state, uint32_t lo, uint32_t hi, uint64_t used,
                       uint32_t room, Many many, Left left);
  void members(const Configuration& t, Frame* f, const Slot& slot, Configurations& out, Scratch& s) const;

  const Program& p_;
};

template <class Many, class Left>
bool Machine::any_left(const Language& l, uint32_t state, uint32_t lo, uint32_t hi, uint64_t used,
                       uint32_t room, Many many, Left left) {
  // The characters are tried one by one only if few words are left.
  if (l.any_next(state, lo, hi, many)) return true;
  uint64_t live = 0;
  for (uint32_t cp = lo; cp <= hi; ++cp) {
    if (!l.any_next(state, cp, std::min(hi, cp | 0xFF), [](uint32_t) { return true; })) {
      cp |= 0xFF;  // nothing in this block
      continue;
    }
    uint32_t n = l.next(state, cp);
    if (n == kDead || l.min_length(n) > room) continue;
    if (++live > used || left(cp, n)) return true;
  }
  return false;
}

}  // namespace llamay::grammar
