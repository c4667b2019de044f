// What all tokens of a vocabulary do to a lexeme whose next byte begins a character: groups of tokens at a
// time where their classes of bytes and their length decide, by their texts where these do not.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "lexeme_step.h"
#include "points.h"

namespace llamay::grammar {

namespace {

constexpr uint32_t kNever = 0xFFFFFFFFu;

// What an automaton does to texts of some of its classes of characters, in any order.
struct Outcome {
  uint32_t inside = 0;     // up to this length all of them stay inside
  uint32_t dead = kNever;  // from this length on all of them leave it
};

class WholeMaker {
 public:
  WholeMaker(const TokenGroups& groups, const Lang& l, const EntryKey& k, uint32_t words, uint32_t size)
      : groups_(groups), l_(l), k_(k), json_(is_json(k.kind)), words_(words), size_(size) {
    find_classes();
  }

  void run(Entry& out) {
    judge();
    fill(out);
    if (json_) leave(out);
    out.needs = needs_;
  }

 private:
  struct Verdict {
    uint32_t group, kind;
    uint64_t classes = 0;
    Outcome outcome;
  };
  const TokenGroups& groups_;
  const Lang& l_;
  const EntryKey& k_;
  const bool json_;
  const uint32_t words_, size_;

  // Of each class of bytes, the automaton's classes that its characters are in; and those classes of bytes
  // that no state reads.
  std::array<uint64_t, 64> touched_{};
  uint64_t fatal_ = 0;
  std::vector<Verdict> verdicts_;  // of groups that are not fatal
  uint64_t needs_ = 0;

  void need(uint64_t count) { needs_ = std::max(needs_, count); }

  void find_classes() {
    uint64_t live = 0;
    for (uint32_t s = 0, n = l_.n_states(); s < n; ++s)
      for (uint32_t c = 0; c < l_.n_classes; ++c)
        if (l_.table[size_t{s} * l_.n_classes + c] != kDead) live |= uint64_t{1} << c;
    auto touch = [&](uint64_t classes, uint32_t by) {
      for (; classes != 0; classes &= classes - 1) touched_[__builtin_ctzll(classes)] |= uint64_t{1} << by;
    };
    for (uint32_t c = 0; c < 128; ++c) touch(point_classes(c, c), l_.ascii_class[c]);
    for (size_t i = 0; i < l_.range_start.size(); ++i)
      touch(point_classes(l_.range_start[i],
                          i + 1 < l_.range_start.size() ? l_.range_start[i + 1] - 1 : kMaxCodePoint),
            l_.range_class[i]);
    for (uint32_t b = 0; b < kClassBroken; ++b)
      if (touched_[b] != 0 && (touched_[b] & live) == 0) fatal_ |= uint64_t{1} << b;
  }

  // ---- Groups ----

  // Follows all states that texts of some classes can lead to, one character after another.
  static constexpr uint32_t kMost = 32;
  static constexpr size_t kMostStates = 16;
  static constexpr size_t kMaxWork = 6000;
  static constexpr uint32_t kWorthIt = 48;  // tokens
  size_t work_ = 0;
  std::vector<uint32_t> now_, next_, seen_;
  uint32_t mark_ = 0;

  bool open(uint32_t state, uint32_t depth) const { return is_open(l_, k_, state, depth); }

  // Of texts that begin with a character of one set of classes and go on with those of another. `read`: the
  // classes that some of them get to; all, where that was not found out.
  Outcome follow(uint64_t lead, uint64_t rest, uint32_t from, uint64_t& read) {
    Outcome o;
    uint64_t got_to = 0;
    read = ~uint64_t{0};
    if (seen_.empty()) seen_.assign(l_.n_states(), 0);
    now_.assign(1, from);
    bool inside = true;
    for (uint32_t depth = 1; depth <= kMost && work_ < 2 * kMaxWork; ++depth) {
      next_.clear();
      ++mark_;
      bool unlimited = k_.max == kInf;
      for (uint32_t s : now_) {
        const uint32_t* row = &l_.table[size_t{s} * l_.n_classes];
        for (uint64_t left = depth == 1 ? lead : rest; left != 0; left &= left - 1) {
          const uint32_t t = row[__builtin_ctzll(left)];
          ++work_;
          if (!open(t, depth)) {
            inside = false;
            continue;
          }
          got_to |= left & -left;
          if (seen_[t] == mark_) continue;
          seen_[t] = mark_;
          unlimited = unlimited && (k_.min == 0 || l_.infinite(t));
          next_.push_back(t);
        }
      }
      if (next_.empty()) {
        o.dead = depth;
        read = got_to;
        break;
      }
      if (inside) o.inside = depth;
      // From here on nothing changes.
      if (next_ == now_ && unlimited && (depth > 1 || lead == rest)) {
        if (inside) o.inside = kNever;
        read = got_to;
        break;
      }
      if (!inside && next_.size() > kMostStates) break;
      std::swap(now_, next_);
    }
    return o;
  }

