// Byte strings of a vocabulary as a trie in depth-first order: a subtree is an interval of nodes and of
// tokens.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace llamay::grammar {

// Classes of bytes, so that "every byte below this node" fits into one word: most punctuation is alone in its
// class, letters and digits are in groups, and so are the well-formed multi-byte characters, by their first
// byte.
constexpr uint32_t kClassBroken =
    63;                          // bytes that no well-formed text has at their place, and a few rare ones
uint32_t byte_class(uint8_t b);  // `b` is ASCII
struct LeadClass {
  uint8_t first, last;  // first bytes of the characters
  uint32_t lo, hi;      // their code points
};
constexpr uint32_t kFirstLeadClass = 44;
constexpr LeadClass kLeadClasses[] = {
    {0xC2, 0xC2, 0x80, 0xBF},
    {0xC3, 0xC3, 0xC0, 0xFF},
    {0xC4, 0xCF, 0x100, 0x3FF},
    {0xD0, 0xD1, 0x400, 0x47F},
    {0xD2, 0xDF, 0x480, 0x7FF},
    {0xE1, 0xE1, 0x1000, 0x1FFF},
    {0xE2, 0xE2, 0x2000, 0x2FFF},
    {0xE3, 0xE3, 0x3000, 0x3FFF},
    {0xE4, 0xE9, 0x4000, 0x9FFF},
    {0xEA, 0xEC, 0xA000, 0xCFFF},
    {0xEE, 0xEE, 0xE000, 0xEFFF},
    {0xEF, 0xEF, 0xF000, 0xFFFF},
    // These first bytes restrict the byte after them; a byte that does not fit makes the character broken.
    {0xE0, 0xE0, 0x800, 0xFFF},
    {0xED, 0xED, 0xD000, 0xD7FF},
    {0xF0, 0xF0, 0x10000, 0x3FFFF},
    {0xF1, 0xF3, 0x40000, 0xFFFFF},
    {0xF4, 0xF4, 0x100000, 0x10FFFF},
};
constexpr uint64_t kWideClasses = ~((uint64_t{1} << kFirstLeadClass) - 1);  // everything beyond ASCII

class Trie {
 public:
  // The tokens may be in any order, and several may have the same bytes. Empty tokens end at the root.
  void build(std::vector<std::pair<std::string_view, uint32_t>> tokens);
  // Gives every token another number.
  template <class To>
  void rename(To to) {
    for (uint32_t& t : tokens_) t = to(t);
  }
  // A trie of the tokens for which keep(place among tokens_at(0)) holds. It shares the nodes, so there may be
  // no tokens below some of them.
  template <class Keep>
  Trie only(Keep keep) const {
    Trie out;
    out.shape_ = shape_, out.thinned_ = true;
    out.first_.clear();
    out.first_.reserve(first_.size());
    uint32_t next = 0;
    for (uint32_t n = 0; n < size(); ++n) {
      for (; next < first_[n]; ++next)
        if (keep(next)) out.tokens_.push_back(tokens_[next]);
      out.first_.push_back(out.n_tokens());
    }
    for (; next < n_tokens(); ++next)
      if (keep(next)) out.tokens_.push_back(tokens_[next]);
    out.first_.push_back(out.n_tokens());
    return out;
  }
  // Whether nodes without tokens below them are left.
  bool thinned() const { return thinned_; }

  uint32_t size() const { return static_cast<uint32_t>(shape_->nodes.size()); }
  uint32_t end(uint32_t n) const {
    return node(n).end;
  }  // the end of the interval of nodes that begins with n
  uint8_t byte(uint32_t n) const { return node(n).byte; }
  uint64_t below(uint32_t n) const { return node(n).below; }  // classes of the bytes strictly below n
  uint64_t from(uint32_t n) const {
    return node(n).below | node(n).here;
  }  // the same, and the class of the byte of n
  uint64_t at(uint32_t n) const { return node(n).here; }        // the class of the byte of n
  uint32_t height(uint32_t n) const { return node(n).height; }  // longest path below n, in bytes
  bool leaf(uint32_t n) const { return node(n).n_kids == 0; }

  struct Kids {
    const uint8_t* bytes;
    const uint32_t* nodes;
    const uint64_t* from;     // from(n) and height(n) of each
    const uint16_t* heights;  // capped
    uint32_t n;
  };
  Kids kids(uint32_t n) const {
    const Node& x = node(n);
    return {shape_->kid_bytes.data() + x.kids, shape_->kid_nodes.data() + x.kids,
            shape_->kid_from.data() + x.kids, shape_->kid_heights.data() + x.kids, x.n_kids};
  }
  // kNoNode when there is none.
  uint32_t child(uint32_t n, uint8_t b) const {
    Kids k = kids(n);
    if (k.n == 0) return kNoNode;
    const void* at = std::memchr(k.bytes, b, k.n);
    return at ? k.nodes[static_cast<const uint8_t*>(at) - k.bytes] : kNoNode;
  }
  static constexpr uint32_t kNoNode = 0xFFFFFFFFu;

  // The tokens that end at n.
  const uint32_t* tokens_at(uint32_t n) const { return tokens_.data() + first_[n]; }
  uint32_t n_at(uint32_t n) const { return first_[n + 1] - first_[n]; }
  // The tokens that end at n or below.
  uint32_t n_below(uint32_t n) const { return first_[end(n)] - first_[n]; }
  uint32_t n_tokens() const { return static_cast<uint32_t>(tokens_.size()); }
  size_t memory() const {
    const size_t own = first_.size() * 4 + tokens_.size() * 4;
    return thinned_ ? own : own + shape_->nodes.size() * sizeof(Node) + shape_->kid_bytes.size() * 15;
  }

 private:
  struct Node {
    uint64_t below = 0, here = 0;
    uint32_t end = 0, kids = 0;
    uint16_t n_kids = 0;
    uint8_t byte = 0;
    uint32_t height = 0;
  };
  struct Shape {
    std::vector<Node> nodes;
    // The children of a node side by side, so that a walk looks at bytes that lie together.
    std::vector<uint8_t> kid_bytes;
    std::vector<uint32_t> kid_nodes;
    std::vector<uint64_t> kid_from;
    std::vector<uint16_t> kid_heights;
  };
  const Node& node(uint32_t n) const { return shape_->nodes[n]; }

  std::shared_ptr<const Shape> shape_ = std::make_shared<Shape>();
  std::vector<uint32_t> first_{
      0};  // index of the first token of each node; behind the last node, the number of tokens
  std::vector<uint32_t> tokens_;
  bool thinned_ = false;
};

}  // namespace llamay::grammar
