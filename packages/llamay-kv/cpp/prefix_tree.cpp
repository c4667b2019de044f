#include "prefix_tree.hpp"

#include <algorithm>

namespace llamay::kv {
namespace {

constexpr uint32_t kShared = 0;  // the owner of what all tenants may use

uint32_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto n = std::min(a.size(), b.size());
  return uint32_t(std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(n), b.begin()).first - a.begin());
}

}  // namespace

struct PrefixTree::Node {
  Node* parent = nullptr;
  uint32_t owner = kShared;
  uint32_t begin = 0;  // position of its first token
  uint32_t pins = 0;
  bool listed = false;  // in leaves_
  double priority = 0;
  uint64_t serial = 0;  // orders equal priorities by age
  std::vector<int32_t> tokens;
  std::vector<int32_t> pages;  // for each group; kDropped if the node has none of it
  std::set<Node*, Less> children;
};

PrefixTree::Less::Key PrefixTree::Less::key(const Node* node) { return {node->owner, node->tokens}; }

bool PrefixTree::Less::less(const Key& a, const Key& b) {
  if (a.owner != b.owner) return a.owner < b.owner;
  return std::lexicographical_compare(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
}

bool PrefixTree::ByPriority::operator()(const Node* a, const Node* b) const {
  return a->priority != b->priority ? a->priority < b->priority : a->serial < b->serial;
}

std::shared_ptr<PrefixTree> PrefixTree::make(std::shared_ptr<Pool> pool, uint64_t budget_bytes,
                                             RecomputeCost cost) {
  std::shared_ptr<PrefixTree> tree(new PrefixTree(std::move(pool), budget_bytes, cost));
  tree->pool_->enlist(tree);
  return tree;
}

PrefixTree::PrefixTree(std::shared_ptr<Pool> pool, uint64_t budget_bytes, RecomputeCost cost)
    : pool_(std::move(pool)), budget_bytes_(budget_bytes), cost_(cost), nodes_of_page_(pool_->n_groups()) {}

PrefixTree::~PrefixTree() { clear(); }

PrefixTree::Node* PrefixTree::root(const std::string& space) {
  auto& root = roots_[space];
  if (!root) root = std::make_unique<Node>();
  return root.get();
}

const PrefixTree::Node* PrefixTree::find_root(const std::string& space) const {
  const auto found = roots_.find(space);
  return found == roots_.end() ? nullptr : found->second.get();
}

uint32_t PrefixTree::owner_of(const std::string& tenant) {
  if (tenant.empty()) return kShared;
  return owners_.try_emplace(tenant, uint32_t(owners_.size()) + 1).first->second;
}

uint32_t PrefixTree::find_owner(const std::string& tenant) const {
  const auto found = owners_.find(tenant);
  return found == owners_.end() ? kShared : found->second;
}

/// The child that agrees with the tokens longest, and how long. Among sorted siblings it stands beside the
/// place where the tokens themselves would be.
std::pair<PrefixTree::Node*, uint32_t> PrefixTree::best_child(const Node* node, uint32_t owner,
                                                              std::span<const int32_t> tokens) {
  Node* best = nullptr;
  uint32_t length = 0;
  const auto consider = [&](Node* child, uint32_t of) {
    if (child->owner != of) return;
    const uint32_t n = common_prefix(child->tokens, tokens);
    if (n > length) best = child, length = n;
  };
  for (const uint32_t of : {kShared, owner}) {
    const auto at = node->children.lower_bound(Less::Key{of, tokens});
    if (at != node->children.end()) consider(*at, of);
    if (at != node->children.begin()) consider(*std::prev(at), of);
    if (owner == kShared) break;
  }
  return {best, length};
}

PrefixTree::Path PrefixTree::walk(const Node* root, uint32_t owner, std::span<const int32_t> tokens) const {
  Path path;
  const uint32_t P = pool_->page_tokens();
  for (const Node* node = root; node && !tokens.empty();) {
    const auto [child, n] = best_child(node, owner, tokens.first(std::min<size_t>(P, tokens.size())));
    if (!child) break;
    path.nodes.push_back(child);
    path.in_last = n;
    if (n < P) break;
    tokens = tokens.subspan(P);
    node = child;
  }
  return path;
}

/// The longest prefix along the path for which every group still has what it needs.
uint32_t PrefixTree::usable(const Path& path) const {
  const uint32_t P = pool_->page_tokens();
  std::vector<uint32_t> run(pool_->n_groups(),
                            0);  // from this position on the group has all pages up to here
  uint32_t best = 0;
  for (size_t i = 0; i < path.nodes.size(); ++i) {
    const auto begin = uint32_t(i) * P;
    const uint32_t end = begin + (i + 1 < path.nodes.size() ? P : path.in_last);
    bool good = true;
    for (size_t g = 0; g < run.size(); ++g) {
      if (path.nodes[i]->pages[g] < 0) run[g] = begin + P;
      good &= run[g] <= pool_->layout(g).first_needed(end);
    }
    if (good) best = end;
  }
  return best;
}

PrefixTree::Trace PrefixTree::trace(std::span<const int32_t> tokens, const std::string& space,
                                    const std::string& tenant) const {
  std::lock_guard lock(mutex_);
  Trace t;
  const Node* node = find_root(space);
  const uint32_t owner = find_owner(tenant);
  const Path path = walk(node, owner, tokens);
  if (!path.nodes.empty()) {
    t.equal = path.nodes.back()->begin + path.in_last;
    t.usable = usable(path);
    const auto& last = path.nodes.back()->tokens;
    if (path.in_last < last.size()) {
      t.ends = false;
      t.stored = last[path.in_last];
      return t;
    }
    node = path.nodes.back();
  }
  if (!node) return t;
  for (const Node* child : node->children)
    if (child->owner == kShared || child->owner == owner) {
      t.ends = false;
      t.stored = child->tokens.front();
      break;
    }
  return t;
}

std::shared_ptr<Context> PrefixTree::match(std::span<const int32_t> tokens, const std::string& space,
                                           const std::string& tenant) {
  auto table = Ref<Table>::adopt(new Table(pool_));
  auto ids = Ref<Tokens>::adopt(new Tokens);
  std::lock_guard lock(mutex_);
  const Path path = walk(find_root(space), find_owner(tenant), tokens);
  const uint32_t n = usable(path), P = pool_->page_tokens(), n_pages = (n + P - 1) / P;
  for (size_t g = 0; g < pool_->n_groups(); ++g) {
    const uint32_t dropped = pool_->layout(g).first_needed(n) / P;
    table->start_at(g, dropped * P);
    for (uint32_t i = 0; i < n_pages; ++i) {
      const int32_t page = i < dropped ? kDropped : path.nodes[i]->pages[g];
      table->push(g, page);
      if (page >= 0) pool_->share(g, page);
    }
  }
  for (uint32_t i = 0; i < n_pages; ++i) touch(path.nodes[i]);
  ids->append(tokens.data(), n);
  ++lookups_;
  hits_ += n > 0;
  matched_tokens_ += n;
  return Context::adopt(pool_, std::move(table), std::move(ids), n);
}

uint32_t PrefixTree::insert(const Context& context, const std::string& space, const std::string& tenant,
                            uint32_t shared) {
  // One moment of the context, and its pages held, before the tree is locked.
  const auto frozen = context.fork();
  const auto view = frozen->view();
  const Table& table = view->table();
  const std::vector<int32_t> ids = frozen->tokens(0, view->view()->n_tokens);
  const uint32_t P = pool_->page_tokens();
  if (frozen->pool() != pool_) throw std::invalid_argument("the context's pages are in another pool");

  std::lock_guard lock(mutex_);
  const uint32_t tenant_owner = owner_of(tenant);
  Node* node = root(space);
  uint32_t done = 0;
  for (std::span<const int32_t> rest = ids; !rest.empty();) {
    const auto tokens = rest.first(std::min<size_t>(P, rest.size()));
    const uint32_t owner = done + P <= shared ? kShared : tenant_owner;
    auto [child, equal] = best_child(node, owner, tokens);
    if (child && equal < tokens.size() && (equal < child->tokens.size() || child->owner != owner))
      child = nullptr;
    if (!child) {
      auto fresh = std::make_unique<Node>();
      fresh->parent = node;
      fresh->owner = owner;
      fresh->begin = done;
      fresh->tokens.assign(tokens.begin(), tokens.end());
      fresh->pages.assign(pool_->n_groups(), kDropped);
      if (!hold_beside(node, fresh.get(), table, false)) return done;
      child = fresh.release();
      node->children.insert(child);
      delist(node);
      ++nodes_;
      if (owner == kShared) absorb(child);
    } else if (equal < tokens.size()) {  // a part of a page, and this is more of it
      if (!hold_beside(child, child, table, true)) return done + equal;
      node->children.erase(child);
      child->tokens.assign(tokens.begin(), tokens.end());
      node->children.insert(child);
      if (owner == kShared) absorb(child);
    } else if (child->tokens.size() ==
               tokens.size()) {  // it may lack what lay behind a window; if it fits, well
      hold_beside(child, child, table, false);
    }
    touch(child);
    done += uint32_t(tokens.size());
    rest = rest.subspan(tokens.size());
    node = child;
  }
  return done;
}

/// hold(), with `keep` exempt from being given up to make room.
bool PrefixTree::hold_beside(Node* keep, Node* node, const Table& table, bool replace) {
  ++keep->pins;
  delist(keep);
  const bool fits = hold(node, table, node->begin / pool_->page_tokens(), replace);
  --keep->pins;
  enlist(keep);
  return fits;
}

/// Hold the pages of the table that the node lacks, or those of the table in place of what it has. False, and
/// nothing has changed, if there is no room.
bool PrefixTree::hold(Node* node, const Table& table, uint32_t page, bool replace) {
  const size_t n_groups = pool_->n_groups();
  const auto wanted = [&](size_t g) {
    // A page that is only partly filled at its front came from a snapshot; it is no use to anybody else.
    if (table.group(g).first > page * pool_->page_tokens()) return kDropped;
    return replace || node->pages[g] < 0 ? table.page(g, page) : kDropped;
  };
  for (;;) {  // giving a leaf up may take away a page that was counted as being here already
    uint64_t bytes = 0;
    for (size_t g = 0; g < n_groups; ++g) {
      const int32_t number = wanted(g);
      if (number < 0) continue;
      auto& nodes = nodes_of_page_[g];
      if (nodes.size() <= size_t(number)) nodes.resize(size_t(number) + 1);
      if (nodes[size_t(number)] == 0) bytes += pool_->layout(g).page_bytes;
    }
    if (used_bytes_ + bytes <= budget_bytes_) break;
    if (leaves_.empty()) return false;
    evict(*leaves_.begin());
  }
  for (size_t g = 0; g < n_groups; ++g) {
    const int32_t number = wanted(g);
    if (number >= 0) {
      pool_->share(g, number);
      if (nodes_of_page_[g][size_t(number)]++ == 0) used_bytes_ += pool_->layout(g).page_bytes;
    }
    if (number < 0 && !replace) continue;
    let_go(node, g);
    node->pages[g] = number;
  }
  return true;
}

void PrefixTree::let_go(Node* node, size_t g) {
  const int32_t number = std::exchange(node->pages[g], kDropped);
  if (number < 0) return;
  if (--nodes_of_page_[g][size_t(number)] == 0) used_bytes_ -= pool_->layout(g).page_bytes;
  pool_->drop(g, number);
}

/// It was of use: its priority is what it costs to have again, above what was given up last.
void PrefixTree::touch(Node* node) {
  delist(node);
  double bytes = 0;
  for (size_t g = 0; g < node->pages.size(); ++g)
    if (node->pages[g] >= 0) bytes += double(pool_->layout(g).page_bytes);
  const double cost =
      double(node->tokens.size()) * (cost_.per_token + cost_.per_token_and_position * node->begin);
  node->priority = inflation_ + (bytes > 0 ? cost / bytes : 0);
  node->serial = ++serial_;
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
  for (size_t g = 0; g < leaf->pages.size(); ++g) {
    evicted_pages_ += leaf->pages[g] >= 0;
    let_go(leaf, g);
  }
  Node* parent = leaf->parent;
  parent->children.erase(leaf);
  delete leaf;
  --nodes_;
  enlist(parent);
}

/// A page has become everybody's: what tenants have of the same page becomes that one, and what hangs below
/// it stays theirs. Otherwise a tenant who follows the shared page would not find his own continuation.
void PrefixTree::absorb(Node* shared) {
  Node* parent = shared->parent;
  for (auto it = parent->children.begin(); it != parent->children.end();) {
    const uint32_t owner = (*it)->owner;
    const auto same =
        owner == kShared ? parent->children.end() : parent->children.find(Less::Key{owner, shared->tokens});
    if (same != parent->children.end()) {
      Node* node = *same;
      delist(node);
      for (size_t g = 0; g < node->pages.size(); ++g)
        if (shared->pages[g] < 0) std::swap(shared->pages[g], node->pages[g]);
      for (size_t g = 0; g < node->pages.size(); ++g) let_go(node, g);
      for (Node* child : node->children) {
        child->parent = shared;
        shared->children.insert(child);
      }
      shared->pins += node->pins;
      for (auto& [number, pinned] : pins_)
        if (pinned == node) pinned = shared;
      parent->children.erase(same);
      delete node;
      --nodes_;
    }
    it = parent->children.lower_bound(Less::Key{owner + 1, {}});
  }
}

std::vector<PrefixTree::Entry> PrefixTree::entries(const std::string& space) const {
  std::lock_guard lock(mutex_);
  std::vector<Entry> all;
  std::vector<const Node*> pending;
  if (const Node* root = find_root(space)) pending.assign(root->children.rbegin(), root->children.rend());
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    all.push_back({node->begin, node->owner, node->pins, node->tokens, node->pages});
    pending.insert(pending.end(), node->children.rbegin(), node->children.rend());
  }
  return all;
}

