#include "pages/pool.hpp"

#include <algorithm>
#include <unordered_map>

#include "pages/spill.hpp"
#include "pages/table.hpp"

namespace llamay::kv {

Pool::Pool(std::vector<GroupSpec> groups, uint32_t page_tokens, uint64_t budget_bytes)
    : Pool(std::move(groups), page_tokens, PoolOptions{budget_bytes, nullptr, 0, nullptr, UINT64_MAX}) {}

Pool::Pool(std::vector<GroupSpec> groups, uint32_t page_tokens, PoolOptions options)
    : page_tokens_(page_tokens), budget_bytes_(options.budget_bytes) {
  validate(groups, page_tokens);
  uint64_t one_of_each = 0;
  std::vector<GroupLayout> layouts;
  for (GroupSpec& spec : groups) {
    layouts.emplace_back(std::move(spec), page_tokens);
    one_of_each += layouts.back().page_bytes;
  }
  if (budget_bytes_ < one_of_each)
    throw std::invalid_argument("a budget of " + std::to_string(budget_bytes_) +
                                " bytes is too small: one page of every group takes " +
                                std::to_string(one_of_each));
  uint64_t one_state = 0;
  for (const GroupLayout& layout : layouts)
    if (layout.recurrent()) one_state += layout.page_bytes;
  if (options.checkpoint_bytes != UINT64_MAX) {
    if (!one_state) throw std::invalid_argument("checkpoint_bytes is for layouts with recurrent groups");
    if (options.checkpoint_bytes < one_state)
      throw std::invalid_argument("checkpoint_bytes of " + std::to_string(options.checkpoint_bytes) +
                                  " do not hold one state of all recurrent groups, which takes " +
                                  std::to_string(one_state));
    most_checkpoints_ = options.checkpoint_bytes / one_state;
  }
  for (GroupLayout& layout : layouts) {
    // Spilled pages keep their addresses. A page's number is an int32_t.
    const uint64_t pages = std::min<uint64_t>(
        {budget_bytes_ / layout.page_bytes + (options.spill ? options.spill_bytes / layout.page_bytes : 0),
         SIZE_MAX / layout.page_bytes, INT32_MAX});
    has_states_ |= layout.recurrent();
    groups_.push_back(std::make_unique<Group>(std::move(layout), uint32_t(pages), options.allocator));
  }
  if (options.spill && options.allocator && !options.allocator->functions.discard)
    throw std::invalid_argument(
        "the allocator cannot give memory back (it has no discard), so pages cannot be spilled");
  if (options.spill) spill_ = std::make_unique<Spill>(*this, std::move(options.spill), options.spill_bytes);
}

Pool::~Pool() = default;

uint32_t Pool::live_pages(size_t g) const {
  std::lock_guard lock(mutex_);
  return groups_[g]->fresh - uint32_t(groups_[g]->free.size());
}

Pool::Place Pool::find(uint32_t layer) const {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const auto& layers = groups_[g]->layout.layers;
    for (uint32_t i = 0; i < layers.size(); ++i)
      if (layers[i].layer.layer == layer) return {g, i};
  }
  throw std::out_of_range("the layout has no layer " + std::to_string(layer));
}

void Pool::take(std::span<const uint32_t> need, std::vector<std::vector<int32_t>>& out) {
  out.resize(groups_.size());
  uint64_t bytes = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    bytes += need[g] * groups_[g]->layout.page_bytes;
    out[g].reserve(need[g]);  // a failure for lack of memory comes before a page is taken
  }
  std::lock_guard lock(mutex_);
  const uint64_t used = used_bytes();
  if (bytes > budget_bytes_ - used)
    throw OutOfPagesError("out of pages: " + std::to_string(bytes) + " bytes wanted, " +
                              std::to_string(budget_bytes_ - used) + " of the budget of " +
                              std::to_string(budget_bytes_) +
                              " bytes left; close contexts or raise the budget",
                          bytes - (budget_bytes_ - used));
  for (size_t g = 0; g < groups_.size(); ++g) {
    // The budget bounds the pages of all groups together, hence of each, but for budgets of more pages than
    // there are numbers.
    const Group& group = *groups_[g];
    const uint64_t left = group.free.size() + (group.capacity - group.fresh);
    if (need[g] > left)
      throw OutOfPagesError("out of pages: group " + std::to_string(g) + " has all of its " +
                                std::to_string(group.capacity) + " pages in use; close contexts",
                            (need[g] - left) * group.layout.page_bytes);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    for (uint32_t i = 0; i < need[g]; ++i) {
      int32_t page;
      if (!group.free.empty()) {
        page = group.free.back();
        group.free.pop_back();
      } else {
        page = int32_t(group.fresh++);
      }
      group.holders[page].store(1, std::memory_order_relaxed);
      out[g].push_back(page);
    }
  }
  used_bytes_.store(used + bytes, std::memory_order_relaxed);
  if (used + bytes > peak_bytes()) peak_bytes_.store(used + bytes, std::memory_order_relaxed);
}

