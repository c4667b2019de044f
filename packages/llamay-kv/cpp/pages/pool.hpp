#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "pages/arena.hpp"
#include "pages/layout.hpp"

namespace llamay::kv {

/// The budget does not suffice. The function that throws it has changed nothing.
struct OutOfPagesError : std::runtime_error {
  OutOfPagesError(const std::string& what, uint64_t missing)
      : std::runtime_error(what), missing_bytes(missing) {}
  uint64_t missing_bytes;
};

/// Something that holds pages outside of page tables, and can give some up.
class Holder {
 public:
  virtual ~Holder() = default;
  struct Reclaimed {
    uint64_t freed = 0;
    uint64_t let_go = 0;  // bytes of pages that other holders still hold, and no table: free with the last
  };
  /// Give pages up until so many bytes are free in the pool, if possible. With `shared` also pages that other
  /// holders hold too, until so many bytes are free or let go. Must not call into contexts.
  virtual Reclaimed reclaim(uint64_t bytes, bool shared) = 0;
  /// Call f for every page it holds, with the tick of its last use.
  virtual void visit(const std::function<void(size_t group, int32_t page, uint64_t used)>& f) const = 0;
  /// Add the pages that it holds, for audit. Throws std::logic_error if its own sums are wrong.
  virtual void count(std::vector<std::vector<uint32_t>>& holders) const = 0;
};

class Table;
class Spill;
class SpillStore;

/// Options of a pool beside its layout.
struct PoolOptions {
  uint64_t budget_bytes;                       // the most bytes that pages take in memory
  std::shared_ptr<SpillStore> spill;           // where they go when that does not reach, if anywhere
  uint64_t spill_bytes = 0;                    // the most bytes that they take there
  std::shared_ptr<const Allocator> allocator;  // null for memory of the system
  uint64_t checkpoint_bytes = UINT64_MAX;      // the most that checkpoints of one context take
};

/// Pages for many contexts: per group an arena, a free list and, for each page, the number of its holders.
///
/// A holder is a block of a page table, or a node of a prefix tree. Counts are atomic, so sharing and
/// dropping need no lock; only taking pages, freeing them and registering tables do.
class Pool {
 public:
  Pool(std::vector<GroupSpec> groups, uint32_t page_tokens, uint64_t budget_bytes);
  Pool(std::vector<GroupSpec> groups, uint32_t page_tokens, PoolOptions options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  uint32_t page_tokens() const { return page_tokens_; }
  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  uint64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }
  size_t n_groups() const { return groups_.size(); }
  const GroupLayout& layout(size_t g) const { return groups_[g]->layout; }
  std::byte* arena(size_t g) const { return groups_[g]->arena.data(); }
  std::byte* page(size_t g, int32_t n) const {
    return groups_[g]->arena.data() + size_t(n) * groups_[g]->layout.page_bytes;
  }
  uint32_t live_pages(size_t g) const;
  /// Copy the first n slots of a page to another one of the group.
  void copy_slots(size_t g, int32_t from, int32_t to, uint32_t n);
  uint32_t capacity(size_t g) const { return groups_[g]->capacity; }
  bool has_states() const { return has_states_; }
  /// How many checkpoints of recurrent states a context keeps at most.
  size_t most_checkpoints() const { return most_checkpoints_; }
  /// Null unless pages may be spilled.
  Spill* spill() const { return spill_.get(); }
  /// A clock of uses.
  uint64_t tick() { return clock_.fetch_add(1, std::memory_order_relaxed) + 1; }

  /// Which group holds the model's layer, and where in it. Throws std::out_of_range.
  struct Place {
    uint32_t group, index;
  };
  Place find(uint32_t layer) const;

