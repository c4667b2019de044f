#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "contexts/context.hpp"

namespace llamay::kv {

/// The cost of computing a page again: seconds for a token, and more for each position before it.
struct RecomputeCost {
  double per_token = 1;
  double per_token_and_position = 1.0 / 4096;
};

/// Computed prefixes, as a radix tree over token ids whose edges are pages.
///
/// A node is one page of tokens under its parent's; only a leaf may hold fewer than a page. It may also hold
/// recurrent states after some of its tokens; with such groups only a prefix that ends at a state can be
/// used, and any node that has one will do. Nodes hold the pages of their groups, so that contexts and the
/// tree share them, and the same page in two nodes counts once. Under a byte budget the tree gives up leaves,
/// cheapest to recompute and longest unused first: GreedyDual-Size (Cao and Irani, 1997) with the cost of
/// recomputing as the cost.
///
/// A namespace is a root of its own. Within one, a node belongs to a tenant or is shared; a tenant sees both
/// kinds. Thread safe. Tokens are compared, never only their hashes.
class PrefixTree : public Holder {
 public:
  static std::shared_ptr<PrefixTree> make(std::shared_ptr<Pool> pool, uint64_t budget_bytes,
                                          RecomputeCost cost);
  ~PrefixTree() override;

  /// Keep the pages of the context, the pages of its first `shared` tokens (rounded down to pages) for all
  /// tenants. Returns how many of its tokens are in the tree afterwards; fewer than it has if pages that must
  /// stay take up the budget.
  uint32_t insert(const Context& context, const std::string& space, const std::string& tenant,
                  uint32_t shared);

  /// A context that holds the longest prefix of the tokens that can be used: the groups with a window must
  /// still have the pages inside it.
  std::shared_ptr<Context> match(std::span<const int32_t> tokens, const std::string& space,
                                 const std::string& tenant);

  /// The length that match would find, and the place where the tree and the tokens part.
  struct Trace {
    uint32_t equal = 0;   // tokens that are in the tree
    uint32_t usable = 0;  // tokens of which a context could be made
    bool ends = true;     // whether the tree knows nothing after them
    int32_t stored = 0;   // otherwise a token that it has there instead
  };
  Trace trace(std::span<const int32_t> tokens, const std::string& space, const std::string& tenant) const;

  /// Keep the page with the last of these tokens, and so all before it. Returns a number for unpin, and how
  /// many of the tokens are kept; the number is 0 if none is.
  std::pair<uint64_t, uint32_t> pin(std::span<const int32_t> tokens, const std::string& space,
                                    const std::string& tenant);
  void unpin(uint64_t number);

  /// The stored nodes, depth first, children by owner and then by tokens.
  struct Entry {
    uint32_t begin, owner, pins;
    std::vector<int32_t> tokens, pages;
    std::vector<uint32_t> states;  // the lengths it has a recurrent state for
  };
  std::vector<Entry> entries(const std::string& space) const;
  /// The namespaces that have nodes.
  std::vector<std::string> spaces() const;

  /// Give up leaves until so many bytes have become free in the pool, or nothing is left to give: pages that
  /// this tree alone holds, and with `shared` pages that other trees hold too.
  Reclaimed reclaim(uint64_t bytes, bool shared) override;
  void count(std::vector<std::vector<uint32_t>>& holders) const override;
  void visit(const std::function<void(size_t, int32_t, uint64_t)>& f) const override;
  void clear();

  struct Stats {
    uint64_t used_bytes, budget_bytes, nodes, pins, lookups, hits, matched_tokens, evicted_pages;
    uint64_t spaces, tenants;  // that have nodes
  };
  Stats stats() const;
  const std::shared_ptr<Pool>& pool() const { return pool_; }

