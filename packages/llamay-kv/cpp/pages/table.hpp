#pragma once
#include <memory>
#include <vector>

#include "pages/pool.hpp"
#include "pages/shared.hpp"
#include "pages/states.hpp"

namespace llamay::kv {

constexpr uint32_t kBlockPages = 64;
constexpr int32_t kDropped = -1;

/// 64 page numbers of one group, shared by the tables that list it; holds one count of each page it names.
///
/// `pages` comes first so that a table can be an array of int32_t pointers, as kv_view.h wants it.
struct Block {
  int32_t pages[kBlockPages];
  std::atomic<uint32_t> holders{1};

  static Block* of(int32_t* pages) { return reinterpret_cast<Block*>(pages); }
};

/// The page table of a context: per group, blocks of page numbers. Blocks are shared between tables and
/// tables between forks, so that a fork is one count. Before a change the table, the block and the page are
/// cloned unless they have a single holder (copy-on-write).
class Table : public Counted {
 public:
  explicit Table(std::shared_ptr<Pool> pool);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  /// A table of the first n_pages pages, and of the recurrent states up to n_tokens. Blocks are shared,
  /// except a last one that names pages beyond them.
  Ref<Table> clone(uint32_t n_pages, uint32_t n_tokens = UINT32_MAX) const;

  struct Group {
    std::vector<int32_t*> blocks;  // none in a recurrent group
    uint32_t n_pages = 0;          // dropped ones included
    uint32_t first = 0;            // positions before it hold nothing, and pages wholly before it are dropped
  };
  const Group& group(size_t g) const { return groups_[g]; }
  const std::shared_ptr<Pool>& pool() const { return pool_; }
  const StateList& states() const { return states_; }
  StateList& states() { return states_; }  // to change: only for a table with a single holder
  int32_t page(size_t g, uint32_t i) const { return groups_[g].blocks[i / kBlockPages][i % kBlockPages]; }
  uint32_t n_pages() const { return groups_.empty() ? 0 : groups_[0].n_pages; }
  uint32_t n_dropped(size_t g) const { return groups_[g].first / pool_->page_tokens(); }

  /// Whether page i of group g may be written by the holder of this table alone.
  bool owns(size_t g, uint32_t i) const {
    int32_t* block = groups_[g].blocks[i / kBlockPages];
    return unique() && Block::of(block)->holders.load(std::memory_order_acquire) == 1 &&
           !pool_->shared(g, block[i % kBlockPages]);
  }

  // These change the table: only for one with a single holder.

  /// Append a page of which the caller holds the count.
  void push(size_t g, int32_t page);
  /// Put a page of which the caller holds the count in place of page i, dropping that one.
  void replace(size_t g, uint32_t i, int32_t page);
  /// Drop all pages of all groups from n_pages on.
  void shrink(uint32_t n_pages);
  /// Drop the first n pages of group g; their numbers become kDropped.
  void drop_front(size_t g, uint32_t n);
  /// For a table without pages: `first` of group g. The pages before it are to be pushed as kDropped.
  void start_at(size_t g, uint32_t first) { groups_[g].first = first; }

  void audit() const;

  // Only where the pool spills. A table is pinned while the memory of its pages may be accessed, and those
  // pages then stay. A cold one may list pages that are in the file; thaw it first.
  void pin() {
    used_.store(pool_->tick(), std::memory_order_relaxed);
    pins_.fetch_add(1, std::memory_order_relaxed);
  }
  // Release: accesses to the pages happened before they are written to the file.
  void unpin() { pins_.fetch_sub(1, std::memory_order_release); }
  bool pinned() const { return pins_.load(std::memory_order_acquire) != 0; }
  bool cold() const { return cold_.load(std::memory_order_acquire); }
  void set_cold(bool cold) { cold_.store(cold, std::memory_order_release); }
  /// No other table of the pool has had it.
  uint64_t id() const { return id_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  friend class Pool;
  friend class Spill;
  int32_t* exclusive_block(size_t g, size_t b);

  std::shared_ptr<Pool> pool_;
  std::vector<Group> groups_;
  StateList states_;
  const uint64_t id_;
  std::atomic<uint32_t> pins_{0};
  std::atomic<bool> cold_{false};
  std::atomic<uint64_t> used_;
  Table *next_ = nullptr, *previous_ = nullptr;
};

}  // namespace llamay::kv
