// Entries of all tokens of a vocabulary for a lexeme whose next byte begins a character. Classes of
// characters and lengths decide most tokens, whole groups at a time; the texts decide the others.
#include <algorithm>
#include <unordered_map>

#include "vocabulary/group_kinds.h"
#include "vocabulary/lexeme_step.h"

namespace llamay::grammar {

namespace {

constexpr uint32_t kNever = 0xFFFFFFFFu;

// The outcome of all texts over some classes of characters of an automaton, in any order.
struct Outcome {
  uint32_t inside = 0;     // all texts up to this length stay inside
  uint32_t dead = kNever;  // all texts from this length on leave
};
constexpr Outcome kOut{0, 0};

class WholeMaker {
 public:
  WholeMaker(const TokenGroups& groups, const GroupKinds& kinds, const Language& l, const EntryKey& k,
             uint32_t words, uint32_t size)
      : groups_(groups), kinds_(kinds), l_(l), k_(k), json_(is_json(k.kind)), words_(words), size_(size) {}

  void run(Entry& out) {
    judge();
    fill(out);
    if (json_) leave(out);
    out.needs = needs_;
  }

 private:
  // The outcome of a kind of groups in the state, and the classes of characters that none of its texts gets
  // to.
  struct Verdict {
    Outcome outcome;
    uint64_t unread = 0;
  };
  const TokenGroups& groups_;
  const GroupKinds& kinds_;
  const Language& l_;
  const EntryKey& k_;
  const bool json_;
  const uint32_t words_, size_;

  std::vector<Verdict> verdicts_;  // of each kind
  uint64_t needs_ = 0;

  void need(uint64_t count) { needs_ = std::max(needs_, count); }

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

  // The outcome of texts that begin with a character of the classes `lead` and go on with characters of
  // `rest`. `read` becomes the classes that some of these texts get to, or all classes where that is unknown.
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
      // From this depth on the set of states stays the same.
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

  void judge() {
    verdicts_.resize(kinds_.kinds.size());
    for (uint32_t i = 0; i < verdicts_.size(); ++i) {
      const GroupKinds::Kind& kind = kinds_.kinds[i];
      if (kind.tokens < kWorthIt || work_ >= kMaxWork) break;
      uint64_t read = 0;
      verdicts_[i].outcome = follow(kind.lead, kind.rest, k_.state, read);
      if (((kind.lead | kind.rest) & ~read) == 0) continue;
      for (uint32_t b = 0; b < kClassBroken; ++b)
        if (kinds_.touched[b] != 0 && (kinds_.touched[b] & read) == 0)
          verdicts_[i].unread |= uint64_t{1} << b;
    }
  }
  Outcome outcome(const GroupKinds::Member& m) const {
    const uint64_t classes = groups_.groups()[m.group].classes;
    if (classes >> kClassBroken & 1) return {};
    return (classes & verdicts_[m.kind].unread) != 0 ? kOut : verdicts_[m.kind].outcome;
  }

  // ---- Tokens ----

  void fill(Entry& out) {
    size_t possible = json_ ? groups_.odd().size() : 0;
    for (const GroupKinds::Member& m : kinds_.members) {
      const TokenGroups::Group& g = groups_.groups()[m.group];
      if (g.shortest < outcome(m).dead) possible += g.last - g.first;
    }
    if (possible <= size_ / 48)
      fill_sparse(out);
    else
      fill_dense(out);
  }

  void fill_sparse(Entry& out) {
    auto stay = [&](uint32_t t) { out.sparse.push_back(t); };
    auto leave = [](uint32_t) {};
    for (const GroupKinds::Member& m : kinds_.members) {
      const TokenGroups::Group& g = groups_.groups()[m.group];
      const Outcome o = outcome(m);
      if (g.shortest >= o.dead) continue;
      each_decided(g, o, stay, leave);
      if (!decided(g, o)) read_undecided(g, o, kinds_.kinds[m.kind].rest, stay, leave);
    }
    if (json_) read_odd(stay);
  }