void Pool::copy_slots(size_t g, int32_t from, int32_t to, uint32_t n) {
  const GroupLayout& layout = groups_[g]->layout;
  Arena& arena = groups_[g]->arena;
  const size_t begin = size_t(from) * layout.page_bytes, target = size_t(to) * layout.page_bytes;
  if (n == layout.page_tokens) {
    arena.copy(target, begin, layout.page_bytes, 1, layout.page_bytes);
    return;
  }
  for (const Plane& plane : layout.planes)
    arena.copy(target + plane.offset, begin + plane.offset, n * plane.unit, plane.rows,
               layout.page_tokens * plane.unit);
}

void Pool::free_page(size_t g, int32_t page) {
  std::lock_guard lock(mutex_);
  groups_[g]->free.push_back(page);
  if (!spill_ || spill_->forget(g, page))
    used_bytes_.fetch_sub(groups_[g]->layout.page_bytes, std::memory_order_relaxed);
}

void Pool::discard(size_t g, int32_t page) {
  const size_t bytes = groups_[g]->layout.page_bytes;
  groups_[g]->arena.discard(size_t(page) * bytes, bytes);
}

uint64_t Pool::charge(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const uint64_t used = used_bytes(), left = budget_bytes_ - used;
  if (bytes > left) return bytes - left;
  used_bytes_.store(used + bytes, std::memory_order_relaxed);
  if (used + bytes > peak_bytes()) peak_bytes_.store(used + bytes, std::memory_order_relaxed);
  return 0;
}

uint64_t Pool::gain(size_t g, int32_t page, uint32_t times) const {
  if (holders(g, page) != times) return 0;
  if (spill_) {
    std::lock_guard lock(mutex_);
    if (!spill_->resident(g, page)) return 0;
  }
  return groups_[g]->layout.page_bytes;
}

bool Pool::lost(size_t g, int32_t page) const { return spill_ && spill_->lost(g, page); }

uint64_t Pool::trim() {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (auto& group : groups_) {
    const size_t size = group->layout.page_bytes;
    std::sort(group->free.begin(), group->free.end(),
              std::greater<>());  // runs share system pages; low ones go first
    for (size_t i = 0; i < group->free.size();) {
      size_t end = i + 1;
      while (end < group->free.size() && group->free[end] == group->free[end - 1] - 1) ++end;
      group->arena.discard(size_t(group->free[end - 1]) * size, (end - i) * size);
      bytes += (end - i) * size;
      i = end;
    }
  }
  return bytes;
}

void Pool::link(Table* table) {
  std::lock_guard lock(mutex_);
  table->next_ = tables_;
  table->previous_ = nullptr;
  if (tables_) tables_->previous_ = table;
  tables_ = table;
}

void Pool::unlink(Table* table) {
  std::lock_guard lock(mutex_);
  (table->previous_ ? table->previous_->next_ : tables_) = table->next_;
  if (table->next_) table->next_->previous_ = table->previous_;
}

uint64_t Pool::live_tables() const {
  std::lock_guard lock(mutex_);
  uint64_t n = 0;
  for (Table* t = tables_; t; t = t->next_) ++n;
  return n;
}

void Pool::enlist(std::weak_ptr<Holder> holder) {
  std::lock_guard lock(mutex_);
  std::erase_if(holders_, [](const auto& h) { return h.expired(); });
  holders_.push_back(std::move(holder));
}

std::vector<std::shared_ptr<Holder>> Pool::enlisted() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Holder>> holders;
  for (const auto& weak : holders_)
    if (auto holder = weak.lock()) holders.push_back(std::move(holder));
  return holders;
}

