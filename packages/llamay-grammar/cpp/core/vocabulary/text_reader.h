// Reading texts of tokens, one after another, as parts of a lexeme.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "vocabulary/outcomes.h"

namespace llamay::grammar {

class TextReader {
 public:
  TextReader(const Language& l, const EntryKey& k, Outcomes& outcomes)
      : l_(l), k_(k), json_(is_json(k.kind)), outcomes_(outcomes) {}

  // Entry::needs for all texts read so far.
  uint64_t needs() const { return needs_; }
  // Raises `needs` to the limit that any text of this length needs.
  void need_length(uint32_t length) {
    need(length >= TokenGroups::kCapped ? UINT64_MAX : uint64_t{length} + l_.longest_min);
  }

  // Reads all texts except the skipped ones. For each text, tells whether it stays inside the lexeme, leaves
  // it, or ends it, with the position and the state. Texts with a common prefix share the outcome if the
  // prefix decides it. `classes` are the classes of the characters after the first one; 0 stands for unknown
  // classes.
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
        if (end - i < Outcomes::kWorthIt || !outcomes_.loops(classes, now.state)) continue;
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

 private:
  static constexpr size_t kSpots = 64;
  static constexpr size_t kAsked = 3;  // after this number of bytes, few texts share a prefix

  void need(uint64_t count) { needs_ = std::max(needs_, count); }

  // Returns the first text that shares at most `at` bytes with the text before it.
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
    fate = is_open(l_, k_, at.state, at.count) ? Scan::Live : Scan::Dead;
    return at;
  }
  [[gnu::noinline]] Spot scan(Spot at, uint8_t b, Scan& fate) const {
    fate = json_ ? step_lexeme<true>(l_, k_, at, b) : step_lexeme<false>(l_, k_, at, b);
    return at;
  }

  const Language& l_;
  const EntryKey& k_;
  const bool json_;
  Outcomes& outcomes_;
  uint64_t needs_ = 0;
  std::vector<Spot> spots_;  // after each byte of the text being read
};

}  // namespace llamay::grammar
