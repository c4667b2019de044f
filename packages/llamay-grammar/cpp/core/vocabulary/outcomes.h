// Outcomes of texts by the classes of their characters: for whole groups of tokens, whether their texts stay
// inside a lexeme, without reading the texts.
#pragma once

#include <cstdint>
#include <vector>

#include "vocabulary/group_kinds.h"
#include "vocabulary/lexeme_step.h"

namespace llamay::grammar {

constexpr uint32_t kNever = 0xFFFFFFFFu;

// The outcome of all texts over some classes of characters of an automaton, in any order.
struct Outcome {
  uint32_t inside = 0;     // all texts up to this length stay inside
  uint32_t dead = kNever;  // all texts from this length on leave
};
constexpr Outcome kOut{0, 0};

// The outcomes of the kinds of token groups in the state of an entry. Follows all states that texts of some
// classes can lead to, one character after another, up to limits of work.
class Outcomes {
 public:
  static constexpr uint32_t kWorthIt =
      48;  // for fewer tokens, reading them takes less time than following their classes

  Outcomes(const TokenGroups& groups, const GroupKinds& kinds, const Language& l, const EntryKey& k)
      : groups_(groups), kinds_(kinds), l_(l), k_(k) {}

  // Finds the outcomes of the largest kinds. The outcomes of the other kinds stay unknown.
  void judge();
  const Outcome& of_kind(uint32_t kind) const { return verdicts_[kind].outcome; }
  Outcome of_group(const GroupKinds::Member& m) const {
    const uint64_t classes = groups_.groups()[m.group].classes;
    if (classes >> kClassBroken & 1) return {};
    return (classes & verdicts_[m.kind].unread) != 0 ? kOut : verdicts_[m.kind].outcome;
  }
  // Whether texts of these classes stay inside from a state on, however long they are.
  bool loops(uint64_t classes, uint32_t state);

 private:
  // Returns the outcome of a kind of groups in the state, and the classes of characters that no text of the
  // kind reaches.
  struct Verdict {
    Outcome outcome;
    uint64_t unread = 0;
  };
  struct Asked {
    uint64_t classes;
    uint32_t state;
    bool loops;
  };
  // Returns the outcome of texts with a first character of the classes `lead` and further characters of
  // `rest`. `read` becomes the classes that some of these texts reach, or all classes if this is unknown.
  Outcome follow(uint64_t lead, uint64_t rest, uint32_t from, uint64_t& read);

  static constexpr uint32_t kMost = 32;
  static constexpr size_t kMostStates = 16;
  static constexpr size_t kMaxWork = 6000;

  const TokenGroups& groups_;
  const GroupKinds& kinds_;
  const Language& l_;
  const EntryKey& k_;
  std::vector<Verdict> verdicts_;  // of each kind
  std::vector<Asked> asked_;
  size_t work_ = 0;
  std::vector<uint32_t> now_, next_, seen_;
  uint32_t mark_ = 0;
};

}  // namespace llamay::grammar
