// The pages and states of the tree's nodes: holding, evicting and counting them.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tree/prefix_tree_node.hpp"

namespace llamay::kv {

/// hold(), with `keep` exempt from being given up to make room. The node's states are not listed afterwards.
bool PrefixTree::hold_beside(Node* keep, Node* node, const Source& source, uint32_t end, bool replace) {
  ++keep->pins;
  delist(keep);
  unlist_states(node);
  const bool fits = hold(node, source, end, replace);
  --keep->pins;
  enlist(keep);
  return fits;
}

/// Hold the pages and states of the source, which has the node's tokens up to `end`, that the node lacks;
/// with `replace` its pages in place of the node's. False, and nothing has changed, if there is no
/// room.
bool PrefixTree::hold(Node* node, const Source& source, uint32_t end, bool replace) {
  const size_t n_groups = pool_->n_groups();
  const uint32_t page = node->begin / pool_->page_tokens();
  const bool whole = end - node->begin >= node->tokens.size();  // the source has all positions of the node
  const auto wanted = [&](size_t g) {
    // A page whose first slots are empty came from a snapshot; no other context can use it.
    if (pool_->layout(g).recurrent() || !whole || source.table.group(g).first > node->begin) return kDropped;
    const int32_t number = source.table.page(g, page);
    return has(g, number) && (replace || !has(g, node->pages[g])) ? number : kDropped;
  };
  const auto for_each_state = [&](auto&& f) {
    for (auto at = std::upper_bound(source.states.begin(), source.states.end(), node->begin,
                                    [](uint32_t n, const auto& state) { return n < state.first; });
         at != source.states.end() && at->first <= end; ++at)
      if (!node->states.contains(at->first)) f(at->first, at->second);
  };
  for (;;) {  // giving a leaf up may take away a page that was counted as being here already
    uint64_t bytes = 0;
    const auto add = [&](size_t g, int32_t number) {
      if (number < 0) return;
      auto& nodes = nodes_of_page_[g];
      if (nodes.size() <= size_t(number)) nodes.resize(size_t(number) + 1);
      if (nodes[size_t(number)] == 0) bytes += pool_->layout(g).page_bytes;
    };
    for (size_t g = 0; g < n_groups; ++g) add(g, wanted(g));
    for_each_state([&](uint32_t, const auto& pages) {
      for (size_t g = 0; g < n_groups; ++g) add(g, pages[g]);
    });
    if (used_bytes_ + bytes <= budget_bytes_) break;
    if (leaves_.empty()) return false;
    evict(*leaves_.begin());
  }
  for (size_t g = 0; g < n_groups; ++g) {
    const int32_t number = wanted(g);
    if (number < 0 && !replace) continue;
    take(g, number);
    let_go(g, std::exchange(node->pages[g], number));
  }
  for_each_state([&](uint32_t at, const auto& pages) {
    node->states.emplace(at, pages);
    for (size_t g = 0; g < n_groups; ++g) take(g, pages[g]);
  });
  return true;
}

void PrefixTree::take(size_t g, int32_t page) {
  if (page < 0) return;
  pool_->keep(g, page);
  if (nodes_of_page_[g][size_t(page)]++ == 0) used_bytes_ += pool_->layout(g).page_bytes;
}

void PrefixTree::let_go(size_t g, int32_t page) {
  if (page < 0) return;
  if (--nodes_of_page_[g][size_t(page)] == 0) used_bytes_ -= pool_->layout(g).page_bytes;
  pool_->let_go(g, page);
}

void PrefixTree::let_all_go(Node* node) {
  unlist_states(node);
  for_each_page(node, [&](size_t g, int32_t page) { let_go(g, page); });
  std::fill(node->pages.begin(), node->pages.end(), kDropped);
  node->states.clear();
}

void PrefixTree::list_states(Node* node) {
  for (const auto& [at, pages] : node->states) node->parent->stated.insert({node, at});
}

void PrefixTree::unlist_states(Node* node) {
  for (const auto& [at, pages] : node->states) node->parent->stated.erase({node, at});
}

/// Record a use: the priority is the cost of recomputing for the bytes, above that of the last evicted leaf.
void PrefixTree::touch(Node* node) {
  delist(node);
  double bytes = 0;
  for_each_page(node, [&](size_t g, int32_t) { bytes += double(pool_->layout(g).page_bytes); });
  const double cost =
      double(node->tokens.size()) * (cost_.per_token + cost_.per_token_and_position * node->begin);
  node->priority = inflation_ + (bytes > 0 ? cost / bytes : 0);
  node->serial = ++serial_;
  node->used = pool_->tick();
  enlist(node);
}

void PrefixTree::enlist(Node* node) {
  if (!node->parent || node->listed || node->pins || !node->children.empty()) return;
  leaves_.insert(node);
  node->listed = true;
}

void PrefixTree::delist(Node* node) {
  if (!node->listed) return;
  leaves_.erase(node);
  node->listed = false;
}

void PrefixTree::evict(Node* leaf) {
  delist(leaf);
  inflation_ = std::max(inflation_, leaf->priority);
  for_each_page(leaf, [&](size_t, int32_t) { ++evicted_pages_; });
  let_all_go(leaf);
  Node* parent = leaf->parent;
  parent->children.erase(leaf);
  remove(leaf);
  enlist(parent);
  if (!parent->parent) prune(parent);
}

/// The bytes of the node's pages that the tree alone holds, or with `shared` trees alone. A page of several
/// nodes is freed with the last of them.
uint64_t PrefixTree::gain(const Node* node, bool shared) const {
  uint64_t bytes = 0;
  for_each_page(node, [&](size_t g, int32_t page) {
    bytes += pool_->gain(g, page, shared ? pool_->kept(g, page) : nodes_of_page_[g][size_t(page)]);
  });
  return bytes;
}

bool PrefixTree::holds_pages(const Node* node) {
  bool any = false;
  for_each_page(node, [&](size_t, int32_t) { any = true; });
  return any;
}

/// Evict a leaf, and what it leaves before it without children, pins and pages: such nodes free nothing
/// themselves, and would gather.
PrefixTree::Reclaimed PrefixTree::give_up(Node* leaf) {
  Reclaimed sum;
  for_each_page(leaf, [&](size_t g, int32_t page) {
    if (nodes_of_page_[g][size_t(page)] != 1) return;
    const uint32_t trees = pool_->kept(g, page);
    (trees == 1 ? sum.freed : sum.let_go) += pool_->gain(g, page, trees);
  });
  for (Node* node = leaf; node;) {
    Node* parent = node->parent;
    const bool first = !parent->parent;  // then the root may be gone with it
    evict(node);
    node = !first && parent->listed && !holds_pages(parent) ? parent : nullptr;
  }
  return sum;
}

PrefixTree::Reclaimed PrefixTree::reclaim(uint64_t bytes, bool shared) {
  std::lock_guard lock(mutex_);
  Reclaimed sum;
  give_up_until(sum, bytes, false);
  if (shared) give_up_until(sum, bytes, true);
  return sum;
}

void PrefixTree::give_up_until(Reclaimed& sum, uint64_t bytes, bool shared) {
  const auto missing = [&] { return bytes - std::min(bytes, sum.freed + (shared ? sum.let_go : 0)); };
  for (bool progress = true; progress && missing();) {
    progress = false;
    // Leaves that free nothing stay while there are others, but for those without pages.
    for (auto it = leaves_.begin(); it != leaves_.end() && missing();) {
      Node* leaf = *it++;
      if (gain(leaf, shared) == 0 && holds_pages(leaf)) continue;
      const Reclaimed more = give_up(leaf);
      sum.freed += more.freed;
      sum.let_go += more.let_go;
      progress = true;
    }
    if (progress) continue;
    for (Node* node : covered(missing(), shared)) {
      while (!node->children.empty()) {
        Node* last = *node->children.begin();
        while (!last->children.empty()) last = *last->children.begin();
        evict(last);
      }
      progress = true;  // it is a leaf now
    }
  }
}

/// The nodes that would free so many bytes, behind leaves that free nothing: a context keeps fewer states
/// than the tree has of its text, and the pages of its window only. The ends of texts come first, so that
/// none of these nodes lies behind one that comes before it. Looks at each node once.
std::vector<PrefixTree::Node*> PrefixTree::covered(uint64_t bytes, bool shared) const {
  std::unordered_set<const Node*> seen;
  for (const auto& [number, pinned] : pins_)  // what lies before a pinned node stays with it
    for (const Node* node = pinned; node && seen.insert(node).second;) node = node->parent;
  std::vector<Node*> nodes;
  uint64_t found = 0;
  for (auto leaf = leaves_.begin(); leaf != leaves_.end() && found < bytes; ++leaf)
    for (Node* node = (*leaf)->parent; node->parent && seen.insert(node).second; node = node->parent)
      if (const uint64_t n = gain(node, shared)) {
        nodes.push_back(node);
        found += n;
        break;
      }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->begin > b->begin; });
  return nodes;
}

