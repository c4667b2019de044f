#include "pages/spill.hpp"

#include <algorithm>
#include <unordered_map>

namespace llamay::kv {

Spill::Spill(Pool& pool, std::shared_ptr<SpillStore> store, uint64_t budget_bytes)
    : pool_(pool), store_(std::move(store)), budget_bytes_(budget_bytes) {
  for (size_t g = 0; g < pool.n_groups(); ++g) {
    groups_.emplace_back(pool.capacity(g));
    groups_[g].slot_bytes = pool.layout(g).page_bytes + store_->overhead();
  }
}

uint64_t Spill::spill(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return spill_locked(bytes);
}

uint64_t Spill::spill_locked(uint64_t bytes) {
  uint64_t freed = 0;
  bool going = true;
  for (const Victim& victim : choose(bytes)) {
    if (going) {
      going = write_out(victim);
      if (going) freed += pool_.layout(victim.group).page_bytes;
    }
    pool_.drop(victim.group, victim.page);
  }
  return freed;
}

/// Pages to write out, each held once for us, and every table that lists one of them cold.
std::vector<Spill::Victim> Spill::choose(uint64_t bytes) {
  // Some more at once: choosing looks at every table.
  bytes = std::max(bytes, pool_.budget_bytes() / 64);
  std::unique_lock gate(gate_);

  struct Use {
    uint64_t used = 0;
    bool held = false, pinned = false, chosen = false;
  };
  std::vector<std::vector<Use>> uses(groups_.size());
  {
    std::lock_guard lock(pool_.mutex_);
    for (size_t g = 0; g < groups_.size(); ++g) uses[g].resize(pool_.groups_[g]->fresh);
  }
  const auto see = [&](size_t g, int32_t page, uint64_t used, bool pinned) {
    Use& use = uses[g][size_t(page)];
    use.held = true;
    use.pinned |= pinned;
    use.used = std::max(use.used, used);
  };
  for (const auto& holder : pool_.enlisted())
    holder->visit([&](size_t g, int32_t page, uint64_t used) { see(g, page, used, false); });

  std::lock_guard lock(pool_.mutex_);
  std::unordered_map<const int32_t*, Use> blocks;  // shared ones are looked into once
  for (size_t g = 0; g < groups_.size(); ++g) {
    blocks.clear();
    for (const Table* t = pool_.tables_; t; t = t->next_)
      for (const int32_t* block : t->group(g).blocks) {
        Use& use = blocks[block];
        use.used = std::max(use.used, t->used());
        use.pinned |= t->pinned();
      }
    for (const auto& [pages, use] : blocks)
      for (uint32_t i = 0; i < kBlockPages; ++i)
        if (pages[i] >= 0) see(g, pages[i], use.used, use.pinned);
  }
  for (const Table* t = pool_.tables_; t; t = t->next_)
    t->states().for_each([&](size_t g, int32_t page) { see(g, page, t->used(), t->pinned()); });

  std::vector<Victim> candidates, chosen;
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t page = 0; page < uses[g].size(); ++page) {
      const Use& use = uses[g][page];
      if (use.held && !use.pinned && groups_[g].where[page] == Where::memory)
        candidates.push_back({use.used, uint32_t(g), int32_t(page)});
    }
  std::sort(candidates.begin(), candidates.end(),
            [](const Victim& a, const Victim& b) { return a.used < b.used; });
  uint64_t sum = 0;
  for (const Victim& victim : candidates) {
    if (sum >= bytes) break;
    // A tree may have released it since the visit; no page is taken while we have the gate.
    if (!pool_.share_if_held(victim.group, victim.page)) continue;
    uses[victim.group][size_t(victim.page)].chosen = true;
    chosen.push_back(victim);
    sum += pool_.layout(victim.group).page_bytes;
  }
  if (chosen.empty()) return chosen;
  for (size_t g = 0; g < groups_.size(); ++g) {
    blocks.clear();
    for (Table* t = pool_.tables_; t; t = t->next_) {
      if (t->cold()) continue;
      for (const int32_t* block : t->group(g).blocks) {
        const auto [at, fresh] = blocks.try_emplace(block);
        if (fresh)
          for (uint32_t i = 0; i < kBlockPages; ++i)
            at->second.chosen |= block[i] >= 0 && uses[g][size_t(block[i])].chosen;
        if (at->second.chosen) t->set_cold(true);
      }
    }
  }
  for (Table* t = pool_.tables_; t; t = t->next_)
    if (!t->cold())
      t->states().for_each([&](size_t g, int32_t page) {
        if (uses[g][size_t(page)].chosen) t->set_cold(true);
      });
  return chosen;
}

