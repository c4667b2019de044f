#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace llamay::tokenizer {

/// Byte strings with a number each, walked one byte at a time.
class Trie {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Key {
    std::string_view text;
    uint32_t value;
  };

  Trie() = default;
  /// Empty keys are left out; of equal keys the first counts.
  explicit Trie(std::vector<Key> keys);

  bool empty() const { return nodes_.size() <= 1; }
  /// The node below `node` (the root is 0) for this byte, or kNone.
  uint32_t step(uint32_t node, uint8_t byte) const;
  /// The number of the key that ends at this node, or kNone.
  uint32_t value(uint32_t node) const { return nodes_[node].value; }

  struct Match {
    uint32_t value = kNone;
    uint32_t length = 0;
  };
  /// The longest key that text starts with.
  Match longest(std::string_view text) const;

 private:
  struct Node {
    uint32_t value = kNone;
    uint32_t first_edge = 0;
    uint32_t n_edges = 0;
  };
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
};

}  // namespace llamay::tokenizer
