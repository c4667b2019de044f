// Byte strings of a vocabulary as a trie in depth-first order: a subtree is an interval of nodes and of tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace llamay::grammar {

// Classes of bytes, so that "every byte below this node" fits into one word: most punctuation is alone in its class,
// letters and digits are in groups, and well-formed multi-byte characters are one class.
constexpr uint32_t kClassMultibyte = 62;  // a byte of a well-formed character (perhaps cut at the end of the token)
constexpr uint32_t kClassBroken = 63;     // a byte that no well-formed text has at this place
uint32_t byte_class(uint8_t b);           // of an ASCII byte

class Trie {
 public:
  // Sorted or not; several tokens may have the same bytes. Empty ones end at the root.
  void build(std::vector<std::pair<std::string_view, uint32_t>> tokens);

  uint32_t end(uint32_t n) const { return end_[n]; }
  uint8_t byte(uint32_t n) const { return byte_[n]; }
  uint64_t below(uint32_t n) const { return below_[n]; }  // classes of the bytes strictly below n
  uint64_t here(uint32_t n) const { return here_[n]; }    // class of the byte of n
  uint32_t size() const { return static_cast<uint32_t>(end_.size()); }
  // The tokens that end at n.
  const uint32_t* tokens_at(uint32_t n) const { return tokens_.data() + first_[n]; }
  uint32_t n_at(uint32_t n) const { return (n + 1 < size() ? first_[n + 1] : n_tokens()) - first_[n]; }
  // The tokens that end at n or below.
  uint32_t n_below(uint32_t n) const { return (end_[n] < size() ? first_[end_[n]] : n_tokens()) - first_[n]; }
  uint32_t n_tokens() const { return static_cast<uint32_t>(tokens_.size()); }
  size_t memory() const {
    return byte_.size() + end_.size() * 4 + first_.size() * 4 + tokens_.size() * 4 + (below_.size() + here_.size()) * 8;
  }

 private:
  std::vector<uint8_t> byte_;
  std::vector<uint32_t> end_, first_, tokens_;
  std::vector<uint64_t> below_, here_;
};

}  // namespace llamay::grammar