bool Spill::take_slot(size_t g, uint32_t& slot) {
  Group& group = groups_[g];
  if (!group.free_slots.empty()) {
    slot = group.free_slots.back();
    group.free_slots.pop_back();
    return true;
  }
  if (group.slot_bytes > budget_bytes_ - file_bytes_) return false;
  group.free_slots.reserve(group.n_slots + 1);  // giving one back must not fail
  slot = group.n_slots++;
  file_bytes_ += group.slot_bytes;
  return true;
}

bool Spill::write_out(const Victim& victim) {
  const size_t g = victim.group, page = size_t(victim.page), bytes = pool_.layout(g).page_bytes;
  uint32_t slot;
  uint64_t serial;
  {
    std::lock_guard lock(pool_.mutex_);
    if (!take_slot(g, slot)) {
      ++no_room_;
      return false;
    }
    serial = ++serial_;
  }
  bool written = false, failed = false;
  try {
    written = store_->write(g, slot, serial, {pool_.page(g, victim.page), bytes});
  } catch (const std::exception&) {
    failed = true;
  }
  if (written) pool_.discard(g, victim.page);
  std::lock_guard lock(pool_.mutex_);
  Group& group = groups_[g];
  if (!written) {
    group.free_slots.push_back(slot);
    ++(failed ? failed_writes_ : no_room_);
    return false;
  }
  group.where[page] = Where::file;
  group.slot[page] = slot;
  group.serial[page] = serial;
  spilled_bytes_ += bytes;
  ++spilled_pages_;
  ++written_pages_;
  pool_.used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  return true;
}

void Spill::thaw(const Ref<Table>& table) {
  const auto fault = [&](size_t g, int32_t page, std::vector<Victim>& pages) {
    if (page < 0 || groups_[g].where[size_t(page)] == Where::memory) return;
    if (groups_[g].where[size_t(page)] == Where::lost)
      throw PagesLostError("a page of group " + std::to_string(g) + " could not be read back");
    pages.push_back({0, uint32_t(g), page});
  };
  for (;;) {
    std::string wanted;
    uint64_t missing = 0;
    {
      std::lock_guard lock(mutex_);
      std::vector<Victim> pages;
      {
        std::lock_guard pool_lock(pool_.mutex_);
        for (size_t g = 0; g < groups_.size(); ++g)
          for (uint32_t i = 0; i < table->group(g).n_pages && !pool_.layout(g).recurrent(); ++i)
            fault(g, table->page(g, i), pages);
        table->states().for_each([&](size_t g, int32_t page) { fault(g, page, pages); });
      }
      // A checkpoint may be the current state too.
      const auto order = [](const Victim& v) { return std::pair(v.group, v.page); };
      std::sort(pages.begin(), pages.end(), [&](auto& a, auto& b) { return order(a) < order(b); });
      const auto same = [&](auto& a, auto& b) { return order(a) == order(b); };
      pages.erase(std::unique(pages.begin(), pages.end(), same), pages.end());
      uint64_t bytes = 0;
      for (const Victim& page : pages) bytes += pool_.layout(page.group).page_bytes;

      table->pin();  // resident pages stay while room is made for the rest
      try {
        missing = pool_.charge(bytes);
        if (missing && spill_locked(missing)) missing = pool_.charge(bytes);
        if (!missing) {
          read_back(pages);
          table->set_cold(false);
          return;
        }
      } catch (...) {
        table->unpin();
        throw;
      }
      table->unpin();
      wanted = std::to_string(bytes);
    }
    if (!pool_.reclaim_from_holders(missing))
      throw OutOfPagesError("out of pages: " + wanted + " bytes of the context are in the spill file and " +
                                std::to_string(missing) +
                                " bytes of the budget are missing to bring them back",
                            missing);
  }
}