  // Begins with the expected outcome of most tokens, so that few tokens have to be written.
  void fill_dense(Entry& out) {
    const Outcome expected = likely();
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
    const std::vector<TokenGroups::Group>& groups = groups_.groups();
    size_t next = 0;
    for (uint32_t g = 0; g < groups.size(); ++g) {
      const TokenGroups::Group& x = groups[g];
      if (json_ && !x.plain) continue;
      const bool member = next < kinds_.members.size() && kinds_.members[next].group == g;
      const uint64_t rest = member ? kinds_.kinds[kinds_.members[next].kind].rest : 0;
      const Outcome o = member ? outcome(kinds_.members[next++]) : kOut;
      const bool inside = o.inside == kNever || x.longest <= o.inside, dead = x.shortest >= o.dead;
      if (inside) need_length(x.longest);
      if (inside ? x.longest <= expected.inside : dead && x.shortest > expected.inside) continue;
      if (o.inside == expected.inside && o.dead == expected.dead) {
        need_length(o.inside);
        continue;
      }
      if (!write_bits(mask, g, x, o, inside, dead)) {
        if (expected.inside == 0)
          each_decided(x, o, set, nothing);
        else if (expected.inside == kNever)
          each_decided(x, o, nothing, clear);
        else
          each_decided(x, o, set, clear);
      }
      if (!decided(x, o)) read_undecided(x, o, rest, set, clear);
    }
    if (json_) read_odd(set);
  }

  // Writes a group that has a mask of its own; undecided tokens are written as if they left. False where the
  // group has no such mask or needs another way.
  bool write_bits(uint32_t* mask, uint32_t group, const TokenGroups::Group& g, const Outcome& o, bool inside,
                  bool dead) {
    const uint32_t* bits = groups_.bits(group);
    if (!bits) return false;
    if (inside) {
      for (uint32_t i = 0; i < words_; ++i) mask[i] |= bits[i];
    } else if (dead || o.inside < g.shortest) {
      for (uint32_t i = 0; i < words_; ++i) mask[i] &= ~bits[i];
    } else {
      if (!g.plain || o.inside > TokenGroups::kShort) return false;
      const uint32_t* fits = groups_.plain_up_to(o.inside);
      for (uint32_t i = 0; i < words_; ++i) mask[i] = (mask[i] & ~bits[i]) | (bits[i] & fits[i]);
      need_length(o.inside);
    }
    return true;
  }

  // The outcome to begin with so that the fewest tokens must be written: none, all tokens, or the tokens up
  // to a length.
  Outcome likely() const {
    const std::vector<GroupKinds::Kind>& kinds = kinds_.kinds;
    uint64_t from_none = 0, from_all = kinds_.dead_cost, from_short = kinds_.dead_cost;
    const Outcome* some = nullptr;  // a length up to which the largest such kind stays
    for (uint32_t i = 0; i < kinds.size(); ++i) {
      const Outcome& o = verdicts_[i].outcome;
      if (o.inside > 0) from_none += kinds[i].cost;
      if (o.inside != kNever) from_all += kinds[i].cost;
      if (!some && o.inside > 0 && o.inside <= TokenGroups::kShort && o.dead == o.inside + 1) some = &o;
    }
    if (some && json_) {
      for (uint32_t i = 0; i < kinds.size(); ++i)
        if (verdicts_[i].outcome.inside != some->inside || verdicts_[i].outcome.dead != some->dead)
          from_short += kinds[i].cost;
      if (from_short < from_none && from_short < from_all) return *some;
    }
    return from_all < from_none ? Outcome{kNever, kNever} : kOut;
  }

  void need_length(uint32_t length) {
    need(length >= TokenGroups::kCapped ? UINT64_MAX : uint64_t{length} + l_.longest_min);
  }

  // The end, in the order shortest first, of the tokens of a group that are short enough to stay inside.
  uint32_t inside_of(const TokenGroups::Group& g, const Outcome& o) const {
    if (o.inside < g.shortest) return g.first;
    if (o.inside >= g.longest) return g.last;
    const auto lengths = groups_.lengths().begin();
    return static_cast<uint32_t>(std::upper_bound(lengths + g.first, lengths + g.last, o.inside) - lengths);
  }

  // The beginning, in the order shortest first, of the tokens of a group that are long enough to leave.
  uint32_t dead_of(const TokenGroups::Group& g, const Outcome& o) const {
    if (o.dead > g.longest) return g.last;
    const auto lengths = groups_.lengths().begin();
    return static_cast<uint32_t>(std::lower_bound(lengths + g.first, lengths + g.last, o.dead) - lengths);
  }
  bool decided(const TokenGroups::Group& g, const Outcome& o) const {
    return inside_of(g, o) == dead_of(g, o);
  }