uint64_t PrefixTree::reclaim(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  uint64_t freed = 0;
  // A page that a context uses too is not freed by giving it up: those leaves stay.
  const auto gain = [&](const Node* node) {
    uint64_t n = 0;
    for (size_t g = 0; g < node->pages.size(); ++g)
      if (node->pages[g] >= 0 && pool_->holders(g, node->pages[g]) == 1) n += pool_->layout(g).page_bytes;
    return n;
  };
  for (bool progress = true; progress && freed < bytes;) {
    progress = false;
    for (auto it = leaves_.begin(); it != leaves_.end() && freed < bytes;) {
      Node* leaf = *it++;
      const uint64_t n = gain(leaf);
      if (n == 0) continue;
      evict(leaf);
      freed += n;
      progress = true;
    }
  }
  return freed;
}

std::pair<uint64_t, uint32_t> PrefixTree::pin(std::span<const int32_t> tokens, const std::string& space,
                                              const std::string& tenant) {
  std::lock_guard lock(mutex_);
  const Path path = walk(find_root(space), find_owner(tenant), tokens);
  if (path.nodes.empty()) return {0, 0};
  Node* node = path.nodes.back();
  ++node->pins;
  delist(node);
  pins_[++next_pin_] = node;
  return {next_pin_, node->begin + path.in_last};
}