  uint64_t touched_by(uint64_t classes) const {
    uint64_t out = 0;
    for (; classes != 0; classes &= classes - 1) out |= touched_[__builtin_ctzll(classes)];
    return out;
  }

  void judge() {
    const std::vector<TokenGroups::Group>& groups = groups_.groups();
    // Groups that the automaton cannot tell apart are judged together.
    struct Kind {
      uint64_t lead = 0, rest = 0;
      uint32_t tokens = 0;
      uint64_t unread = 0;  // classes of bytes that none of its texts gets to
      Outcome outcome;
    };
    std::vector<Kind> kinds;
    uint32_t slot_bits = 1;
    while (size_t{1} << slot_bits < groups.size() * 2) ++slot_bits;
    std::vector<uint32_t> slots(size_t{1} << slot_bits, kNone);
    for (uint32_t g = 0; g < groups.size(); ++g) {
      const TokenGroups::Group& x = groups[g];
      if ((x.classes & fatal_) != 0 || (json_ && !x.plain)) continue;
      const uint64_t rest = touched_by(x.rest), lead = x.lead == x.rest ? rest : touched_by(x.lead);
      size_t at = (lead * 0xD6E8FEB86659FD93ull ^ rest) * 0x9E3779B97F4A7C15ull >> (64 - slot_bits);
      while (slots[at] != kNone && (kinds[slots[at]].lead != lead || kinds[slots[at]].rest != rest))
        at = (at + 1) % slots.size();
      if (slots[at] == kNone) {
        slots[at] = static_cast<uint32_t>(kinds.size());
        kinds.push_back({lead, rest, 0, 0, {}});
      }
      kinds[slots[at]].tokens += x.last - x.first;
      verdicts_.push_back({g, slots[at], 0, {}});
    }
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < kinds.size(); ++i)
      if (kinds[i].tokens >= kWorthIt) order.push_back(i);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return kinds[a].tokens > kinds[b].tokens; });
    for (uint32_t i : order) {
      if (work_ >= kMaxWork) break;
      Kind& kind = kinds[i];
      uint64_t read = 0;
      kind.outcome = follow(kind.lead, kind.rest, k_.state, read);
      if (((kind.lead | kind.rest) & ~read) != 0)
        for (uint32_t b = 0; b < kClassBroken; ++b)
          if (touched_[b] != 0 && (touched_[b] & read) == 0) kind.unread |= uint64_t{1} << b;
    }
    for (Verdict& v : verdicts_) {
      const Kind& kind = kinds[v.kind];
      const uint64_t classes = groups[v.group].classes;
      if (classes >> kClassBroken & 1) continue;
      v.outcome = (classes & kind.unread) != 0 ? Outcome{0, 0} : kind.outcome;
      v.classes = kind.rest;
    }
  }

  // ---- Tokens ----

  void fill(Entry& out) {
    const std::vector<TokenGroups::Group>& groups = groups_.groups();
    size_t possible = json_ ? groups_.odd().size() : 0, sure = 0;
    for (const Verdict& v : verdicts_) {
      const TokenGroups::Group& g = groups[v.group];
      if (g.shortest >= v.outcome.dead) continue;
      possible += g.last - g.first;
      if (v.outcome.inside == kNever || g.longest <= v.outcome.inside)
        sure += g.last - g.first;
      else if (g.shortest <= v.outcome.inside)
        sure += inside_of(g, v.outcome) - g.first;
    }
    if (possible <= size_ / 48) {
      for (const Verdict& v : verdicts_)
        each_token(
            groups[v.group], v.outcome, v.classes, [&](uint32_t t) { out.sparse.push_back(t); },
            [](uint32_t) {});
      if (json_) read_odd([&](uint32_t t) { out.sparse.push_back(t); });
      return;
    }
    // Begins with what most groups expect, so that few have to be looked at.
    const Outcome expected = likely(sure);
    if (expected.inside == kNever)
      out.dense = json_ ? groups_.plain() : groups_.all();
    else if (expected.inside > 0)
      out.dense.assign(groups_.plain_up_to(expected.inside), groups_.plain_up_to(expected.inside) + words_);
    else
      out.dense.assign(words_, 0);
    uint32_t* mask = out.dense.data();
    auto set = [mask](uint32_t t) { mask[t / 32] |= 1u << (t % 32); };
    auto clear = [mask](uint32_t t) { mask[t / 32] &= ~(1u << (t % 32)); };
    auto nothing = [](uint32_t) {};
    size_t next = 0;
    for (uint32_t g = 0; g < groups.size(); ++g) {
      const TokenGroups::Group& x = groups[g];
      if (json_ && !x.plain) continue;
      const bool judged = next < verdicts_.size() && verdicts_[next].group == g;
      const Verdict v = judged ? verdicts_[next++] : Verdict{g, 0, 0, {0, 0}};
      const Outcome& o = v.outcome;
      const bool inside = o.inside == kNever || x.longest <= o.inside, dead = x.shortest >= o.dead;
      if (inside) need_length(x.longest);
      if (inside ? x.longest <= expected.inside : dead && x.shortest > expected.inside) continue;
      if (o.inside == expected.inside && o.dead == expected.dead) {
        need_length(o.inside);
        continue;
      }
      const uint32_t* bits = inside || dead ? groups_.bits(g) : nullptr;
      if (bits && inside)
        for (uint32_t i = 0; i < words_; ++i) mask[i] |= bits[i];
      else if (bits)
        for (uint32_t i = 0; i < words_; ++i) mask[i] &= ~bits[i];
      else if (expected.inside == 0)
        each_token(x, o, v.classes, set, nothing);
      else if (expected.inside == kNever)
        each_token(x, o, v.classes, nothing, clear);
      else
        each_token(x, o, v.classes, set, clear);
    }
    if (json_) read_odd(set);
  }

  // What becomes of most tokens; `sure` of them stay inside.
  Outcome likely(size_t sure) const {
    if (sure > (json_ ? groups_.n_plain() : groups_.texts().size()) / 2) return {kNever, kNever};
    const Verdict* most = nullptr;
    for (const Verdict& v : verdicts_) {
      auto count = [&](const Verdict& x) {
        const TokenGroups::Group& g = groups_.groups()[x.group];
        return g.last - g.first;
      };
      if (!most || count(v) > count(*most)) most = &v;
    }
    if (json_ && most && most->outcome.inside <= TokenGroups::kShort &&
        most->outcome.dead == most->outcome.inside + 1)
      return most->outcome;
    return {0, 1};
  }

  void need_length(uint32_t length) {
    need(length >= TokenGroups::kCapped ? UINT64_MAX : uint64_t{length} + l_.longest_min);
  }

  // Where those of its tokens end, shortest first, that are short enough to stay inside.
  uint32_t inside_of(const TokenGroups::Group& g, const Outcome& o) const {
    const auto lengths = groups_.lengths().begin();
    return static_cast<uint32_t>(std::upper_bound(lengths + g.first, lengths + g.last, o.inside) - lengths);
  }

  template <class Stay, class Leave>
  void each_token(const TokenGroups::Group& g, const Outcome& o, uint64_t classes, Stay stay, Leave leave) {
    const std::vector<uint32_t>& tokens = groups_.shortest_first();
    const auto lengths = groups_.lengths().begin();
    const uint32_t inside = o.inside == kNever ? g.last : o.inside < g.shortest ? g.first : inside_of(g, o);
    const uint32_t dead =
        o.dead > g.longest
            ? g.last
            : static_cast<uint32_t>(std::lower_bound(lengths + inside, lengths + g.last, o.dead) - lengths);
    if (inside != g.first) need_length(lengths[inside - 1]);
    for (uint32_t i = g.first; i < inside; ++i) stay(tokens[i]);
    for (uint32_t i = dead; i < g.last; ++i) leave(tokens[i]);
    if (inside == dead) return;
    const TokenTexts& texts = groups_.texts();
    read(
        texts, g.first, g.last, classes,
        [&](uint32_t i) { return texts.length[i] <= o.inside || texts.length[i] >= o.dead; },
        [&](uint32_t i) { stay(texts.tokens[i]); },
        [&](uint32_t i, uint32_t end) {
          for (; i < end; ++i) leave(texts.tokens[i]);
        },
        [](uint32_t, uint32_t, uint32_t, const Spot&) {});
  }

  std::vector<Spot> spots_;  // after each byte of the text being read

  // Reads texts, all but the skipped ones, and says of each whether it stays inside, leaves, or ends the
  // lexeme, where and in which state. What a text does before its end, all that begin like it do. `classes`:
  // of what they have behind their first character; 0: unknown.
  template <class Skip, class Stay, class Leave, class Close>
  void read(const TokenTexts& x, uint32_t first, uint32_t last, uint64_t classes, Skip skip, Stay stay,
            Leave leave, Close close) {
    if (spots_.size() < kSpots) spots_.resize(kSpots);
    spots_[0] = {k_.state, 0, 0};
    uint32_t common = 0;  // with the text read before
    for (uint32_t i = first; i < last;) {
      common = std::min<uint32_t>(common, x.common[i]);
      if (skip(i)) {
        ++i;
        continue;
      }
      const std::string_view text = x.text(i);
      if (spots_.size() <= text.size()) spots_.resize(2 * text.size());
      uint32_t at = common, stays = 0;
      Scan fate = Scan::Live;
      for (; at < text.size(); ++at) {
        fate = step(spots_[at], static_cast<uint8_t>(text[at]), spots_[at + 1]);
        if (fate != Scan::Live) break;
        if (classes == 0 || at >= kAsked || spots_[at + 1].scan != 0) continue;
        const uint32_t end = beyond(x.common, i + 1, last, at);
        if (end - i < kWorthIt || !loops(classes, spots_[at + 1].state)) continue;
        stays = end;
        break;
      }
      if (stays > 0) {
        for (; i < stays; ++i) need_length(x.length[i]), stay(i);
        common = TokenGroups::kCapped;
        continue;
      }
      // What a text needs grows with each of its characters.
      const Spot& end = spots_[at];
      need(uint64_t{end.count} + (end.scan != 0 ? 1 + l_.longest_min : l_.min_len[end.state]));
      if (fate == Scan::Live) {
        stay(i++);
        common = TokenGroups::kCapped;
        continue;
      }
      const uint32_t next = beyond(x.common, i + 1, last, at);
      if (fate == Scan::Dead)
        leave(i, next);
      else
        close(i, next, at, end);
      i = next;
      common = at;
    }
  }
  static constexpr size_t kSpots = 64;

  // Whether texts of these classes stay inside from a state on, however long they are.
  static constexpr size_t kAsked = 3;  // behind this many bytes hardly enough tokens are left
  struct Asked {
    uint64_t classes;
    uint32_t state;
    bool loops;
  };
  std::vector<Asked> asked_;
  bool loops(uint64_t classes, uint32_t state) {
    if (k_.max != kInf || (k_.min > 0 && !l_.all_infinite) || work_ >= 2 * kMaxWork) return false;
    for (size_t i = asked_.size(); i-- > 0;)
      if (asked_[i].classes == classes && asked_[i].state == state) return asked_[i].loops;
    uint64_t read;
    asked_.push_back({classes, state, follow(classes, classes, state, read).inside == kNever});
    return asked_.back().loops;
  }

  // The first text that does not begin with more than `at` bytes of the one before.
  static uint32_t beyond(const std::vector<uint8_t>& common, uint32_t i, uint32_t last, uint32_t at) {
    if (at >= TokenGroups::kCapped) return i;
    const uint8_t* c = common.data();
    constexpr uint32_t kStep = 32;
    for (; i + kStep <= last; i += kStep) {
      uint8_t any = 0;
      for (uint32_t k = 0; k < kStep; ++k) any |= static_cast<uint8_t>(c[i + k] <= at);
      if (any) break;
    }
    while (i < last && c[i] > at) ++i;
    return i;
  }

  Scan step(const Spot& from, uint8_t b, Spot& to) const {
    if (from.scan == 0 && b < 0x80 && !(json_ && (b < 0x20 || b == '"' || b == '\\'))) {
      to = {l_.table[size_t{from.state} * l_.n_classes + l_.ascii_class[b]], 0, from.count + 1};
      return open(to.state, to.count) ? Scan::Live : Scan::Dead;
    }
    to = from;
    return json_ ? step_lexeme<true>(l_, k_, to, b) : step_lexeme<false>(l_, k_, to, b);
  }

  // ---- Ends of strings ----

  struct End {
    uint32_t label, token;
    std::string_view rest;
  };
  std::vector<End> odd_ends_;

  template <class Stay>
  void read_odd(Stay stay) {
    const TokenTexts& odd = groups_.odd();
    read(
        odd, 0, odd.size(), 0, [](uint32_t) { return false; }, [&](uint32_t i) { stay(odd.tokens[i]); },
        [](uint32_t, uint32_t) {},
        [&](uint32_t i, uint32_t end, uint32_t quote, const Spot& at) {
          const uint32_t label = ends(at);
          if (label == kDead) return;
          for (; i < end; ++i) odd_ends_.push_back({label, odd.tokens[i], odd.text(i).substr(quote + 1)});
        });
  }

  // The label of the word that may end here, or kDead.
  uint32_t ends(const Spot& at) const { return at.count >= k_.min ? l_.label(at.state) : kDead; }

  // What all tokens, or all that begin with the quote, have behind it is known; only what some of the others
  // have is put together here.
  void leave(Entry& out) {
    const TokenTexts& closing = groups_.closing();
    std::vector<uint32_t> labels(closing.size(), kDead);
    read(
        closing, 0, closing.size(), 0, [](uint32_t) { return false; }, [](uint32_t) {},
        [](uint32_t, uint32_t) {},
        [&](uint32_t i, uint32_t end, uint32_t, const Spot& at) {
          std::fill(&labels[i], &labels[i] + (end - i), ends(at));
        });
    const uint32_t bare = ends({k_.state, 0, 0});
    uint32_t label = kDead, n = 0;
    bool one = true;  // label
    for (uint32_t i = 0; i < closing.size(); ++i) {
      if (groups_.quote(i) == 0 || labels[i] == kDead) continue;
      if (n++ == 0) label = labels[i];
      one = one && labels[i] == label;
    }
    const uint32_t others = closing.size() - groups_.n_bare();
    const bool all_others = n > 0 && n == others && one;
    if (all_others && bare == label && groups_.n_bare() > 0) {
      out.exits.push_back({label, groups_.rests()});
    } else {
      if (bare != kDead && groups_.n_bare() > 0) out.exits.push_back({bare, groups_.rests_of_bare()});
      if (all_others) {
        out.exits.push_back({label, groups_.rests_of_others()});
      } else if (n > 0) {
        std::vector<End> some;
        for (uint32_t i : groups_.closing_by_rest())
          if (groups_.quote(i) != 0 && labels[i] != kDead)
            some.push_back({labels[i], closing.tokens[i], closing.text(i).substr(groups_.quote(i) + 1)});
        put_together(std::move(some), out);
      }
    }
    put_together(std::move(odd_ends_), out);
  }

  static void put_together(std::vector<End> ends, Entry& out) {
    std::stable_sort(ends.begin(), ends.end(), [](const End& a, const End& b) { return a.label < b.label; });
    for (size_t i = 0; i < ends.size();) {
      std::vector<std::pair<std::string_view, uint32_t>> rest;
      const uint32_t label = ends[i].label;
      for (; i < ends.size() && ends[i].label == label; ++i) rest.emplace_back(ends[i].rest, ends[i].token);
      auto made = std::make_shared<Trie>();
      made->build(std::move(rest));
      out.exits.push_back({label, std::move(made)});
    }
  }
};

}  // namespace

bool Vocabulary::is_whole(const EntryKey& key, const Lang& lang) {
  return key.node == 0 && key.trie == TrieId::All && key.scan == 0 && key.kind != Lexeme::Plain &&
         key.kind != Lexeme::Member && !lang.trie && lang.n_classes <= 64;
}

EntryPtr Vocabulary::make_whole(const EntryKey& key, const Lang& lang) const {
  auto out = std::make_shared<Entry>();
  WholeMaker(groups_, lang, key, words(), size()).run(*out);
  return out;
}

}  // namespace llamay::grammar
