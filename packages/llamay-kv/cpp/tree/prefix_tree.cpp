#include <algorithm>

#include "tree/prefix_tree_node.hpp"

namespace llamay::kv {
namespace {

constexpr uint32_t kShared = 0;  // the owner of nodes for all tenants

uint32_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto n = std::min(a.size(), b.size());
  return uint32_t(std::mismatch(a.begin(), a.begin() + std::ptrdiff_t(n), b.begin()).first - a.begin());
}

}  // namespace

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
  const auto [at, fresh] = roots_.try_emplace(space);
  if (fresh) {
    at->second = std::make_unique<Node>();
    at->second->space = &at->first;
  }
  return at->second.get();
}

void PrefixTree::prune(Node* root) {
  if (root->children.empty() && !root->pins) roots_.erase(roots_.find(*root->space));
}

const PrefixTree::Node* PrefixTree::find_root(const std::string& space) const {
  const auto found = roots_.find(space);
  return found == roots_.end() ? nullptr : found->second.get();
}

uint32_t PrefixTree::owner_of(const std::string& tenant) {
  if (tenant.empty()) return kShared;
  const auto [at, fresh] = owners_.try_emplace(tenant);
  if (fresh) {
    do {
      ++last_owner_;
    } while (last_owner_ == kShared || last_owner_ == UINT32_MAX || tenants_.contains(last_owner_));
    at->second = last_owner_;
    tenants_.try_emplace(last_owner_, Owner{&at->first});
  }
  return at->second;
}

void PrefixTree::hold_owner(uint32_t owner) {
  if (owner != kShared) ++tenants_.at(owner).holders;
}

void PrefixTree::let_owner_go(uint32_t owner) {
  if (owner == kShared) return;
  const auto found = tenants_.find(owner);
  if (--found->second.holders) return;
  owners_.erase(owners_.find(*found->second.tenant));
  tenants_.erase(found);
}

void PrefixTree::remove(Node* node) {
  let_owner_go(node->owner);
  delete node;
  --nodes_;
}

/// The root and the owner of an insertion: they stay while it lasts, though it may evict all that they have.
class PrefixTree::Insertion {
 public:
  Insertion(PrefixTree& tree, const std::string& space, const std::string& tenant)
      : tree_(tree), root(tree.root(space)), owner(tree.owner_of(tenant)) {
    ++root->pins;
    tree_.hold_owner(owner);
  }
  ~Insertion() {
    --root->pins;
    tree_.let_owner_go(owner);
    tree_.prune(root);
  }
  Insertion(const Insertion&) = delete;
  Insertion& operator=(const Insertion&) = delete;

 private:
  PrefixTree& tree_;

 public:
  Node* const root;
  const uint32_t owner;
};

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

PrefixTree::Usable PrefixTree::usable(const Path& path, uint32_t owner) const {
  if (pool_->has_states()) return usable_state(path, owner);
  const uint32_t P = pool_->page_tokens();
  const size_t n_groups = pool_->n_groups();
  std::vector<uint32_t> run(n_groups, 0);  // from this position on the group has all pages up to here
  Usable best;
  for (size_t i = 0; i < path.nodes.size(); ++i) {
    Node* node = path.nodes[i];
    const uint32_t end = node->begin + (i + 1 < path.nodes.size() ? P : path.in_last);
    bool whole = true;
    for (size_t g = 0; g < n_groups; ++g) {
      if (!has(g, node->pages[g])) run[g] = node->begin + P;
      whole &= run[g] <= pool_->layout(g).first_needed(end);
    }
    if (whole) best = {end, node};
  }
  return best;
}

