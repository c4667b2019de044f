// The search for a document in which the current item differs from the earlier items of its array.
#include <string>
#include <string_view>
#include <vector>

#include "machine/machine.h"

namespace llamay::grammar {

// Searches for a document that continues a configuration and has no repeated item. The search tries one
// spelling of every value and one order of the members of an object.
struct Machine::Search {
  const Machine& m;
  Scratch& s;
  size_t goal;        // the depth of the stack after the item has ended
  uint32_t most;      // steps
  bool cut = false;   // whether a branch was abandoned because of its length
  bool lost = false;  // whether the steps did not suffice
  uint32_t steps = 0;

  static constexpr uint32_t kFewSteps = 2000, kMaxSteps = 50000;
  static constexpr uint64_t kMaxTotal = 1600000;
  // For each object in which the search has chosen a name, the index of the last chosen name.
  using Order = std::vector<int64_t>;

  static size_t depth(const Frame* f) {
    size_t n = 0;
    for (; f; f = f->parent) ++n;
    return n;
  }

  static std::string_view range(char lo, char hi) {
    static const std::string all = [] {
      std::string t(256, '\0');
      for (size_t i = 0; i < 256; ++i) t[i] = static_cast<char>(i);
      return t;
    }();
    return std::string_view(all).substr(
        static_cast<uint8_t>(lo),
        static_cast<size_t>(static_cast<uint8_t>(hi) - static_cast<uint8_t>(lo)) + 1);
  }

  // Returns the bytes that may come next in the spelling that the search tries.
  std::string bytes(const Configuration& t) const {
    using namespace scan;
    const Program& p = m.p_;
    auto list = [](std::initializer_list<std::string_view> parts) {
      std::string out;
      for (auto x : parts) out += x;
      return out;
    };
    if (t.mode == Mode::String || t.mode == Mode::Name) {
      const uint32_t digits = t.scan >> 3 & 3;
      switch (t.scan & 7) {
        case kText:
          return list(
              {range('"', '['), range(']', '~'), range(' ', '!'), "\x7f", range('\xC2', '\xF4'), "\\"});
        case kUtf8:
          return list({range('\x80', '\xBF')});
        case kEscape:
          return "\"\\bfnrtu";
        case kHex:
          return digits < 2 ? "0" : digits == 2 ? "01" : "0123456789abcdef";
        default:
          return "";
      }
    }
    if (p.whitespace == Whitespace::Spaced && t.gap && t.spaces == 0) return " ";
    const std::string_view value = "0123456789-tfn\"[{";
    switch (t.mode) {
      case Mode::Value:
        return list({value});
      case Mode::Number:
        return "0123456789.-+eE";
      case Mode::Literal:
        return std::string(1, literal_text(t.a)[t.count]);
      case Mode::ArrayHead:
        return list({"]", value});
      case Mode::ObjectHead:
        return "}\"";
      case Mode::NextName:
        return "\"";
      case Mode::Colon:
        return ":";
      default:
        return "}],";
    }
  }

  // Whether the step from configuration `from` to `x` keeps the names of each object in order.
  bool in_order(const Configuration& from, const Configuration& x, Order& order) const {
    if (m.p_.schema_order) return true;
    const size_t at = depth(x.top);
    if (x.mode == Mode::ObjectHead && order.size() > at) order.resize(at);
    if (x.mode == Mode::Name && from.mode != Mode::Name && order.size() <= at) order.resize(at + 1, -1);
    if (x.mode != Mode::Colon || from.mode != Mode::Name || order.size() <= at) return true;
    for (uint32_t i = 0; i < x.top->n_words; ++i) {
      const uint64_t fresh = x.top->seen()[i] & ~from.top->seen()[i];
      if (!fresh) continue;
      const int64_t word = i * 64 + __builtin_ctzll(fresh);
      if (word < order[at]) return false;
      order[at] = word;
    }
    return true;
  }

  [[noreturn]] static void too_long() {
    throw std::length_error("whether an item under uniqueItems can still differ takes too many steps");
  }

  // Whether there is a document. An item that needs a few characters more than a length has as many
  // beginnings of that length as it has values, so each length gets few steps before any gets many.
  static bool any(const Machine& m, Scratch& s, const Configuration& t, size_t goal) {
    for (const uint32_t most : {kFewSteps, kMaxSteps}) {
      bool lost = false;
      for (const uint32_t longest : {16u, 64u, 512u, 4096u}) {
        Search search{m, s, goal, most};
        if (search.found(t, longest, {})) return true;
        if (!search.cut && !search.lost) return false;
        lost = search.lost;
      }
      if (!lost) return false;
    }
    too_long();
  }

  bool arrives(const Configuration& x) const { return x.mode == Mode::After && depth(x.top) == goal; }

  bool found(const Configuration& t, uint32_t left, const Order& order) {
    if (t.mode == Mode::Number && m.may_end_here(t)) {
      Configurations after;
      m.finish_value(t, after, s);
      for (const Configuration& x : after)
        if (arrives(x) || found(x, left, order)) return true;
    }
    for (char c : bytes(t)) {
      if (++s.searched > kMaxTotal) too_long();
      if (++steps > most) lost = true;
      if (lost) return false;
      Configurations next;
      Configuration with = t;
      with.text = make_link(std::string_view(&c, 1), t.text, s);
      if (t.mode == Mode::Number)
        m.step_raw(with, static_cast<uint8_t>(c), next, s);
      else
        m.read(t, with, static_cast<uint8_t>(c), false, next, s);
      for (const Configuration& x : next) {
        if (arrives(x)) return true;
        Order mine = order;
        if (!in_order(t, x, mine)) continue;
        const Frame* asked;
        if (m.future(x, asked) == Future::Plenty) return true;
        if (left == 0)
          cut = true;
        else if (found(x, left - 1, mine))
          return true;
      }
    }
    return false;
  }
};

void Machine::drop_repeats(Configurations& list, size_t first, Scratch& s) const {
  size_t kept = first;
  for (size_t i = first; i < list.size(); ++i) {
    bool live = true;
    if (list[i].text && !list[i].doubt) {
      const Frame* asked;
      const Future f = future(list[i], asked);
      list[i].doubt = f == Future::Unknown;
      if (f == Future::Ask) {
        live = Search::any(*this, s, list[i], Search::depth(asked));
      }
    }
    if (live) {
      if (kept != i) list[kept] = list[i];
      ++kept;
    }
  }
  list.resize(kept);
}

}  // namespace llamay::grammar
