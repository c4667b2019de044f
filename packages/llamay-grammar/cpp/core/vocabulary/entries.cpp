// Entries of a lexeme in a given state. The classes of bytes decide most tokens, whole subtrees of the trie
// at a time; the other tokens are read byte by byte.
#include <algorithm>

#include "vocabulary/exit_classes.h"
#include "vocabulary/lexeme_step.h"

namespace llamay::grammar {

namespace {

class Maker {
 public:
  Maker(const Vocabulary& v, const Language& l, const EntryKey& k)
      : v_(v), l_(l), k_(k), trie_(v.trie(k.trie)) {
    loops_.assign(l.n_states(), kUnknown);
    if (k.scan == 0 && k.min == 0 && !l.trie && l.n_states() > 1)
      joint_ = joint_classes(l, k.state, ~(is_json(k.kind) ? not_in_string() : uint64_t{1} << kClassBroken));
  }

  void run(Entry& out) {
    Spot s{k_.state, k_.scan, 0};
    root_depth_ = depth_of(k_.node);
    descend(k_.node, s, root_depth_, true);
    out.needs = needs_;
    out.add_exits(std::move(exits_));
    if (inside_.size() > v_.size() / 48) {
      out.dense.assign(v_.words(), 0);
      for (uint32_t t : inside_) out.dense[t / 32] |= 1u << (t % 32);
    } else {
      out.sparse = std::move(inside_);
    }
  }

 private:
  static constexpr uint64_t kUnknown = uint64_t{1} << 61;  // no class has this number
  const Vocabulary& v_;
  const Language& l_;
  const EntryKey& k_;
  const Trie& trie_;
  JointClasses joint_;
  uint32_t root_depth_ = 0;
  uint64_t needs_ = 0;
  std::vector<uint64_t> loops_;
  std::vector<uint32_t> inside_;
  std::vector<Entry::End> exits_;

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
    if (loops_[s] == kUnknown) loops_[s] = self_loop_classes(l_, s, is_json(k_.kind));
    return loops_[s];
  }

  void leave(uint32_t node, uint32_t label, uint32_t depth, bool strictly) {
    const uint32_t* t = trie_.tokens_at(node) + (strictly ? trie_.n_at(node) : 0);
    uint32_t n = trie_.n_below(node) - (strictly ? trie_.n_at(node) : 0);
    for (uint32_t i = 0; i < n; ++i)
      if (k_.kind != Lexeme::Member || follows_member(static_cast<uint8_t>(v_.text(k_.trie, t[i])[depth])))
        exits_.push_back({label, t[i], v_.text(k_.trie, t[i]).substr(depth)});
  }

  // The classes of bytes of the tokens that certainly stay inside from a state on.
  struct Harmless {
    uint64_t loops, exit_classes, near;
    uint64_t together;  // of at most `steps` bytes
    uint32_t steps;
    bool ask;  // whether the classes say anything here
  };
  // `together` tells whether all bytes since the root are of the joint classes.
  Harmless harmless(const Spot& at, uint32_t depth, bool together) {
    if (at.scan != 0) return {0, 0, 0, 0, 0, false};
    const uint64_t not_inside = is_json(k_.kind) ? not_in_string() : uint64_t{1} << kClassBroken;
    const uint32_t read = depth - root_depth_;
    return {loop(at.state),
            exit_classes(l_, at.state, kNear + 1, k_.min) | not_inside,
            exit_classes(l_, at.state, kNear, k_.min) | not_inside,
            together ? joint_.classes : 0,
            read < joint_.steps ? joint_.steps - read : 0,
            true};
  }
  bool safe(const Harmless& h, uint64_t classes, uint32_t height, uint32_t count) const {
    if (!h.ask) return false;
    // A limit beyond the longest token is no limit.
    if (k_.max != kInf && (uint64_t{count} + height + 1 + l_.longest_min > k_.max || height == 0xFFFF))
      return false;
    return (classes & ~h.loops) == 0 || ((classes & ~h.together) == 0 && height < h.steps) ||
           (classes & (height < kNear ? h.near : h.exit_classes)) == 0;
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
        descend(c, to, depth + 1, together && to.scan == 0 && (trie_.at(c) & ~joint_.classes) == 0);
    }
  }
};

}  // namespace

EntryPtr Vocabulary::make(const EntryKey& key, const Language& language) const {
  if (is_whole(key, language)) return make_whole(key, language);
  auto out = std::make_shared<Entry>();
  Maker(*this, language, key).run(*out);
  return out;
}

}  // namespace llamay::grammar
