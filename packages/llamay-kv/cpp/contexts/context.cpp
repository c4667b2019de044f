#include "contexts/context.hpp"

#include <algorithm>

#include "pages/copy.hpp"

namespace llamay::kv {

Context::Context(std::shared_ptr<Pool> pool)
    : pool_(std::move(pool)),
      table_(Ref<Table>::adopt(new Table(pool_))),
      tokens_(Ref<Tokens>::adopt(new Tokens)) {}

Context::Context(Private, std::shared_ptr<Pool> pool, Ref<Table> table, Ref<Tokens> tokens, uint32_t n_tokens,
                 std::shared_ptr<const SideStates> side)
    : pool_(std::move(pool)),
      table_(std::move(table)),
      tokens_(std::move(tokens)),
      side_(std::move(side)),
      n_tokens_(n_tokens) {}

std::shared_ptr<Context> Context::adopt(std::shared_ptr<Pool> pool, Ref<Table> table, Ref<Tokens> tokens,
                                        uint32_t n_tokens) {
  return std::make_shared<Context>(Private{}, std::move(pool), std::move(table), std::move(tokens), n_tokens,
                                   nullptr);
}

void Context::enter() const {
  if (!table_) throw ClosedError("the context is closed");
  if (lease_ && lease_thread_ != std::this_thread::get_id())
    throw ContextBusyError(
        "the context is leased to another thread; fork before the lease begins, or wait for its commit");
}

void Context::enter_exclusive() const {
  enter();
  if (lease_) throw ContextBusyError("the context has an open lease; commit or release it first");
}

void Context::throw_range(uint32_t begin, uint32_t end, uint32_t n) {
  throw std::invalid_argument("positions [" + std::to_string(begin) + ", " + std::to_string(end) +
                              ") are not within the " + std::to_string(n) + " tokens of the context");
}

uint32_t Context::size() const {
  std::lock_guard lock(mutex_);
  return n_tokens_;
}

bool Context::closed() const {
  std::lock_guard lock(mutex_);
  return !table_;
}

bool Context::leased() const {
  std::lock_guard lock(mutex_);
  return lease_ != 0;
}

Context::Pin::~Pin() {
  if (!context_) return;
  std::lock_guard lock(context_->mutex_);
  // If another table came in its place, `replace_table` has released ours, which a fork may still list.
  if (!context_->table_ || context_->table_->id() != table_) return;
  context_->table_->unpin();
  --context_->resident_pins_;
}

Context::Pin Context::pin_resident() const {
  while (pool_->spill()) {
    Ref<Table> table;
    {
      std::lock_guard lock(mutex_);
      const Gate gate(*pool_);
      enter();
      if (!table_->cold()) {
        table_->pin();
        ++resident_pins_;
        return Pin(*this, *table_);
      }
      table = table_;
    }
    // No lock is held here: a thread that writes to the file may wait for one that waits for this context.
    try {
      pool_->spill()->thaw(table);
    } catch (const PagesLostError& e) {
      std::lock_guard lock(mutex_);
      if (table_.get() == table.get()) const_cast<Context*>(this)->release_everything();
      throw PagesLostError(std::string(e.what()) + "; the context needs it and was closed");
    }
    std::lock_guard lock(mutex_);
    if (table_.get() == table.get()) {
      ++resident_pins_;
      return Pin(*this, *table_);
    }
    table->unpin();
  }
  return Pin();
}

std::shared_ptr<Context> Context::fork() const {
  std::lock_guard lock(mutex_);
  const Gate gate(*pool_);
  enter();
  // The holder of the lease writes to pages that this table lists: the fork gets one without them.
  auto fork = std::make_shared<Context>(Private{}, pool_,
                                        lease_ ? table_->clone(pages_for(n_tokens_), n_tokens_) : table_,
                                        tokens_, n_tokens_, side_);
  fork->labels_ = labels_;
  return fork;
}

void Context::make_writable(uint32_t begin, uint32_t end, size_t only, std::span<const uint32_t> states) {
  if (begin == end) return;
  const uint32_t P = pool_->page_tokens();
  const uint32_t first = begin / P, last = pages_for(end), have = table_->n_pages();
  const size_t n_groups = pool_->n_groups();

  // Count first, take everything at once, and only then change anything.
  uint32_t few[8];
  std::vector<uint32_t> many;
  uint32_t* need = few;
  if (n_groups > std::size(few)) {
    many.resize(n_groups);
    need = many.data();
  }
  bool any = false;
  for (size_t g = 0; g < n_groups; ++g) {
    if (pool_->layout(g).recurrent()) {
      need[g] = uint32_t(states.size());
      any |= need[g] != 0;
      continue;
    }
    need[g] = last > have ? last - std::min(last, std::max(have, table_->n_dropped(g))) : 0;
    if (only != kAllGroups && only != g) continue;
    for (uint32_t i = first; i < std::min(last, have); ++i) need[g] += !table_->owns(g, i);
    any |= need[g] != 0;
  }
  if (!any) return;
  ReservedPages taken(*pool_, {need, n_groups});

  if (!table_->unique()) replace_table(table_->clone(have));
  for (size_t g = 0; g < n_groups; ++g)
    for (uint32_t i = first; i < std::min(last, have); ++i) {
      if ((only != kAllGroups && only != g) || pool_->layout(g).recurrent() || table_->owns(g, i)) continue;
      // The only place where a page is cloned. Only slots that hold tokens: a lease may be writing the
      // others.
      const uint32_t used = std::min(P, n_tokens_ - std::min(n_tokens_, i * P));
      pool_->copy_slots(g, table_->page(g, i), taken.next(g), used);
      table_->replace(g, i, taken.next(g));
      taken.pop(g);
    }
  for (uint32_t i = have; i < last; ++i)
    for (size_t g = 0; g < n_groups; ++g) {
      if (pool_->layout(g).recurrent() || i < table_->n_dropped(g)) {
        table_->push(g, kDropped);
        continue;
      }
      table_->push(g, taken.next(g));
      taken.pop(g);
    }
  for (const uint32_t at : states) {
    std::vector<int32_t> pages(n_groups, kDropped);
    for (size_t g = 0; g < n_groups; ++g)
      if (pool_->layout(g).recurrent()) pages[g] = taken.next(g);
    table_->states().push(at, pages);
    for (size_t g = 0; g < n_groups; ++g)
      if (pages[g] >= 0) taken.pop(g);
  }
}

bool Context::on_stride(uint32_t n) const {
  for (size_t g = 0; g < pool_->n_groups(); ++g) {
    const uint32_t stride = pool_->layout(g).spec.stride;
    if (n && stride && n % stride == 0) return true;
  }
  return false;
}

void Context::require_present(uint32_t begin, uint32_t end, size_t only) const {
  if (begin == end) return;
  for (size_t g = 0; g < pool_->n_groups(); ++g) {
    if (only != kAllGroups && only != g) continue;
    const uint32_t first = table_->group(g).first;
    if (only == g && pool_->layout(g).recurrent())
      throw std::invalid_argument("group " + std::to_string(g) +
                                  " is recurrent: it has states and no positions");
    if (begin < first)
      throw std::invalid_argument("positions before " + std::to_string(first) +
                                  " were dropped: they lie behind the window of group " + std::to_string(g));
  }
}

/// Back to exactly the pages that hold tokens.
void Context::trim() {
  const uint32_t n = pages_for(n_tokens_);
  bool stale = table_->n_pages() != n;
  for (size_t g = 0; g < pool_->n_groups(); ++g) stale |= n == 0 && table_->group(g).first;
  if (!stale) return;
  if (n && table_->unique())
    table_->shrink(n);
  else
    replace_table(table_->clone(n));  // a view or a fork may still use the others
}

void Context::drop_behind_windows() {
  for (size_t g = 0; g < pool_->n_groups(); ++g) {
    const uint32_t n = pool_->layout(g).first_needed(n_tokens_) / pool_->page_tokens();
    if (n <= table_->n_dropped(g)) continue;
    if (!table_->unique()) replace_table(table_->clone(table_->n_pages()));
    table_->drop_front(g, n);
  }
}

/// Before the first tokens of an empty context: positions behind a window need no page.
void Context::start_at(std::span<const uint32_t> first, uint32_t n) {
  if (n_tokens_) throw std::invalid_argument("first is for a context without tokens");
  if (first.size() != pool_->n_groups())
    throw std::invalid_argument("first needs a position for each of the " +
                                std::to_string(pool_->n_groups()) + " groups");
  for (size_t g = 0; g < first.size(); ++g)
    if (first[g] > pool_->layout(g).first_needed(n))
      throw std::invalid_argument("group " + std::to_string(g) + " of a context of " + std::to_string(n) +
                                  " tokens needs position " +
                                  std::to_string(pool_->layout(g).first_needed(n)));
  if (!table_->unique()) replace_table(table_->clone(0));
  for (size_t g = 0; g < first.size(); ++g) table_->start_at(g, first[g]);
}

void Context::require_state(uint32_t n) const {
  const Checkpoints* list = table_->states().checkpoints();
  if (n == 0 || (list && list->states.find(n) < list->states.size())) return;
  std::string nearest;
  const std::vector<uint32_t> none, &at = list ? list->states.at : none;
  const auto behind = std::lower_bound(at.begin(), at.end(), n);
  if (behind != at.begin()) nearest = std::to_string(*std::prev(behind));
  if (behind != at.end()) nearest += (nearest.empty() ? "" : " and ") + std::to_string(*behind);
  throw std::invalid_argument(
      "cannot truncate to " + std::to_string(n) + " tokens: recurrent layers have no state there; " +
      (nearest.empty() ? "there are no checkpoints but 0" : "the nearest checkpoints are at " + nearest) +
      "; take one with checkpoint(), or fork");
}

std::vector<uint32_t> Context::checkpoints() const {
  std::lock_guard lock(mutex_);
  const Gate gate(*pool_);
  enter();
  const Checkpoints* list = table_->states().checkpoints();
  std::vector<uint32_t> at = list ? list->states.at : std::vector<uint32_t>();
  return at;
}

void Context::checkpoint() {
  std::lock_guard lock(mutex_);
  const Gate gate(*pool_);
  enter_exclusive();
  if (!pool_->has_states() || n_tokens_ == 0) return;
  if (!table_->unique()) replace_table(table_->clone(table_->n_pages()));
  table_->states().mark(n_tokens_);
  table_->states().thin(pool_->most_checkpoints());
}

void Context::forget_checkpoint(uint32_t n) {
  std::lock_guard lock(mutex_);
  const Gate gate(*pool_);
  enter_exclusive();
  const Checkpoints* list = table_->states().checkpoints();
  if (!list || list->states.find(n) == list->states.size())
    throw std::invalid_argument("there is no checkpoint at " + std::to_string(n) + " tokens");
  if (!table_->unique()) replace_table(table_->clone(table_->n_pages()));
  table_->states().forget(n);
}

void Context::forget_checkpoints(uint32_t n) {
  std::lock_guard lock(mutex_);
  const Gate gate(*pool_);
  enter_exclusive();
  if (!table_->states().checkpoints()) return;
  if (!table_->unique()) replace_table(table_->clone(table_->n_pages()));
  table_->states().forget_before(n);
}

/// Whether every window group still has the positions that a context of n tokens needs.
bool Context::windows_reach(uint32_t n) const {
  if (n == 0) return true;
  for (size_t g = 0; g < pool_->n_groups(); ++g)
    if (pool_->layout(g).first_needed(n) < table_->group(g).first) return false;
  return true;
}

uint32_t Context::nearest(uint32_t n) const {
  std::lock_guard lock(mutex_);
  const Gate gate(*pool_);
  enter();
  if (n >= n_tokens_) return n_tokens_;
  if (!pool_->has_states()) return windows_reach(n) ? n : 0;
  if (const Checkpoints* list = table_->states().checkpoints()) {
    const auto& at = list->states.at;
    const auto behind = std::upper_bound(at.begin(), at.end(), n);
    // A shorter context looks further back: where the longest one cannot be had, none can.
    if (behind != at.begin() && windows_reach(*std::prev(behind))) return *std::prev(behind);
  }
  return 0;
}

void Context::truncate(uint32_t n) {
  std::lock_guard lock(mutex_);
  const Gate gate(*pool_);
  enter_exclusive();
  if (n > n_tokens_)
    throw std::invalid_argument("cannot truncate to " + std::to_string(n) + " tokens: the context has " +
                                std::to_string(n_tokens_));
  if (n == n_tokens_) return;
  for (size_t g = 0; g < pool_->n_groups() && !windows_reach(n); ++g) {
    const uint32_t begin = table_->group(g).first;
    const uint32_t needed = pool_->layout(g).first_needed(n);
    if (needed < begin)
      throw std::invalid_argument("cannot truncate to " + std::to_string(n) + " tokens: position " +
                                  std::to_string(needed) +
                                  " was dropped, for it lies behind the window of group " +
                                  std::to_string(g) + "; truncate a fork that was made earlier");
  }
  if (pool_->has_states()) {
    require_state(n);
    if (!table_->unique()) replace_table(table_->clone(table_->n_pages()));
    table_->states().go_back(n);
  }
  if (!tokens_->unique()) tokens_ = tokens_->clone(n);
  tokens_->truncate(n);
  n_tokens_ = n;
  side_.reset();
  trim();
}

void Context::release_everything() {
  replace_table({});
  tokens_ = {};
  side_.reset();
  n_tokens_ = 0;
  lease_ = 0;
}

void Context::retain() {
  std::lock_guard lock(mutex_);
  enter();
  ++owners_;
}

void Context::close() {
  std::lock_guard lock(mutex_);
  if (!table_) return;
  if (lease_) enter();
  if (--owners_) return;
  const Gate gate(*pool_);
  if (lease_ && pool_->spill()) table_->unpin();
  release_everything();
}

std::vector<int32_t> Context::tokens(uint32_t begin, uint32_t end) const {
  std::lock_guard lock(mutex_);
  enter();
  if (begin > end || end > n_tokens_) throw_range(begin, end, n_tokens_);
  std::vector<int32_t> ids(end - begin);
  tokens_->copy(begin, end, ids.data());
  return ids;
}

std::unique_ptr<Export> Context::view() const {
  for (;;) {
    const Pin pin = pin_resident();
    std::lock_guard lock(mutex_);
    const Gate gate(*pool_);
    enter();
    if (table_->cold()) continue;  // it was changed and spilled since
    return std::make_unique<Export>(table_, n_tokens_, 0);
  }
}

Context::Peek Context::peek() const {
  std::lock_guard lock(mutex_);
  enter();
  return {table_, n_tokens_};
}

std::shared_ptr<const Labels> Context::labels() const {
  std::lock_guard lock(mutex_);
  return labels_;
}

void Context::set_labels(std::shared_ptr<const Labels> labels) {
  std::lock_guard lock(mutex_);
  enter();
  if (labels_ && !labels_->marking.empty() && (!labels || labels->marking != labels_->marking))
    throw std::invalid_argument("the context is marked '" + labels_->marking + "', and a marking stays");
  labels_ = std::move(labels);
}

std::shared_ptr<const SideStates> Context::side() const {
  std::lock_guard lock(mutex_);
  return side_;
}

void Context::set_side(std::shared_ptr<const SideStates> side) {
  std::lock_guard lock(mutex_);
  enter_exclusive();
  side_ = std::move(side);
}

}  // namespace llamay::kv