  /// Take need[g] pages of every group, each with one holder, or throw OutOfPagesError having taken none.
  void take(std::span<const uint32_t> need, std::vector<std::vector<int32_t>>& out);
  void share(size_t g, int32_t page) { groups_[g]->holders[page].fetch_add(1, std::memory_order_relaxed); }
  /// The same, unless the page has no holder.
  bool share_if_held(size_t g, int32_t page) {
    auto& holders = groups_[g]->holders[page];
    for (uint32_t n = holders.load(std::memory_order_relaxed); n;)
      if (holders.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) return true;
    return false;
  }
  /// Whether the page has a holder beside the caller. Acquire: writes of other holders happened before.
  bool shared(size_t g, int32_t page) const {
    return groups_[g]->holders[page].load(std::memory_order_acquire) > 1;
  }
  void drop(size_t g, int32_t page) {
    if (groups_[g]->holders[page].fetch_sub(1, std::memory_order_acq_rel) == 1) free_page(g, page);
  }
  uint32_t holders(size_t g, int32_t page) const {
    return groups_[g]->holders[page].load(std::memory_order_acquire);
  }
  // The same for a Holder that holds the page outside of page tables.
  void keep(size_t g, int32_t page) {
    share(g, page);
    groups_[g]->kept[page].fetch_add(1, std::memory_order_relaxed);
  }
  void let_go(size_t g, int32_t page) {
    groups_[g]->kept[page].fetch_sub(1, std::memory_order_relaxed);
    drop(g, page);
  }
  /// How many of the page's holders are not page tables.
  uint32_t kept(size_t g, int32_t page) const {
    return groups_[g]->kept[page].load(std::memory_order_relaxed);
  }

  /// Give the memory of free pages back to the system. Returns the bytes of the pages concerned.
  uint64_t trim();

  /// The bytes of memory that become free when the page, if it has so many holders, is dropped as often.
  uint64_t gain(size_t g, int32_t page, uint32_t times) const;
  /// Whether the page was spilled and could not be read back.
  bool lost(size_t g, int32_t page) const;

  /// Spill, and ask the enlisted holders to give pages up. True if anything came free. Hold no lock.
  bool reclaim(uint64_t bytes);
  bool reclaim_from_holders(uint64_t bytes);
  void enlist(std::weak_ptr<Holder> holder);

  /// Recount everything from the live tables and throw std::logic_error at the first difference. For quiet
  /// moments: the caller makes sure that no thread changes the pool meanwhile.
  void audit() const;
  uint64_t live_tables() const;

 private:
  friend class Table;
  friend class Spill;
  struct Group {
    Group(GroupLayout l, uint32_t pages, const std::shared_ptr<const Allocator>& allocator)
        : layout(std::move(l)),
          capacity(pages),
          arena(size_t(pages) * layout.page_bytes, allocator),
          holders(pages),
          kept(pages) {}
    GroupLayout layout;
    uint32_t capacity;
    Arena arena;
    PerPage<std::atomic<uint32_t>> holders;
    PerPage<std::atomic<uint32_t>> kept;  // how many of the holders are not page tables
    std::vector<int32_t> free;
    uint32_t fresh = 0;  // pages from here on were never used
  };

  void free_page(size_t g, int32_t page);
  void discard(size_t g, int32_t page);
  /// Take bytes of the budget for pages that come back; returns how many are missing, having taken none then.
  uint64_t charge(uint64_t bytes);
  std::vector<std::shared_ptr<Holder>> enlisted() const;
  void link(Table* table);
  void unlink(Table* table);

  uint32_t page_tokens_;
  uint64_t budget_bytes_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::atomic<uint64_t> used_bytes_{0}, peak_bytes_{0};
  mutable std::mutex mutex_;
  Table* tables_ = nullptr;  // every live table, for audit
  std::vector<std::weak_ptr<Holder>> holders_;
  std::atomic<uint64_t> clock_{0};
  bool has_states_ = false;
  size_t most_checkpoints_ = SIZE_MAX;
  std::unique_ptr<Spill> spill_;
};

/// Pages that have been taken and are not yet in a table: they go back unless popped.
class ReservedPages {
 public:
  ReservedPages(Pool& pool, std::span<const uint32_t> need) : pool_(pool) { pool.take(need, pages_); }
  ~ReservedPages() {
    for (size_t g = 0; g < pages_.size(); ++g)
      for (int32_t page : pages_[g]) pool_.drop(g, page);
  }
  ReservedPages(const ReservedPages&) = delete;
  ReservedPages& operator=(const ReservedPages&) = delete;
  int32_t next(size_t g) const { return pages_[g].back(); }
  void pop(size_t g) { pages_[g].pop_back(); }

 private:
  Pool& pool_;
  std::vector<std::vector<int32_t>> pages_;
};

}  // namespace llamay::kv