/// Where there are recurrent groups a prefix ends at a state, whichever child has it: from the longest on.
PrefixTree::Usable PrefixTree::usable_state(const Path& path, uint32_t owner) const {
  const uint32_t P = pool_->page_tokens();
  const size_t n_groups = pool_->n_groups(), depth = path.nodes.size();
  // Before each node of the path, for each group: from where on it has all pages.
  std::vector<uint32_t> runs((depth + 1) * n_groups, 0);
  for (size_t i = 0; i < depth; ++i)
    for (size_t g = 0; g < n_groups; ++g)
      runs[(i + 1) * n_groups + g] =
          has(g, path.nodes[i]->pages[g]) ? runs[i * n_groups + g] : path.nodes[i]->begin + P;
  const auto whole = [&](size_t i, const Stated& state) {
    const std::vector<int32_t>& pages = state.node->states.at(state.at);
    for (size_t g = 0; g < n_groups; ++g) {
      if (pool_->layout(g).recurrent()) {
        if (!has(g, pages[g])) return false;
        continue;
      }
      const uint32_t run = has(g, state.node->pages[g]) ? runs[i * n_groups + g] : state.node->begin + P;
      if (run > pool_->layout(g).first_needed(state.at)) return false;
    }
    return true;
  };
  for (size_t i = depth; i-- > 0;) {
    const Node* node = path.nodes[i];
    const auto& stated = node->parent->stated;
    if (stated.empty()) continue;
    const std::span<const int32_t> tokens = node->tokens;
    for (uint32_t n = i + 1 < depth ? P : path.in_last; n > 0; --n)
      for (const uint32_t of : {kShared, owner}) {
        const auto [first, last] = stated.equal_range(Less::Key{of, tokens.first(n)});
        for (auto state = first; state != last; ++state)
          if (whole(i, *state)) return {state->at, state->node};
        if (owner == kShared) break;
      }
  }
  return {};
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
    t.usable = usable(path, owner).n;
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
  const Gate gate(*pool_);
  table->set_cold(pool_->spill() != nullptr);  // pages of the tree alone may be in the file
  std::lock_guard lock(mutex_);
  const uint32_t owner = find_owner(tenant);
  Path path = walk(find_root(space), owner, tokens);
  const auto [n, last] = usable(path, owner);
  const uint32_t P = pool_->page_tokens(), n_pages = (n + P - 1) / P;
  if (n) path.nodes[n_pages - 1] = last;
  for (size_t g = 0; g < pool_->n_groups(); ++g) {
    const uint32_t dropped = pool_->layout(g).first_needed(n) / P;
    table->start_at(g, dropped * P);
    for (uint32_t i = 0; i < n_pages; ++i) {
      const int32_t page = i < dropped ? kDropped : path.nodes[i]->pages[g];
      table->push(g, page);
      if (page >= 0) pool_->share(g, page);
    }
  }
  for (uint32_t i = 0; i < n_pages; ++i)
    for (const auto& [at, pages] : path.nodes[i]->states) {
      if (at > n) break;
      table->states().push(at, pages);
      for (size_t g = 0; g < pages.size(); ++g)
        if (pages[g] >= 0) pool_->share(g, pages[g]);
    }
  table->states().settle(n, [](uint32_t) { return true; });
  table->states().thin(pool_->most_checkpoints());
  for (uint32_t i = 0; i < n_pages; ++i) touch(path.nodes[i]);
  ids->append(tokens.data(), n);
  ++lookups_;
  hits_ += n > 0;
  matched_tokens_ += n;
  return Context::adopt(pool_, std::move(table), std::move(ids), n);
}

PrefixTree::Source PrefixTree::source_of(const Table& table, uint32_t n_tokens) {
  Source source{table, {}};
  const auto add = [&](const States& states, size_t i) {
    std::vector<int32_t> pages(states.pages.size(), kDropped);
    for (size_t g = 0; g < pages.size(); ++g)
      if (!states.pages[g].empty()) pages[g] = states.pages[g][i];
    source.states.emplace_back(states.at[i], std::move(pages));
  };
  if (const Checkpoints* list = table.states().checkpoints())
    for (size_t i = 0; i < list->states.size(); ++i) add(list->states, i);
  const States& live = table.states().live();
  const size_t now = live.find(n_tokens);
  if (now < live.size() && (source.states.empty() || source.states.back().first < n_tokens)) add(live, now);
  return source;
}

