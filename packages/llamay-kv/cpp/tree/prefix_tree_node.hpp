#pragma once
#include "tree/prefix_tree.hpp"

namespace llamay::kv {

/// A state that a node has: after so many tokens. Ordered by owner, the node's tokens before it, all of them.
struct PrefixTree::Stated {
  Node* node;
  uint32_t at;
};

struct PrefixTree::LessStated {
  using is_transparent = void;
  static Less::Key key(const Stated& state);
  bool operator()(const Stated& a, const Stated& b) const;
  bool operator()(const Stated& a, const Less::Key& b) const { return Less::less(key(a), b); }
  bool operator()(const Less::Key& a, const Stated& b) const { return Less::less(a, key(b)); }
};

struct PrefixTree::Node {
  Node* parent = nullptr;
  const std::string* space = nullptr;  // of a root: its name
  uint32_t owner = 0;
  uint32_t begin = 0;  // position of its first token
  uint32_t pins = 0;
  bool listed = false;  // in leaves_
  double priority = 0;
  uint64_t serial = 0;  // orders equal priorities by age
  uint64_t used = 0;    // the pool's tick when it was last of use
  std::vector<int32_t> tokens;
  HeldRows rows;                                    // holds the rows among the node's tokens
  std::vector<int32_t> pages;                       // for each group; kDropped if the node has none of it
  std::map<uint32_t, std::vector<int32_t>> states;  // by length, for each group; kDropped if it has none
  std::set<Node*, Less> children;
  std::set<Stated, LessStated> stated;  // the states of the children
};

inline PrefixTree::Less::Key PrefixTree::LessStated::key(const Stated& state) {
  const std::span<const int32_t> tokens = state.node->tokens;
  return {state.node->owner, tokens.first(state.at - state.node->begin)};
}

inline bool PrefixTree::LessStated::operator()(const Stated& a, const Stated& b) const {
  const Less::Key x = key(a), y = key(b);
  if (Less::less(x, y)) return true;
  return !Less::less(y, x) && Less::less(Less::key(a.node), Less::key(b.node));
}

template <class F>
void PrefixTree::for_each_page(const Node* node, F&& f) {
  for (size_t g = 0; g < node->pages.size(); ++g)
    if (node->pages[g] >= 0) f(g, node->pages[g]);
  for (const auto& [at, pages] : node->states)
    for (size_t g = 0; g < pages.size(); ++g)
      if (pages[g] >= 0) f(g, pages[g]);
}

}  // namespace llamay::kv
