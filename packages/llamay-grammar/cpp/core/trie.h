// Byte strings of a vocabulary as a trie in depth-first order: a subtree is an interval of nodes and of
// tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace llamay::grammar {

// Classes of bytes, so that "every byte below this node" fits into one word: most punctuation is alone in its
// class, letters and digits are in groups, and so are the well-formed multi-byte characters, by their first
// byte.
constexpr uint32_t kClassBroken =
    63;                          // bytes that no well-formed text has at this place, and a few rare ones
uint32_t byte_class(uint8_t b);  // of an ASCII byte
struct LeadClass {
  uint8_t first, last;  // first bytes of the characters
  uint32_t lo, hi;      // their code points
};
constexpr uint32_t kFirstLeadClass = 44;
constexpr LeadClass kLeadClasses[] = {
    {0xC2, 0xC2, 0x80, 0xBF},     {0xC3, 0xC3, 0xC0, 0xFF},     {0xC4, 0xCF, 0x100, 0x3FF},
    {0xD0, 0xD1, 0x400, 0x47F},   {0xD2, 0xDF, 0x480, 0x7FF},   {0xE1, 0xE1, 0x1000, 0x1FFF},
    {0xE2, 0xE2, 0x2000, 0x2FFF}, {0xE3, 0xE3, 0x3000, 0x3FFF}, {0xE4, 0xE9, 0x4000, 0x9FFF},
    {0xEA, 0xEC, 0xA000, 0xCFFF}, {0xEE, 0xEE, 0xE000, 0xEFFF}, {0xEF, 0xEF, 0xF000, 0xFFFF},
};
constexpr uint64_t kWideClasses = ~((uint64_t{1} << kFirstLeadClass) - 1);  // everything beyond ASCII

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
    return byte_.size() + end_.size() * 4 + first_.size() * 4 + tokens_.size() * 4 +
           (below_.size() + here_.size()) * 8;
  }

 private:
  std::vector<uint8_t> byte_;
  std::vector<uint32_t> end_, first_, tokens_;
  std::vector<uint64_t> below_, here_;
};

}  // namespace llamay::grammar