uint32_t PrefixTree::insert(const Context& context, const std::string& space, const std::string& tenant,
                            uint32_t shared) {
  // One moment of the context, and its pages held, before the tree is locked.
  const auto frozen = context.fork();
  const auto [table, n_tokens] = frozen->peek();
  const std::vector<int32_t> ids = frozen->tokens(0, n_tokens);
  // An unknown token equals no other: no position from there on can be found by its ids.
  const std::span known(ids.begin(), std::find(ids.begin(), ids.end(), kUnknownToken));
  const uint32_t P = pool_->page_tokens();
  if (frozen->pool() != pool_) throw std::invalid_argument("the context's pages are in another pool");
  if (pool_->n_groups() == 0) return 0;  // nothing that a later context could be spared
  const Source source = source_of(*table, n_tokens);

  std::lock_guard lock(mutex_);
  const Insertion insertion(*this, space, tenant);
  Node* node = insertion.root;
  uint32_t done = 0;
  for (std::span<const int32_t> rest = known; !rest.empty();) {
    const auto tokens = rest.first(std::min<size_t>(P, rest.size()));
    const uint32_t owner = done + P <= shared ? kShared : insertion.owner;
    const uint32_t end = done + uint32_t(tokens.size());
    auto [child, equal] = best_child(node, owner, tokens);
    if (child && equal < tokens.size() && (equal < child->tokens.size() || child->owner != owner))
      child = nullptr;
    if (!child) {
      auto fresh = std::make_unique<Node>();
      fresh->parent = node;
      fresh->owner = owner;
      fresh->begin = done;
      fresh->tokens.assign(tokens.begin(), tokens.end());
      fresh->rows = RowTable::process().hold(tokens);
      fresh->pages.assign(pool_->n_groups(), kDropped);
      if (!hold_beside(node, fresh.get(), source, end, false)) return done;
      child = fresh.release();
      node->children.insert(child);
      hold_owner(owner);
      delist(node);
      ++nodes_;
      if (owner == kShared) absorb(child);
    } else if (equal < tokens.size()) {  // a part of a page, and this is more of it
      if (!hold_beside(child, child, source, end, true)) {
        list_states(child);
        return done + equal;
      }
      node->children.erase(child);
      child->tokens.assign(tokens.begin(), tokens.end());
      child->rows = RowTable::process().hold(tokens);
      node->children.insert(child);
      if (owner == kShared) absorb(child);
    } else if (child->tokens.size() == tokens.size()) {
      // The node may lack pages that lay behind a window, or a state; they are added if there is room.
      hold_beside(child, child, source, end, false);
    } else if (pool_->has_states()) {  // the node has more of the page: it may lack our states
      hold_beside(child, child, {*table, source.states}, end, false);
    }
    list_states(child);
    touch(child);
    done = end;
    rest = rest.subspan(tokens.size());
    node = child;
  }
  return done;
}

/// A page is shared now: nodes of tenants with the same tokens are merged into it, and their children stay
/// the tenants'. Otherwise a tenant that follows the shared page would not find its own continuation.
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
        if (!has(g, shared->pages[g])) std::swap(shared->pages[g], node->pages[g]);
      unlist_states(node);
      unlist_states(shared);
      shared->states.merge(node->states);
      list_states(shared);
      let_all_go(node);
      for (Node* child : node->children) {
        child->parent = shared;
        shared->children.insert(child);
      }
      shared->stated.merge(node->stated);
      shared->pins += node->pins;
      for (auto& [number, pinned] : pins_)
        if (pinned == node) pinned = shared;
      parent->children.erase(same);
      remove(node);
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
    all.push_back({node->begin, node->owner, node->pins, node->tokens, node->pages, {}});
    for (const auto& [at, pages] : node->states) all.back().states.push_back(at);
    pending.insert(pending.end(), node->children.rbegin(), node->children.rend());
  }
  return all;
}

std::vector<std::string> PrefixTree::spaces() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& [space, root] : roots_) all.push_back(space);
  return all;
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

}  // namespace llamay::kv