void PrefixTree::unpin(uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = pins_.find(number);
  if (found == pins_.end()) return;
  Node* node = found->second;
  pins_.erase(found);
  --node->pins;
  enlist(node);
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
      for (size_t g = 0; g < node->pages.size(); ++g) let_go(node, g);
      parent->children.erase(parent->children.begin());
      delete node;
      node = parent;
    }
  roots_.clear();
  nodes_ = 0;
}

void PrefixTree::count(std::vector<std::vector<uint32_t>>& holders) const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0, nodes = 0;
  for (const auto& [space, root] : roots_) {
    std::vector<const Node*> pending{root.get()};
    while (!pending.empty()) {
      const Node* node = pending.back();
      pending.pop_back();
      for (const Node* child : node->children) pending.push_back(child);
      nodes += node->parent != nullptr;
      const bool evictable = node->parent && !node->pins && node->children.empty();
      if (evictable != node->listed) throw std::logic_error("audit: the tree's list of leaves is wrong");
      for (size_t g = 0; g < node->pages.size(); ++g)
        if (node->pages[g] >= 0) ++holders[g].at(size_t(node->pages[g]));
    }
  }
  for (size_t g = 0; g < nodes_of_page_.size(); ++g)
    for (uint32_t n : nodes_of_page_[g]) bytes += n ? pool_->layout(g).page_bytes : 0;
  if (bytes != used_bytes_ || nodes != nodes_ || bytes > budget_bytes_)
    throw std::logic_error("audit: the tree's sums are wrong");
}

PrefixTree::Stats PrefixTree::stats() const {
  std::lock_guard lock(mutex_);
  return {used_bytes_, budget_bytes_, nodes_, pins_.size(), lookups_, hits_, matched_tokens_, evicted_pages_};
}

}  // namespace llamay::kv