 private:
  struct Node;
  struct Stated;
  struct LessStated;
  struct Less {
    using is_transparent = void;
    struct Key {
      uint32_t owner;
      std::span<const int32_t> tokens;
    };
    static Key key(const Node* node);
    bool operator()(const Node* a, const Node* b) const { return less(key(a), key(b)); }
    bool operator()(const Node* a, const Key& b) const { return less(key(a), b); }
    bool operator()(const Key& a, const Node* b) const { return less(a, key(b)); }
    static bool less(const Key& a, const Key& b);
  };
  struct ByPriority {
    bool operator()(const Node* a, const Node* b) const;
  };
  /// The nodes along a list of tokens: all but the last are equal to it, the last in its first `in_last`
  /// tokens.
  struct Path {
    std::vector<Node*> nodes;
    uint32_t in_last = 0;
  };

  PrefixTree(std::shared_ptr<Pool> pool, uint64_t budget_bytes, RecomputeCost cost);

  class Insertion;
  Node* root(const std::string& space);
  /// Forget a root that has neither nodes nor pins.
  void prune(Node* root);
  const Node* find_root(const std::string& space) const;
  uint32_t owner_of(const std::string& tenant);
  void hold_owner(uint32_t owner);
  /// Forget an owner without nodes; its number may go to another tenant.
  void let_owner_go(uint32_t owner);
  /// Delete a node that has left its parent.
  void remove(Node* node);
  uint32_t find_owner(const std::string& tenant) const;
  static std::pair<Node*, uint32_t> best_child(const Node* node, uint32_t owner,
                                               std::span<const int32_t> tokens);
  Path walk(const Node* root, uint32_t owner, std::span<const int32_t> tokens) const;
  /// The longest prefix along the path that a context can be made of: its length, and the node that has its
  /// last page, where a recurrent state may be in another child than the one on the path.
  struct Usable {
    uint32_t n = 0;
    Node* last = nullptr;
  };
  Usable usable(const Path& path, uint32_t owner) const;
  Usable usable_state(const Path& path, uint32_t owner) const;

  /// The parts of a context that insert uses: its table, and the recurrent states in it by position.
  struct Source {
    const Table& table;
    std::vector<std::pair<uint32_t, std::vector<int32_t>>> states;
  };
  static Source source_of(const Table& table, uint32_t n_tokens);
  bool has(size_t g, int32_t page) const { return page >= 0 && !pool_->lost(g, page); }
  bool hold(Node* node, const Source& source, uint32_t end, bool replace);
  bool hold_beside(Node* keep, Node* node, const Source& source, uint32_t end, bool replace);
  void take(size_t g, int32_t page);
  void let_go(size_t g, int32_t page);
  void let_all_go(Node* node);
  // Called around whatever changes the states, the tokens or the parent of a node.
  void list_states(Node* node);
  void unlist_states(Node* node);
  /// Call f(group, page) for all that the node holds.
  template <class F>
  static void for_each_page(const Node* node, F&& f);
  void touch(Node* node);
  void enlist(Node* node);
  void delist(Node* node);
  void evict(Node* leaf);
  void give_up_until(Reclaimed& sum, uint64_t bytes, bool shared);
  Reclaimed give_up(Node* leaf);
  std::vector<Node*> covered(uint64_t bytes, bool shared) const;
  uint64_t gain(const Node* node, bool shared) const;
  static bool holds_pages(const Node* node);
  void absorb(Node* shared);

  const std::shared_ptr<Pool> pool_;
  const uint64_t budget_bytes_;
  const RecomputeCost cost_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Node>> roots_;
  std::unordered_map<std::string, uint32_t> owners_;
  struct Owner {
    const std::string* tenant;
    uint64_t holders = 0;  // nodes, and insertions under way
  };
  std::unordered_map<uint32_t, Owner> tenants_;  // by the number of the owner
  uint32_t last_owner_ = 0;
  std::vector<std::vector<uint32_t>> nodes_of_page_;  // for each group and page, how many nodes hold it
  std::set<Node*, ByPriority> leaves_;                // the leaves that may be given up
  std::map<uint64_t, Node*> pins_;
  double inflation_ = 0;  // GreedyDual's L: the priority of the last evicted leaf
  uint64_t used_bytes_ = 0, nodes_ = 0, next_pin_ = 0, serial_ = 0;
  uint64_t lookups_ = 0, hits_ = 0, matched_tokens_ = 0, evicted_pages_ = 0;
};

}  // namespace llamay::kv
