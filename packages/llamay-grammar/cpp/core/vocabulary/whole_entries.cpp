// Entries of all tokens of a vocabulary for a lexeme whose next byte begins a character. Classes of
// characters and lengths decide most tokens, whole groups at a time; the texts decide the others.
#include <algorithm>
#include <unordered_map>

#include "vocabulary/outcomes.h"
#include "vocabulary/text_reader.h"

namespace llamay::grammar {

namespace {

class WholeMaker {
 public:
  WholeMaker(const TokenGroups& groups, const GroupKinds& kinds, const Language& l, const EntryKey& k,
             uint32_t words, uint32_t size)
      : groups_(groups),
        kinds_(kinds),
        l_(l),
        k_(k),
        json_(is_json(k.kind)),
        words_(words),
        size_(size),
        outcomes_(groups, kinds, l, k),
        reader_(l, k, outcomes_) {}

  void run(Entry& out) {
    outcomes_.judge();
    fill(out);
    if (json_) leave(out);
    out.needs = reader_.needs();
  }

 private:
  const TokenGroups& groups_;
  const GroupKinds& kinds_;
  const Language& l_;
  const EntryKey& k_;
  const bool json_;
  const uint32_t words_, size_;

  Outcomes outcomes_;
  TextReader reader_;

  // ---- Tokens ----

  void fill(Entry& out) {
    size_t possible = json_ ? groups_.odd().size() : 0;
    for (const GroupKinds::Member& m : kinds_.members) {
      const TokenGroups::Group& g = groups_.groups()[m.group];
      if (g.shortest < outcomes_.of_group(m).dead) possible += g.last - g.first;
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
      const Outcome o = outcomes_.of_group(m);
      if (g.shortest >= o.dead) continue;
      each_decided(g, o, stay, leave);
      if (!decided(g, o)) read_undecided(g, o, kinds_.kinds[m.kind].rest, stay, leave);
    }
    if (json_) read_odd(stay);
  }

  // Initialises the mask with the expected outcome of most tokens, so that few tokens have to be written.
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
      const Outcome o = member ? outcomes_.of_group(kinds_.members[next++]) : kOut;
      const bool inside = o.inside == kNever || x.longest <= o.inside, dead = x.shortest >= o.dead;
      if (inside) reader_.need_length(x.longest);
      if (inside ? x.longest <= expected.inside : dead && x.shortest > expected.inside) continue;
      if (o.inside == expected.inside && o.dead == expected.dead) {
        reader_.need_length(o.inside);
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

  // Writes a group with a mask of its own; undecided tokens are written as if they left the lexeme. Returns
  // false if the group has no such mask or cannot be written by a mask.
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
      reader_.need_length(o.inside);
    }
    return true;
  }

  // Returns the initial outcome for which the fewest tokens must be written: no tokens, all tokens, or the
  // tokens up to a length.
  Outcome likely() const {
    const std::vector<GroupKinds::Kind>& kinds = kinds_.kinds;
    uint64_t from_none = 0, from_all = kinds_.dead_cost, from_short = kinds_.dead_cost;
    const Outcome* some = nullptr;  // the outcome of the largest kind that stays up to a length
    for (uint32_t i = 0; i < kinds.size(); ++i) {
      const Outcome& o = outcomes_.of_kind(i);
      if (o.inside > 0) from_none += kinds[i].cost;
      if (o.inside != kNever) from_all += kinds[i].cost;
      if (!some && o.inside > 0 && o.inside <= TokenGroups::kShort && o.dead == o.inside + 1) some = &o;
    }
    if (some && json_) {
      for (uint32_t i = 0; i < kinds.size(); ++i)
        if (outcomes_.of_kind(i).inside != some->inside || outcomes_.of_kind(i).dead != some->dead)
          from_short += kinds[i].cost;
      if (from_short < from_none && from_short < from_all) return *some;
    }
    return from_all < from_none ? Outcome{kNever, kNever} : kOut;
  }

  // Returns the end of the tokens of a group that are short enough to stay inside, in the order shortest
  // first.
  uint32_t inside_of(const TokenGroups::Group& g, const Outcome& o) const {
    if (o.inside < g.shortest) return g.first;
    if (o.inside >= g.longest) return g.last;
    const auto lengths = groups_.lengths().begin();
    return static_cast<uint32_t>(std::upper_bound(lengths + g.first, lengths + g.last, o.inside) - lengths);
  }

  // Returns the beginning of the tokens of a group that are long enough to leave, in the order shortest
  // first.
  uint32_t dead_of(const TokenGroups::Group& g, const Outcome& o) const {
    if (o.dead > g.longest) return g.last;
    const auto lengths = groups_.lengths().begin();
    return static_cast<uint32_t>(std::lower_bound(lengths + g.first, lengths + g.last, o.dead) - lengths);
  }
  bool decided(const TokenGroups::Group& g, const Outcome& o) const {
    return inside_of(g, o) == dead_of(g, o);
  }

  // Calls `stay` or `leave` for the tokens of a group that their lengths decide.
  template <class Stay, class Leave>
  void each_decided(const TokenGroups::Group& g, const Outcome& o, Stay stay, Leave leave) {
    const std::vector<uint32_t>& tokens = groups_.shortest_first();
    const uint32_t inside = inside_of(g, o), dead = dead_of(g, o);
    if (inside != g.first) reader_.need_length(groups_.lengths()[inside - 1]);
    for (uint32_t i = g.first; i < inside; ++i) stay(tokens[i]);
    for (uint32_t i = dead; i < g.last; ++i) leave(tokens[i]);
  }
  // Calls `stay` or `leave` for the tokens of a group that only their texts decide. `classes` are the
  // automaton's classes of the characters after the first one.
  template <class Stay, class Leave>
  void read_undecided(const TokenGroups::Group& g, const Outcome& o, uint64_t classes, Stay stay,
                      Leave leave) {
    const TokenTexts& texts = groups_.texts();
    reader_.read(
        texts, g.first, g.last, classes,
        [&](uint32_t i) { return texts.length[i] <= o.inside || texts.length[i] >= o.dead; },
        [&](uint32_t i) { stay(texts.tokens[i]); },
        [&](uint32_t i, uint32_t end) {
          for (; i < end; ++i) leave(texts.tokens[i]);
        },
        [](uint32_t, uint32_t, uint32_t, const Spot&) {});
  }

  // ---- Ends of strings ----

  std::vector<Entry::End> odd_ends_;

  template <class Stay>
  void read_odd(Stay stay) {
    const TokenTexts& odd = groups_.odd();
    reader_.read(
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
    reader_.read(
        closing, 0, closing.size(), 0, [](uint32_t) { return false; }, [](uint32_t) {},
        [](uint32_t, uint32_t) {},
        [&](uint32_t i, uint32_t end, uint32_t, const Spot& at) {
          std::fill(&labels[i], &labels[i] + (end - i), ends(at));
        });
    const uint32_t bare = ends({k_.state, 0, 0});
    for (uint32_t i = 0; i < closing.size(); ++i)
      if (groups_.quote(i) == 0) labels[i] = bare;
    // The index is the position of a token in the trie of the texts after the quote.
    std::unordered_map<uint32_t, uint32_t> count;
    std::vector<uint32_t> found;
    for (const uint32_t label : labels)
      if (label != kDead && count[label]++ == 0) found.push_back(label);
    std::vector<Entry::End> few;
    for (const uint32_t label : found) {
      if (count[label] == closing.size()) {
        out.exits.push_back({label, groups_.rests()});
      } else if (count[label] < Outcomes::kWorthIt) {
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
