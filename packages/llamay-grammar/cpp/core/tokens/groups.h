// The tokens of a vocabulary in groups of equal classes of bytes. An automaton is asked once what it does to
// texts of some classes and some length, and the answer holds for a whole group: of a quarter of a million
// tokens there are some thousands of groups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/trie.h"

namespace llamay::grammar {

// The classes that no string of JSON has inside as they are.
uint64_t not_in_string();

// Tokens in the order of their texts within each group, their texts side by side: reading them one after
// another begins where a text differs from the one before.
struct TokenTexts {
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> at{0};  // of their texts, one more than tokens
  std::vector<uint8_t> common;  // bytes that a text shares with the one before in its group, capped
  std::vector<uint8_t> length;  // code points, one that is cut off at the end included; capped
  std::string bytes;

  uint32_t size() const { return static_cast<uint32_t>(tokens.size()); }
  std::string_view text(uint32_t i) const { return std::string_view(bytes).substr(at[i], at[i + 1] - at[i]); }
  void add(uint32_t token, std::string_view text, bool begins_group);
};

class TokenGroups {
 public:
  static constexpr uint8_t kCapped = 255;

  struct Group {
    // Of the bytes of each of its tokens: all, those of its first character, and those behind it. Of groups
    // with few tokens the three are the same.
    uint64_t classes = 0, lead = 0, rest = 0;
    uint32_t first = 0, last = 0;       // in texts() and shortest_first()
    uint8_t shortest = 0, longest = 0;  // of their lengths, capped
    bool plain = false;                 // inside a string of JSON as they are
  };

  // Of a vocabulary with so many words in a mask, the tokens of the trie.
  void build(const Trie& trie, uint32_t words);

  const std::vector<Group>& groups() const { return groups_; }
  const TokenTexts& texts() const { return texts_; }
  const std::vector<uint32_t>& shortest_first() const { return shortest_first_; }
  const std::vector<uint8_t>& lengths() const { return lengths_; }  // in that order
  // A bit mask of the tokens of a group that has very many; null for others.
  const uint32_t* bits(uint32_t group) const {
    return bits_at_[group] == kNone ? nullptr : bits_.data() + size_t{bits_at_[group]} * words_;
  }
  // What writing all tokens of a group into a mask costs, in writes of one token.
  uint32_t cost(uint32_t group) const {
    const uint32_t tokens = groups_[group].last - groups_[group].first;
    return bits_at_[group] == kNone ? tokens + 2 : std::min(tokens, words_ / 4);
  }
  // Bit masks of all tokens, and of those in plain groups.
  const std::vector<uint32_t>& all() const { return all_; }
  const std::vector<uint32_t>& plain() const { return plain_; }
  // And of those in plain groups with at most so many code points, up to kShort.
  static constexpr uint32_t kShort = 16;
  const uint32_t* plain_up_to(uint32_t length) const { return short_.data() + size_t{length} * words_; }

  // Of the tokens that are not plain: those that may end a string of JSON, with the text before their first
  // quote as it is, and those that may be inside of one behind a backslash, or must be read to be judged. The
  // rest does neither.
  const TokenTexts& closing() const { return closing_; }
  const TokenTexts& odd() const { return odd_; }
  uint32_t quote(uint32_t closing) const { return quotes_[closing]; }  // where it is in the text
  // What closing tokens have behind the quote, and of each place among the trie's tokens the number of the
  // closing token.
  const std::shared_ptr<const Trie>& rests() const { return rests_; }
  const std::vector<uint32_t>& closing_by_rest() const { return closing_by_rest_; }

 private:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  void split_json();
  std::vector<Group> groups_;
  TokenTexts texts_, closing_, odd_;
  std::vector<uint32_t> shortest_first_, bits_, bits_at_, all_, plain_, quotes_, closing_by_rest_;
  std::vector<uint8_t> lengths_;
  std::vector<uint32_t> short_;
  std::shared_ptr<const Trie> rests_;
  uint32_t words_ = 0;
};

}  // namespace llamay::grammar
