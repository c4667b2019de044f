#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "pages/table.hpp"

namespace llamay::kv {

/// Where the bytes of spilled pages are. A slot holds one page of its group. Serials number the writes, so
/// that a store can tell a slot's present contents from earlier ones.
///
/// Called without any lock that another operation of the pool waits for, by one thread at a time.
class SpillStore {
 public:
  virtual ~SpillStore() = default;
  /// The bytes of a slot in addition to the page.
  virtual size_t overhead() const = 0;
  /// False if there is no room for it, even within the budget. Throws if it cannot be written.
  virtual bool write(size_t group, uint32_t slot, uint64_t serial, std::span<const std::byte> page) = 0;
  /// Throws if it cannot be read, or differs from the page that was written.
  virtual void read(size_t group, uint32_t slot, uint64_t serial, std::span<std::byte> page) = 0;
};

/// A page could not be read back. Contexts that need it are lost.
struct PagesLostError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Moves idle pages to a file, and back when they are used.
///
/// A spilled page keeps its number, its holders and its address; only the memory behind it is given back. So
/// page tables stay as they are. A page stays in memory while a pinned table lists it: leases and views pin
/// tables. A table that may list spilled pages is cold, and is thawed before it is
/// pinned.
///
/// Locks, in this order: a context's or mutex_ (never both), the gate, a tree's, the pool's. Everything that
/// changes or pins tables holds the gate shared; choosing pages holds it alone, so that all tables stand
/// still. Reading and writing files holds mutex_ only.
class Spill {
 public:
  Spill(Pool& pool, std::shared_ptr<SpillStore> store, uint64_t budget_bytes);

  std::shared_mutex& gate() { return gate_; }

  /// Write out pages that no pinned table lists, least recently used first, until so many bytes of
  /// memory are free or none is left. Returns the bytes.
  uint64_t spill(uint64_t bytes);

  /// Bring back the pages that the table lists, and pin it. Throws PagesLostError, or OutOfPagesError; the
  /// table then stays cold.
  void thaw(const Ref<Table>& table);

  // For the pool, under its lock.
  bool resident(size_t g, int32_t page) const { return groups_[g].where[size_t(page)] == Where::memory; }
  /// The page is free: so is its slot. Returns whether it was in memory.
  bool forget(size_t g, int32_t page);

  /// Whether the page could not be read back.
  bool lost(size_t g, int32_t page) const;

  struct Stats {
    uint64_t budget_bytes, file_bytes, spilled_bytes, spilled_pages;
    uint64_t written_pages, read_pages, failed_writes, failed_reads, no_room;
  };
  Stats stats() const;
  /// Throws std::logic_error if its own sums are wrong. Under the pool's lock.
  void audit() const;

 private:
  enum class Where : uint8_t { memory, file, lost };
  struct Group {
    explicit Group(uint32_t pages) : where(pages), slot(pages), serial(pages) {}
    PerPage<Where> where;
    PerPage<uint32_t> slot;
    PerPage<uint64_t> serial;
    std::vector<uint32_t> free_slots;
    uint32_t n_slots = 0;
    size_t slot_bytes = 0;
  };
  struct Victim {
    uint64_t used;
    uint32_t group;
    int32_t page;
  };

  uint64_t spill_locked(uint64_t bytes);
  std::vector<Victim> choose(uint64_t bytes);
  bool write_out(const Victim& victim);
  bool take_slot(size_t g, uint32_t& slot);
  void read_back(const std::vector<Victim>& pages);

  Pool& pool_;
  const std::shared_ptr<SpillStore> store_;
  const uint64_t budget_bytes_;
  std::mutex mutex_;
  std::shared_mutex gate_;
  // Under the pool's lock.
  std::deque<Group> groups_;
  uint64_t file_bytes_ = 0, spilled_bytes_ = 0, spilled_pages_ = 0, serial_ = 0;
  uint64_t written_pages_ = 0, read_pages_ = 0, failed_writes_ = 0, failed_reads_ = 0, no_room_ = 0;
};

/// Holds the gate of a pool shared, if it has one.
class Gate {
 public:
  explicit Gate(const Pool& pool) : gate_(pool.spill() ? &pool.spill()->gate() : nullptr) {
    if (gate_) gate_->lock_shared();
  }
  ~Gate() {
    if (gate_) gate_->unlock_shared();
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

 private:
  std::shared_mutex* gate_;
};

}  // namespace llamay::kv
