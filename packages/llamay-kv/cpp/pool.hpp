#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "arena.hpp"
#include "layout.hpp"

namespace llamay::kv {

/// The budget does not reach. Whoever throws it has changed nothing.
struct OutOfPages : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Table;

/// Pages for many contexts: per group an arena, a free list and, for each page, the number of its holders.
///
/// A holder is a block of a page table. Counts are atomic, so sharing and dropping need no lock; only taking
/// pages, freeing them and registering tables do.
class Pool {
 public:
  Pool(std::vector<GroupSpec> groups, uint32_t page_tokens, uint64_t budget_bytes);
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

  /// Which group holds the model's layer, and where in it. Throws std::out_of_range.
  struct Place {
    uint32_t group, index;
  };
  Place find(uint32_t layer) const;

  /// Take need[g] pages of every group, each with one holder, or throw OutOfPages having taken none.
  void take(std::span<const uint32_t> need, std::vector<std::vector<int32_t>>& out);
  void share(size_t g, int32_t page) { groups_[g]->holders[page].fetch_add(1, std::memory_order_relaxed); }
  /// Whether anybody but the caller holds it. Acquire: what the others did to it happened before.
  bool shared(size_t g, int32_t page) const {
    return groups_[g]->holders[page].load(std::memory_order_acquire) > 1;
  }
  void drop(size_t g, int32_t page) {
    if (groups_[g]->holders[page].fetch_sub(1, std::memory_order_acq_rel) == 1) free_page(g, page);
  }
  uint32_t holders(size_t g, int32_t page) const {
    return groups_[g]->holders[page].load(std::memory_order_acquire);
  }

  /// Give the memory of free pages back to the system. Returns the bytes of the pages concerned.
  uint64_t trim();

  /// Recount everything from the live tables and throw std::logic_error at the first difference. For quiet
  /// moments: the caller makes sure that nobody changes the pool meanwhile.
  void audit() const;
  uint64_t live_tables() const;

 private:
  friend class Table;
  struct Group {
    Group(GroupLayout l, uint32_t pages)
        : layout(std::move(l)), capacity(pages), arena(size_t(pages) * layout.page_bytes), holders(pages) {}
    GroupLayout layout;
    uint32_t capacity;
    Arena arena;
    std::vector<std::atomic<uint32_t>> holders;
    std::vector<int32_t> free;
    uint32_t fresh = 0;  // pages from here on were never used
  };

  void free_page(size_t g, int32_t page);
  void link(Table* table);
  void unlink(Table* table);

  uint32_t page_tokens_;
  uint64_t budget_bytes_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::atomic<uint64_t> used_bytes_{0}, peak_bytes_{0};
  mutable std::mutex mutex_;
  Table* tables_ = nullptr;  // every live table, for audit
};

/// Pages that have been taken and are not yet in a table: they go back unless popped.
class Taken {
 public:
  Taken(Pool& pool, std::span<const uint32_t> need) : pool_(pool) { pool.take(need, pages_); }
  ~Taken() {
    for (size_t g = 0; g < pages_.size(); ++g)
      for (int32_t page : pages_[g]) pool_.drop(g, page);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  int32_t next(size_t g) const { return pages_[g].back(); }
  void pop(size_t g) { pages_[g].pop_back(); }

 private:
  Pool& pool_;
  std::vector<std::vector<int32_t>> pages_;
};

}  // namespace llamay::kv