bool Pool::reclaim(uint64_t bytes) {
  const uint64_t freed = spill_ ? spill_->spill(bytes) : 0;
  return freed >= bytes || reclaim_from_holders(bytes - freed) || freed > 0;
}

bool Pool::reclaim_from_holders(uint64_t bytes) {
  const auto holders = enlisted();
  uint64_t freed = 0;
  for (const auto& holder : holders)
    if (freed < bytes) freed += holder->reclaim(bytes - freed, false).freed;
  // A page of several holders is free when each has given it up. One prefers what others have let go of, so
  // that they come to the same pages. Every round takes something from them, or is the last.
  for (bool progress = holders.size() > 1; progress && freed < bytes;) {
    progress = false;
    for (const auto& holder : holders) {
      if (freed >= bytes) break;
      const auto more = holder->reclaim(bytes - freed, true);
      freed += more.freed;
      progress |= more.freed || more.let_go;
    }
  }
  return freed > 0;
}

void Pool::audit() const {
  std::vector<std::vector<uint32_t>> others(groups_.size());
  {
    std::lock_guard lock(mutex_);
    for (size_t g = 0; g < groups_.size(); ++g) others[g].resize(groups_[g]->fresh);
  }
  for (const auto& holder : enlisted()) holder->count(others);
  std::lock_guard lock(mutex_);
  const auto fail = [](const std::string& what) { throw std::logic_error("audit: " + what); };
  for (size_t g = 0; g < groups_.size(); ++g)
    for (uint32_t page = 0; page < others[g].size(); ++page)
      if (kept(g, int32_t(page)) != others[g][page])
        fail("page " + std::to_string(page) + " of group " + std::to_string(g) + " counts " +
             std::to_string(kept(g, int32_t(page))) + " holders outside of page tables and has " +
             std::to_string(others[g][page]));
  uint64_t bytes = 0;
  std::unordered_map<const Checkpoints*, uint32_t> lists;
  for (const Table* t = tables_; t; t = t->next_) {
    const auto held = [&](size_t g, int32_t page) { ++others[g].at(size_t(page)); };
    StateList::for_each(t->states().live(), held);
    const Checkpoints* list = t->states().checkpoints();
    if (list && ++lists[list] == 1) StateList::for_each(list->states, held);
  }
  for (const auto& [list, n] : lists)
    if (list->holders.load() != n) fail("a list of checkpoints does not count its holders");
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    std::unordered_map<const int32_t*, uint32_t> block_holders;
    for (const Table* t = tables_; t; t = t->next_)
      for (const int32_t* block : t->group(g).blocks) ++block_holders[block];
    std::vector<uint32_t>& expected = others[g];
    for (const auto& [pages, n] : block_holders) {
      if (Block::of(const_cast<int32_t*>(pages))->holders.load() != n)
        fail("a block of group " + std::to_string(g) + " does not count its holders");
      for (uint32_t i = 0; i < kBlockPages; ++i) {
        if (pages[i] < 0) continue;
        if (uint32_t(pages[i]) >= group.fresh) fail("a table lists a page that was never taken");
        ++expected[pages[i]];
      }
    }
    std::vector<bool> free(group.fresh, false);
    for (int32_t page : group.free) {
      if (free[page]) fail("page " + std::to_string(page) + " is free twice");
      free[page] = true;
    }
    for (uint32_t page = 0; page < group.fresh; ++page) {
      const uint32_t counted = group.holders[page].load();
      if (counted != expected[page])
        fail("page " + std::to_string(page) + " of group " + std::to_string(g) + " counts " +
             std::to_string(counted) + " holders and has " + std::to_string(expected[page]));
      if (counted && (!spill_ || spill_->resident(g, int32_t(page)))) bytes += group.layout.page_bytes;
      if (free[page] != (counted == 0))
        fail("page " + std::to_string(page) +
             (free[page] ? " is free and held" : " is neither free nor held"));
    }
  }
  if (bytes != used_bytes())
    fail("the pages take " + std::to_string(bytes) + " bytes, " + std::to_string(used_bytes()) +
         " are reported");
  for (const Table* t = tables_; t; t = t->next_) t->audit();
  if (spill_) spill_->audit();
}

}  // namespace llamay::kv