void PrefixTree::clear() {
  std::lock_guard lock(mutex_);
  pins_.clear();
  leaves_.clear();
  // Depth first without recursion: a path may be as long as a context has pages.
  for (auto& [space, root] : roots_)
    for (Node* node = root.get(); node;) {
      if (!node->children.empty()) {
        node = *node->children.begin();
        continue;
      }
      Node* parent = node->parent;
      if (!parent) break;
      let_all_go(node);
      parent->children.erase(parent->children.begin());
      remove(node);
      node = parent;
    }
  roots_.clear();
}

void PrefixTree::count(std::vector<std::vector<uint32_t>>& holders) const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0, nodes = 0;
  std::unordered_map<uint32_t, uint64_t> owned;
  for (const auto& [space, root] : roots_) {
    std::vector<const Node*> pending{root.get()};
    if (root->children.empty()) throw std::logic_error("audit: the tree has a root without nodes");
    while (!pending.empty()) {
      const Node* node = pending.back();
      pending.pop_back();
      if (node->owner) ++owned[node->owner];
      for (const Node* child : node->children) pending.push_back(child);
      nodes += node->parent != nullptr;
      size_t stated = 0;
      for (const Node* child : node->children) stated += child->states.size();
      for (const Stated& state : node->stated)
        stated -= state.node->parent == node && state.node->states.contains(state.at);
      if (stated) throw std::logic_error("audit: the tree's list of states is wrong");
      const bool evictable = node->parent && !node->pins && node->children.empty();
      if (evictable != node->listed) throw std::logic_error("audit: the tree's list of leaves is wrong");
      for_each_page(node, [&](size_t g, int32_t page) { ++holders[g].at(size_t(page)); });
    }
  }
  for (size_t g = 0; g < nodes_of_page_.size(); ++g)
    for (uint32_t n : nodes_of_page_[g]) bytes += n ? pool_->layout(g).page_bytes : 0;
  if (bytes != used_bytes_ || nodes != nodes_ || bytes > budget_bytes_)
    throw std::logic_error("audit: the tree's sums are wrong");
  for (const auto& [owner, of] : tenants_)
    if (owned[owner] != of.holders || owners_.at(*of.tenant) != owner)
      throw std::logic_error("audit: the tree's list of owners is wrong");
  if (owned.size() != tenants_.size() || owners_.size() != tenants_.size())
    throw std::logic_error("audit: the tree's list of owners is wrong");
}

void PrefixTree::visit(const std::function<void(size_t, int32_t, uint64_t)>& f) const {
  std::lock_guard lock(mutex_);
  for (const auto& [space, root] : roots_) {
    std::vector<const Node*> pending{root.get()};
    while (!pending.empty()) {
      const Node* node = pending.back();
      pending.pop_back();
      pending.insert(pending.end(), node->children.begin(), node->children.end());
      for_each_page(node, [&](size_t g, int32_t page) { f(g, page, node->used); });
    }
  }
}

PrefixTree::Stats PrefixTree::stats() const {
  std::lock_guard lock(mutex_);
  return {used_bytes_, budget_bytes_,   nodes_,         pins_.size(),  lookups_,
          hits_,       matched_tokens_, evicted_pages_, roots_.size(), owners_.size()};
}

}  // namespace llamay::kv
