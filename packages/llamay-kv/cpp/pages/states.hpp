#pragma once
#include <cstdint>
#include <vector>

#include "pages/pool.hpp"
#include "pages/shared.hpp"

namespace llamay::kv {

/// Recurrent states in increasing position: after at[i] tokens, in group g, it is page pages[g][i]. Groups
/// without states have empty lists. Each list holds one count of each page.
struct States {
  explicit States(size_t n_groups) : pages(n_groups) {}
  size_t size() const { return at.size(); }
  /// The index of the state after n tokens, or size().
  size_t find(uint32_t n) const;

  std::vector<uint32_t> at;
  std::vector<std::vector<int32_t>> pages;
};

/// States that a context can go back to. Shared between tables; only one with a single holder may be changed.
struct Checkpoints : Counted {
  explicit Checkpoints(Pool& p) : pool(p), states(p.n_groups()) {}
  ~Checkpoints() { cut(0); }

  /// A list of the first n, each held once more.
  Ref<Checkpoints> clone(size_t n) const;
  /// Add one behind the others; the list takes a count of its own of each page.
  void add(uint32_t at, const States& from, size_t i);
  /// Drop the states from the n-th on.
  void cut(size_t n);
  /// Drop the first n.
  void drop_front(size_t n);
  /// Drop the i-th.
  void drop(size_t i);

  Pool& pool;
  States states;
};

/// The recurrent states of a table: the present state, the states that a lease writes, and checkpoints.
class StateList {
 public:
  explicit StateList(Pool& pool) : pool_(pool), live_(pool.n_groups()) {}
  ~StateList() { cut(0); }
  StateList(const StateList&) = delete;
  StateList& operator=(const StateList&) = delete;

  /// Take over, with counts of their own, the states of another list up to n tokens.
  void share(const StateList& from, uint32_t n);

  const States& live() const { return live_; }
  const Checkpoints* checkpoints() const { return checkpoints_.get(); }

  /// Append room for a state; the caller hands over a count of each page in pages[g] that is not
  /// negative.
  void push(uint32_t at, const std::vector<int32_t>& pages);
  /// The context has n tokens now: the state there becomes the present one, earlier states are dropped, or
  /// kept as checkpoints where keep(at) is true, and later ones are dropped.
  template <class Keep>
  void settle(uint32_t n, Keep&& keep) {
    for (size_t i = 0; i < live_.size() && live_.at[i] <= n; ++i)
      if (keep(live_.at[i])) add_checkpoint(i);
    settle_at(n);
  }
  /// Make the current state a checkpoint. Nothing if it is one.
  void mark(uint32_t n);
  /// Go back to the checkpoint after n tokens, which must be there unless n is 0.
  void go_back(uint32_t n);
  /// Forget the checkpoints before n tokens.
  void forget_before(uint32_t n);
  /// Forget the checkpoint at n tokens, which must be there.
  void forget(uint32_t n);
  /// Forget checkpoints until there are no more than `most`, which is at least 1. The last one stays. Of the
  /// others the checkpoint is dropped that leaves the smallest gap relative to its distance from the last
  /// one, the earlier of two equals; so they are denser the nearer they are to the end.
  void thin(size_t most);

  /// Call f(group, page) for every page that is held, shared checkpoints included.
  template <class F>
  void for_each(F&& f) const {
    for_each(live_, f);
    if (checkpoints_) for_each(checkpoints_->states, f);
  }
  template <class F>
  static void for_each(const States& states, F&& f) {
    for (size_t g = 0; g < states.pages.size(); ++g)
      for (int32_t page : states.pages[g]) f(g, page);
  }

 private:
  void settle_at(uint32_t n);
  void add_checkpoint(size_t i);
  Checkpoints& exclusive();
  void cut(size_t n);

  Pool& pool_;
  States live_;
  Ref<Checkpoints> checkpoints_;  // null if there are none
};

}  // namespace llamay::kv
