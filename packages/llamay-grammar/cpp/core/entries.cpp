// What the tokens of a vocabulary do to a lexeme in a given state: most of them, whole subtrees of the trie
// at a time, by the classes of their bytes; the others byte by byte.
#include <algorithm>

#include "lexeme_step.h"

namespace llamay::grammar {

namespace {

// Which classes of bytes leave the state as it is. Tokens made of them alone need not be walked.
uint64_t loop_classes(const Lang& l, uint32_t s, bool json) {
  if (l.trie) return 0;
  uint64_t out = 0, bad = 0;
  for (uint32_t c = 0; c < 128; ++c) {
    bool stays = l.next(s, c) == s && !(json && (c < 32 || c == '"' || c == '\\'));
    (stays ? out : bad) |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
  }
  out &= ~bad;
  for (uint32_t k = 0; k < std::size(kLeadClasses); ++k) {
    bool stays = true;
    for (size_t i = 0; i < l.range_start.size() && stays; ++i) {
      uint32_t lo = l.range_start[i],
               hi = i + 1 < l.range_start.size() ? l.range_start[i + 1] - 1 : kMaxCodePoint;
      if (hi < kLeadClasses[k].lo || lo > kLeadClasses[k].hi) continue;
      stays = l.table[size_t{s} * l.n_classes + l.range_class[i]] == s;
    }
    if (stays) out |= uint64_t{1} << (kFirstLeadClass + k);
  }
  return out;
}

// For each state, the classes of bytes that may lead to its end, be it in several steps: tokens without any
// of them stay inside. `dangers` also avoids states with finitely many words, where a least length may fail;
// `near_dangers` looks kNear steps ahead only, which is what most tokens need and finite languages allow.
// Too many classes do no harm.
constexpr uint32_t kNear = 16;
static_assert(kNear < 0xFFFF, "heights are capped");

// The classes of bytes of each class of the automaton.
std::vector<uint64_t> columns(const Lang& l) {
  std::vector<uint64_t> column(l.n_classes, 0);
  for (uint32_t c = 0; c < 128; ++c)
    column[l.ascii_class[c]] |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
  for (size_t i = 0; i < l.range_start.size(); ++i) {
    const uint32_t lo = l.range_start[i],
                   hi = i + 1 < l.range_start.size() ? l.range_start[i + 1] - 1 : kMaxCodePoint;
    for (uint32_t j = 0; j < std::size(kLeadClasses); ++j)
      if (hi >= kLeadClasses[j].lo && lo <= kLeadClasses[j].hi)
        column[l.range_class[i]] |= uint64_t{1} << (kFirstLeadClass + j);
  }
  return column;
}

void find_dangers(const Lang& l) {
  const size_t n = l.n_states(), k = l.n_classes;
  const std::vector<uint64_t> column = columns(l);
  // Work that is not worth a mask: without an answer every class is dangerous.
  constexpr size_t kMaxWork = 300000;
  auto first = [&](auto ends) {
    std::vector<uint64_t> out(n, 0);
    for (size_t s = 0; s < n; ++s)
      for (size_t c = 0; c < k; ++c)
        if (ends(l.table[s * k + c])) out[s] |= column[c];
    return out;
  };
  const std::vector<uint64_t> everything(n, ~uint64_t{0});
  // In so many steps at most.
  auto near = [&](std::vector<uint64_t> out) {
    if (n * k * kNear > kMaxWork) return everything;
    for (uint32_t round = 0; round < kNear; ++round) {
      const std::vector<uint64_t> before = out;
      for (size_t s = 0; s < n; ++s)
        for (size_t c = 0; c < k; ++c)
          if (uint32_t t = l.table[s * k + c]; t != kDead) out[s] |= before[t];
      if (out == before) break;
    }
    return out;
  };
  // Ever. States lead to later ones mostly, so going backwards ends soon.
  auto far = [&](std::vector<uint64_t> out) {
    size_t work = 0;
    for (bool more = true; more;) {
      more = false;
      if ((work += n * k) > kMaxWork) return everything;
      for (size_t s = n; s-- > 0;) {
        uint64_t all = out[s];
        for (size_t c = 0; c < k; ++c)
          if (uint32_t t = l.table[s * k + c]; t != kDead) all |= out[t];
        more |= all != out[s];
        out[s] = all;
      }
    }
    return out;
  };
  l.dangers = far(first([&](uint32_t t) { return t == kDead || !l.infinite(t); }));
  l.near_dangers = near(first([](uint32_t t) { return t == kDead; }));
}

// What must not be in a token of at most `length` bytes that is read from state s and stays inside.
uint64_t danger(const Lang& l, uint32_t s, uint32_t length, uint32_t min) {
  std::call_once(l.dangers_made, find_dangers, l);
  return uint64_t{1} << kClassBroken |
         (min == 0 && length <= kNear ? l.near_dangers[s] & l.dangers[s] : l.dangers[s]);
}

// Classes of which at most `steps` bytes, in any order, stay inside when they are read from a state: tokens
// made of them alone need not be walked even where the automaton counts. First the letters and digits, then
// what can join them.
class Together {
 public:
  uint64_t classes = 0;
  uint32_t steps = 0;

