#include "pages/table.hpp"

#include <algorithm>

namespace llamay::kv {
namespace {

int32_t* new_block() {
  auto* block = new Block;
  std::fill_n(block->pages, kBlockPages, kDropped);
  return block->pages;
}

/// A new block with the first n page numbers of another.
int32_t* clone_block(Pool& pool, size_t g, const int32_t* from, uint32_t n) {
  int32_t* copy = new_block();
  for (uint32_t i = 0; i < n; ++i) {
    if (from[i] >= 0) pool.share(g, from[i]);
    copy[i] = from[i];
  }
  return copy;
}

void release_block(Pool& pool, size_t g, int32_t* pages) {
  Block* block = Block::of(pages);
  if (block->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  for (int32_t page : block->pages)
    if (page >= 0) pool.drop(g, page);
  delete block;
}

}  // namespace

Table::Table(std::shared_ptr<Pool> pool)
    : pool_(std::move(pool)), groups_(pool_->n_groups()), states_(*pool_), id_(pool_->tick()), used_(id_) {
  pool_->link(this);
}

Table::~Table() {
  pool_->unlink(this);
  for (size_t g = 0; g < groups_.size(); ++g)
    for (int32_t* block : groups_[g].blocks) release_block(*pool_, g, block);
}

Ref<Table> Table::clone(uint32_t n_pages, uint32_t n_tokens) const {
  auto copy = Ref<Table>::adopt(new Table(pool_));
  copy->set_cold(cold());
  copy->used_.store(used(), std::memory_order_relaxed);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& from = groups_[g];
    Group& to = copy->groups_[g];
    const uint32_t n = std::min(n_pages, from.n_pages);
    to.n_pages = n;
    if (pool_->layout(g).recurrent()) continue;
    const size_t n_blocks = (n + kBlockPages - 1) / kBlockPages;
    to.blocks.reserve(n_blocks);
    for (size_t b = 0; b < n_blocks; ++b) {
      const uint32_t used = std::min<uint32_t>(kBlockPages, from.n_pages - uint32_t(b) * kBlockPages);
      const uint32_t wanted = std::min<uint32_t>(kBlockPages, n - uint32_t(b) * kBlockPages);
      if (wanted == used) {
        Block::of(from.blocks[b])->holders.fetch_add(1, std::memory_order_relaxed);
        to.blocks.push_back(from.blocks[b]);
      } else {
        to.blocks.push_back(clone_block(*pool_, g, from.blocks[b], wanted));
      }
    }
    to.first = std::min(from.first, n * pool_->page_tokens());
  }
  copy->states_.share(states_, n_tokens);
  return copy;
}

int32_t* Table::exclusive_block(size_t g, size_t b) {
  Group& group = groups_[g];
  int32_t*& block = group.blocks[b];
  if (Block::of(block)->holders.load(std::memory_order_acquire) != 1) {
    int32_t* copy = clone_block(*pool_, g, block, kBlockPages);
    release_block(*pool_, g, block);
    block = copy;
  }
  return block;
}

void Table::push(size_t g, int32_t page) {
  Group& group = groups_[g];
  if (pool_->layout(g).recurrent()) {
    ++group.n_pages;
    return;
  }
  const uint32_t slot = group.n_pages % kBlockPages;
  if (slot == 0) {
    group.blocks.push_back(nullptr);
    try {
      group.blocks.back() = new_block();
    } catch (...) {
      group.blocks.pop_back();
      throw;
    }
  }
  exclusive_block(g, group.blocks.size() - 1)[slot] = page;
  ++group.n_pages;
}

void Table::replace(size_t g, uint32_t i, int32_t page) {
  int32_t& place = exclusive_block(g, i / kBlockPages)[i % kBlockPages];
  pool_->drop(g, std::exchange(place, page));
}

void Table::shrink(uint32_t n_pages) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (n_pages >= group.n_pages) continue;
    if (pool_->layout(g).recurrent()) {
      group.n_pages = n_pages;
      continue;
    }
    const size_t n_blocks = (n_pages + kBlockPages - 1) / kBlockPages;
    // Own the block that stays in part before anything is dropped: it is the only step that can fail.
    const uint32_t slot = n_pages % kBlockPages;
    int32_t* last = slot ? exclusive_block(g, n_blocks - 1) : nullptr;
    for (size_t b = n_blocks; b < group.blocks.size(); ++b) release_block(*pool_, g, group.blocks[b]);
    group.blocks.resize(n_blocks);
    for (uint32_t i = slot; last && i < kBlockPages; ++i)
      if (last[i] >= 0) pool_->drop(g, std::exchange(last[i], kDropped));
    group.n_pages = n_pages;
    group.first = std::min(group.first, n_pages * pool_->page_tokens());
  }
}

void Table::drop_front(size_t g, uint32_t n) {
  Group& group = groups_[g];
  for (uint32_t i = n_dropped(g); i < n; ++i) {
    int32_t& place = exclusive_block(g, i / kBlockPages)[i % kBlockPages];
    pool_->drop(g, std::exchange(place, kDropped));
    group.first = (i + 1) * pool_->page_tokens();
  }
}

void Table::audit() const {
  const auto check = [](bool good, const char* what) {
    if (!good) throw std::logic_error(std::string("audit: ") + what);
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    check(group.n_pages == groups_[0].n_pages, "groups differ in their number of pages");
    if (pool_->layout(g).recurrent()) {
      check(group.blocks.empty(), "a recurrent group has a block");
      check(states_.live().pages[g].size() == states_.live().size(), "a state lacks a group");
      continue;
    }
    check(group.blocks.size() == (group.n_pages + kBlockPages - 1) / kBlockPages,
          "a table has a block too many");
    for (uint32_t i = 0; i < group.blocks.size() * kBlockPages; ++i) {
      const bool listed = i >= n_dropped(g) && i < group.n_pages;
      check((group.blocks[i / kBlockPages][i % kBlockPages] >= 0) == listed,
            "a table lists a page that it should not");
    }
  }
}

}  // namespace llamay::kv