/// Fill pages that the budget has been charged with.
void Spill::read_back(const std::vector<Victim>& pages) {
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto [used, g, number] = pages[i];
    const size_t bytes = pool_.layout(g).page_bytes;
    Group& group = groups_[g];
    std::string reason;
    try {
      store_->read(g, group.slot[size_t(number)], group.serial[size_t(number)],
                   {pool_.page(g, number), bytes});
    } catch (const std::exception& e) {
      reason = e.what();
      if (reason.empty()) reason = "unknown error";
    }
    std::lock_guard lock(pool_.mutex_);
    group.free_slots.push_back(group.slot[size_t(number)]);
    group.where[size_t(number)] = reason.empty() ? Where::memory : Where::lost;
    spilled_bytes_ -= bytes;
    --spilled_pages_;
    if (reason.empty()) {
      ++read_pages_;
      continue;
    }
    ++failed_reads_;
    uint64_t rest = 0;
    for (size_t j = i; j < pages.size(); ++j) rest += pool_.layout(pages[j].group).page_bytes;
    pool_.used_bytes_.fetch_sub(rest, std::memory_order_relaxed);
    throw PagesLostError("a page of group " + std::to_string(g) + " could not be read back: " + reason);
  }
}

bool Spill::forget(size_t g, int32_t page) {
  Group& group = groups_[g];
  const Where was = std::exchange(group.where[size_t(page)], Where::memory);
  if (was == Where::file) {
    group.free_slots.push_back(group.slot[size_t(page)]);
    spilled_bytes_ -= pool_.layout(g).page_bytes;
    --spilled_pages_;
  }
  return was == Where::memory;
}

bool Spill::lost(size_t g, int32_t page) const {
  std::lock_guard lock(pool_.mutex_);
  return groups_[g].where[size_t(page)] == Where::lost;
}

Spill::Stats Spill::stats() const {
  std::lock_guard lock(pool_.mutex_);
  return {budget_bytes_, file_bytes_,    spilled_bytes_, spilled_pages_, written_pages_,
          read_pages_,   failed_writes_, failed_reads_,  no_room_};
}

void Spill::audit() const {
  const auto check = [](bool good, const char* what) {
    if (!good) throw std::logic_error(std::string("audit: ") + what);
  };
  uint64_t file = 0, bytes = 0, pages = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    std::vector<bool> taken(group.n_slots, false);
    const auto take = [&](uint32_t slot) {
      check(slot < group.n_slots && !taken[slot], "a slot of the spill file is used twice");
      taken[slot] = true;
    };
    for (uint32_t slot : group.free_slots) take(slot);
    for (size_t page = 0; page < pool_.groups_[g]->fresh; ++page) {
      if (group.where[page] != Where::memory)
        check(pool_.holders(g, int32_t(page)) != 0, "a page that is free is not in memory");
      if (group.where[page] != Where::file) continue;
      take(group.slot[page]);
      bytes += pool_.layout(g).page_bytes;
      ++pages;
    }
    check(std::find(taken.begin(), taken.end(), false) == taken.end(), "a slot of the spill file is lost");
    file += group.n_slots * group.slot_bytes;
  }
  check(file == file_bytes_ && file <= budget_bytes_, "the spill file's size is wrong");
  check(bytes == spilled_bytes_ && pages == spilled_pages_, "the sums of spilled pages are wrong");
  for (const Table* t = pool_.tables_; t; t = t->next_) {
    if (t->cold()) continue;
    const auto here = [&](size_t g, int32_t page) {
      check(page < 0 || resident(g, page), "a table that is not cold lists a page that is not in memory");
    };
    for (size_t g = 0; g < groups_.size(); ++g)
      for (uint32_t i = 0; i < t->group(g).n_pages && !pool_.layout(g).recurrent(); ++i)
        here(g, t->page(g, i));
    t->states().for_each(here);
  }
}

}  // namespace llamay::kv