  Together() = default;
  Together(const Lang& l, uint32_t s, uint64_t allowed) : l_(&l), s_(s), column_(columns(l)) {
    seen_.assign(l.n_states(), 0);
    const uint64_t live = ~dead(s) & allowed;
    for (char c : std::string_view("azAZ059")) classes |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
    classes &= live;
    steps = classes ? lasts(classes) : 0;
    for (uint32_t b = 0; b < 64 && steps > 0; ++b) {
      const uint64_t with = classes | uint64_t{1} << b;
      if (with != classes && (live >> b & 1) && lasts(with) >= steps) classes = with;
    }
  }

 private:
  static constexpr uint32_t kMost = 24;
  static constexpr size_t kMaxWork = 200000;
  const Lang* l_ = nullptr;
  uint32_t s_ = 0;
  std::vector<uint64_t> column_;
  std::vector<uint32_t> seen_, now_, next_;
  uint32_t mark_ = 0;
  size_t work_ = 0;

  uint64_t dead(uint32_t state) const {
    uint64_t out = 0;
    for (uint32_t c = 0; c < l_->n_classes; ++c)
      if (l_->table[size_t{state} * l_->n_classes + c] == kDead) out |= column_[c];
    return out;
  }
  // How many bytes of these classes certainly stay inside.
  uint32_t lasts(uint64_t of) {
    now_.assign(1, s_);
    seen_[s_] = ++mark_;
    for (uint32_t depth = 0; depth < kMost; ++depth) {
      next_.clear();
      for (uint32_t state : now_) {
        if ((work_ += 2 * l_->n_classes) > kMaxWork || (dead(state) & of) != 0) return depth;
        for (uint32_t c = 0; c < l_->n_classes; ++c) {
          const uint32_t t = l_->table[size_t{state} * l_->n_classes + c];
          if (t == kDead || !(column_[c] & of) || seen_[t] == mark_) continue;
          seen_[t] = mark_;
          next_.push_back(t);
        }
      }
      if (next_.empty()) return kMost;
      std::swap(now_, next_);
    }
    return kMost;
  }
};

class Maker {
 public:
  Maker(const Vocabulary& v, const Lang& l, const EntryKey& k) : v_(v), l_(l), k_(k), trie_(v.trie(k.trie)) {
    loops_.assign(l.n_states(), kUnknown);
    if (k.scan == 0 && k.min == 0 && !l.trie && l.n_states() > 1)
      together_ = Together(l, k.state, ~(is_json(k.kind) ? not_in_string() : uint64_t{1} << kClassBroken));
  }

  void run(Entry& out) {
    Spot s{k_.state, k_.scan, 0};
    root_depth_ = depth_of(k_.node);
    descend(k_.node, s, root_depth_, true);
    out.needs = needs_;
    std::sort(exits_.begin(), exits_.end(), [](auto& a, auto& b) { return a.label < b.label; });
    for (size_t i = 0; i < exits_.size();) {
      size_t j = i;
      std::vector<std::pair<std::string_view, uint32_t>> rest;
      for (; j < exits_.size() && exits_[j].label == exits_[i].label; ++j)
        rest.emplace_back(v_.text(k_.trie, exits_[j].token).substr(exits_[j].offset), exits_[j].token);
      Entry::Exit e;
      e.label = exits_[i].label;
      auto trie = std::make_shared<Trie>();
      trie->build(std::move(rest));
      e.rest = std::move(trie);
      out.exits.push_back(std::move(e));
      i = j;
    }
    if (inside_.size() > v_.size() / 48) {
      out.dense.assign(v_.words(), 0);
      for (uint32_t t : inside_) out.dense[t / 32] |= 1u << (t % 32);
    } else {
      out.sparse = std::move(inside_);
    }
  }

 private:
  static constexpr uint64_t kUnknown = uint64_t{1} << 61;  // no class has this number
  struct Exit {
    uint32_t label, token, offset;
  };
  const Vocabulary& v_;
  const Lang& l_;
  const EntryKey& k_;
  const Trie& trie_;
  Together together_;
  uint32_t root_depth_ = 0;
  uint64_t needs_ = 0;
  std::vector<uint64_t> loops_;
  std::vector<uint32_t> inside_;
  std::vector<Exit> exits_;

