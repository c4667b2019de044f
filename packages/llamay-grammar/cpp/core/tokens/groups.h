// The tokens of a vocabulary in groups of equal classes of bytes. For a whole group it is computed once
// whether an automaton stays alive on texts of the group's classes and lengths: a quarter of a million tokens
// make some thousands of groups.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/trie.h"

namespace llamay::grammar {

// The classes of the bytes that a JSON string cannot contain unescaped.
uint64_t not_in_string();

// Tokens with their texts side by side, sorted by text within each group: a reader resumes where a text
// differs from the one before.
struct TokenTexts {
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> at{0};  // offsets of the texts in `bytes`, one more than tokens
  std::vector<uint8_t> common;  // bytes that a text shares with the one before in its group, capped
  std::vector<uint8_t> length;  // code points, a cut-off one at the end included; capped
  std::string bytes;

  uint32_t size() const { return static_cast<uint32_t>(tokens.size()); }
  std::string_view text(uint32_t i) const { return std::string_view(bytes).substr(at[i], at[i + 1] - at[i]); }
  void add(uint32_t token, std::string_view text, bool begins_group);
};

class TokenGroups {
 public:
  static constexpr uint8_t kCapped = 255;

  struct Group {
    // The classes of each token of the group: of all its characters, of the first one, and of the later ones.
    // In groups of few tokens the three are equal.
    uint64_t classes = 0, lead = 0, rest = 0;
    uint32_t first = 0, last = 0;       // the interval in texts() and in shortest_first()
    uint8_t shortest = 0, longest = 0;  // lengths of tokens in code points, capped
    bool plain = false;                 // JSON strings hold the tokens unescaped
  };

  // Groups the tokens of the trie, for masks of `words` words.
  void build(const Trie& trie, uint32_t words);

  const std::vector<Group>& groups() const { return groups_; }
  const TokenTexts& texts() const { return texts_; }
  const std::vector<uint32_t>& shortest_first() const { return shortest_first_; }
  const std::vector<uint8_t>& lengths() const { return lengths_; }  // in the order of shortest_first()
  // A bit mask of the tokens of a very large group; null for other groups.
  const uint32_t* bits(uint32_t group) const {
    return bits_at_[group] == kNone ? nullptr : bits_.data() + size_t{bits_at_[group]} * words_;
  }
  // The cost of writing all tokens of a group into a mask, in writes of one token.
  uint32_t cost(uint32_t group) const {
    const uint32_t tokens = groups_[group].last - groups_[group].first;
    return bits_at_[group] == kNone ? tokens + 2 : std::min(tokens, words_ / 4);
  }
  // Bit masks of all tokens, and of those in plain groups.
  const std::vector<uint32_t>& all() const { return all_; }
  const std::vector<uint32_t>& plain() const { return plain_; }
  // A bit mask of the tokens in plain groups with at most `length` code points; `length` is at most kShort.
  static constexpr uint32_t kShort = 16;
  const uint32_t* plain_up_to(uint32_t length) const { return short_.data() + size_t{length} * words_; }

  // Two parts of the tokens that are not plain: `closing` tokens may end a JSON string and have no escape
  // before their first quote; `odd` tokens have an escape or must be read byte by byte. The remaining tokens
  // cannot be in a string.
  const TokenTexts& closing() const { return closing_; }
  const TokenTexts& odd() const { return odd_; }
  uint32_t quote(uint32_t closing) const {
    return quotes_[closing];
  }  // the offset of the first quote of a closing token
  // A trie of the texts that closing tokens have behind the quote, and for each place among its tokens the
  // number of the closing token.
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