  // Calls `stay` or `leave` for the tokens of a group whose length decides.
  template <class Stay, class Leave>
  void each_decided(const TokenGroups::Group& g, const Outcome& o, Stay stay, Leave leave) {
    const std::vector<uint32_t>& tokens = groups_.shortest_first();
    const uint32_t inside = inside_of(g, o), dead = dead_of(g, o);
    if (inside != g.first) need_length(groups_.lengths()[inside - 1]);
    for (uint32_t i = g.first; i < inside; ++i) stay(tokens[i]);
    for (uint32_t i = dead; i < g.last; ++i) leave(tokens[i]);
  }
  // Calls them for the other tokens, which their texts decide. `classes`: the classes of the automaton that
  // the characters behind the first one are in.
  template <class Stay, class Leave>
  void read_undecided(const TokenGroups::Group& g, const Outcome& o, uint64_t classes, Stay stay,
                      Leave leave) {
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
  // lexeme, where and in which state. Texts with a common beginning share the outcome that it decides.
  // `classes`: those of the characters behind the first one; 0: unknown.
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
      Spot now = spots_[at];
      for (; at < text.size(); ++at) {
        now = step(now, static_cast<uint8_t>(text[at]), fate);
        if (fate != Scan::Live) break;
        spots_[at + 1] = now;
        if (at >= kAsked || classes == 0 || now.scan != 0) continue;
        const uint32_t end = beyond(x.common, i + 1, last, at);
        if (end - i < kWorthIt || !loops(classes, now.state)) continue;
        stays = end;
        break;
      }
      if (stays > 0) {
        for (; i < stays; ++i) need_length(x.length[i]), stay(i);
        common = TokenGroups::kCapped;
        continue;
      }
      // The limit that a text needs grows with each of its characters.
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
    const uint8_t most = static_cast<uint8_t>(at);
    constexpr uint32_t kStep = 32;
    for (; i + kStep <= last; i += kStep) {
      uint8_t any = 0;
      for (uint32_t k = 0; k < kStep; ++k) any |= static_cast<uint8_t>(c[i + k] <= most);
      if (any) break;
    }
    while (i < last && c[i] > most) ++i;
    return i;
  }

  // The place is passed by value, so that the state stays in a register.
  Spot step(Spot at, uint8_t b, Scan& fate) const {
    if (at.scan != 0 || b >= 0x80 || (json_ && (b < 0x20 || b == '"' || b == '\\'))) return scan(at, b, fate);
    at.state = l_.table[size_t{at.state} * l_.n_classes + l_.ascii_class[b]], ++at.count;
    fate = open(at.state, at.count) ? Scan::Live : Scan::Dead;
    return at;
  }
  [[gnu::noinline]] Spot scan(Spot at, uint8_t b, Scan& fate) const {
    fate = json_ ? step_lexeme<true>(l_, k_, at, b) : step_lexeme<false>(l_, k_, at, b);
    return at;
  }

  // ---- Ends of strings ----

  std::vector<Entry::End> odd_ends_;

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

  // The tries of the bytes behind the quote are known for all closing tokens together; tries for some of them
  // are made here.
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
    for (uint32_t i = 0; i < closing.size(); ++i)
      if (groups_.quote(i) == 0) labels[i] = bare;
    // By the places of tokens in the trie of what they all have behind the quote.
    std::unordered_map<uint32_t, uint32_t> count;
    std::vector<uint32_t> found;
    for (const uint32_t label : labels)
      if (label != kDead && count[label]++ == 0) found.push_back(label);
    std::vector<Entry::End> few;
    for (const uint32_t label : found) {
      if (count[label] == closing.size()) {
        out.exits.push_back({label, groups_.rests()});
      } else if (count[label] < kWorthIt) {
        for (uint32_t i : groups_.closing_by_rest())
          if (labels[i] == label)
            few.push_back({label, closing.tokens[i], closing.text(i).substr(groups_.quote(i) + 1)});
      } else {
        auto some = std::make_shared<Trie>(groups_.rests()->only(
            [&](uint32_t place) { return labels[groups_.closing_by_rest()[place]] == label; }));
        out.exits.push_back({label, std::move(some)});
      }
    }
    out.add_exits(std::move(few));
    out.add_exits(std::move(odd_ends_));
  }
};

}  // namespace

bool Vocabulary::is_whole(const EntryKey& key, const Language& language) {
  return key.node == 0 && key.trie == TrieId::All && key.scan == 0 && key.kind != Lexeme::Plain &&
         key.kind != Lexeme::Member && !language.trie && language.n_classes <= 64;
}

EntryPtr Vocabulary::make_whole(const EntryKey& key, const Language& language) const {
  auto out = std::make_shared<Entry>();
  WholeMaker(groups_, *kinds(language, is_json(key.kind)), language, key, words(), size()).run(*out);
  return out;
}

}  // namespace llamay::grammar