  uint32_t depth_of(uint32_t node) const {
    uint32_t n = 0, depth = 0;
    while (n != node) {
      for (uint32_t c = n + 1; c < trie_.end(n); c = trie_.end(c))
        if (node < trie_.end(c)) {
          n = c;
          break;
        }
      ++depth;
    }
    return depth;
  }

  uint64_t loop(uint32_t s) {
    if (loops_[s] == kUnknown) loops_[s] = loop_classes(l_, s, is_json(k_.kind));
    return loops_[s];
  }

  void leave(uint32_t node, uint32_t label, uint32_t depth, bool strictly) {
    const uint32_t* t = trie_.tokens_at(node) + (strictly ? trie_.n_at(node) : 0);
    uint32_t n = trie_.n_below(node) - (strictly ? trie_.n_at(node) : 0);
    for (uint32_t i = 0; i < n; ++i)
      if (k_.kind != Lexeme::Member || follows_member(static_cast<uint8_t>(v_.text(k_.trie, t[i])[depth])))
        exits_.push_back({label, t[i], depth});
  }

  // Which classes of bytes may be in tokens that certainly stay inside when they are read from a state.
  struct Harmless {
    uint64_t loops, dangers, near;
    uint64_t together;  // of at most `steps` bytes
    uint32_t steps;
    bool ask;  // whether the classes say anything here
  };
  // together: whether all bytes since the root are of the classes that go together.
  Harmless harmless(const Spot& at, uint32_t depth, bool together) {
    if (at.scan != 0) return {0, 0, 0, 0, 0, false};
    const uint64_t not_inside = is_json(k_.kind) ? not_in_string() : uint64_t{1} << kClassBroken;
    const uint32_t read = depth - root_depth_;
    return {loop(at.state),
            danger(l_, at.state, kNear + 1, k_.min) | not_inside,
            danger(l_, at.state, kNear, k_.min) | not_inside,
            together ? together_.classes : 0,
            read < together_.steps ? together_.steps - read : 0,
            true};
  }
  bool safe(const Harmless& h, uint64_t classes, uint32_t height, uint32_t count) const {
    if (!h.ask) return false;
    // A limit that is farther than the longest of them is none.
    if (k_.max != kInf && (uint64_t{count} + height + 1 + l_.longest_min > k_.max || height == 0xFFFF))
      return false;
    return (classes & ~h.loops) == 0 || ((classes & ~h.together) == 0 && height < h.steps) ||
           (classes & (height < kNear ? h.near : h.dangers)) == 0;
  }
  void need(uint64_t count) { needs_ = std::max(needs_, count); }

  void descend(uint32_t node, const Spot& at, uint32_t depth, bool together) {
    const Harmless here = harmless(at, depth, together);
    const Trie::Kids kids = trie_.kids(node);
    for (uint32_t k = 0; k < kids.n; ++k) {
      const uint32_t c = kids.nodes[k];
      if (safe(here, kids.from[k], kids.heights[k], at.count)) {
        need(kids.heights[k] == 0xFFFF ? UINT64_MAX
                                       : uint64_t{at.count} + kids.heights[k] + 1 + l_.longest_min);
        const uint32_t* t = trie_.tokens_at(c);
        inside_.insert(inside_.end(), t, t + trie_.n_below(c));
        continue;
      }
      Spot to = at;
      Scan r = is_json(k_.kind) ? step_lexeme<true>(l_, k_, to, kids.bytes[k])
                                : step_lexeme<false>(l_, k_, to, kids.bytes[k]);
      if (r == Scan::Dead) continue;
      if (r == Scan::Close) {
        uint32_t label = l_.label(at.state);
        if (label != kDead && at.count >= k_.min) leave(c, label, depth + 1, false);
        continue;
      }
      const uint32_t* t = trie_.tokens_at(c);
      inside_.insert(inside_.end(), t, t + trie_.n_at(c));
      need(uint64_t{to.count} + (to.scan != 0 ? 1 + l_.longest_min : l_.min_len[to.state]));
      // A lexeme without a closing character may end after each of its bytes.
      if ((k_.kind == Lexeme::Plain || k_.kind == Lexeme::Member) && to.scan == 0 && to.count >= k_.min)
        if (uint32_t label = l_.label(to.state); label != kDead) leave(c, label, depth + 1, true);
      if (!trie_.leaf(c))
        descend(c, to, depth + 1, together && to.scan == 0 && (trie_.at(c) & ~together_.classes) == 0);
    }
  }
};

}  // namespace

EntryPtr Vocabulary::make(const EntryKey& key, const Lang& lang) const {
  if (is_whole(key, lang)) return make_whole(key, lang);
  auto out = std::make_shared<Entry>();
  Maker(*this, lang, key).run(*out);
  return out;
}

}  // namespace llamay::grammar
