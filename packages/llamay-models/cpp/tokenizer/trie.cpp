#include "tokenizer/trie.hpp"

#include <algorithm>

namespace llamay::tokenizer {

Trie::Trie(std::vector<Key> keys) {
  std::erase_if(keys, [](const Key& k) { return k.text.empty(); });
  std::stable_sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) { return a.text < b.text; });
  struct Task {
    size_t begin, end, depth;
    uint32_t node;
  };
  nodes_.push_back({});
  // With a list of tasks, not by recursion: a key may be 64 KiB long, and so the trie that deep.
  std::vector<Task> tasks{{0, keys.size(), 0, 0}};
  while (!tasks.empty()) {
    const Task task = tasks.back();
    tasks.pop_back();
    size_t begin = task.begin;
    while (begin < task.end && keys[begin].text.size() == task.depth) {
      if (nodes_[task.node].value == kNone) nodes_[task.node].value = keys[begin].value;
      ++begin;
    }
    nodes_[task.node].first_edge = static_cast<uint32_t>(edges_.size());
    for (size_t i = begin; i < task.end;) {
      const char byte = keys[i].text[task.depth];
      size_t end = i;
      while (end < task.end && keys[end].text[task.depth] == byte) ++end;
      const auto node = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({});
      edges_.push_back({static_cast<uint8_t>(byte), node});
      tasks.push_back({i, end, task.depth + 1, node});
      i = end;
    }
    nodes_[task.node].n_edges = static_cast<uint32_t>(edges_.size()) - nodes_[task.node].first_edge;
  }
}

uint32_t Trie::step(uint32_t node, uint8_t byte) const {
  const Edge* begin = edges_.data() + nodes_[node].first_edge;
  const Edge* end = begin + nodes_[node].n_edges;
  const Edge* at = std::lower_bound(begin, end, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
  return at != end && at->byte == byte ? at->node : kNone;
}

Trie::Match Trie::longest(std::string_view text) const {
  Match best;
  if (nodes_.empty()) return best;
  uint32_t node = 0;
  for (uint32_t i = 0; i < text.size(); ++i) {
    node = step(node, static_cast<uint8_t>(text[i]));
    if (node == kNone) break;
    if (value(node) != kNone) best = {value(node), i + 1};
  }
  return best;
}

}  // namespace llamay::tokenizer
