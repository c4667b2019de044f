#include <algorithm>
#include <limits>

#include "contexts/context.hpp"

namespace llamay::kv {

/// The positions, counted after the committed ones, at which the next n tokens leave a state.
std::vector<uint32_t> Context::states_to_write(uint32_t n,
                                               std::optional<std::span<const uint32_t>> wanted) const {
  std::vector<uint32_t> at;
  if (!pool_->has_states()) {
    if (wanted && !wanted->empty())
      throw std::invalid_argument("states are for layouts with recurrent groups, and this one has none");
    return at;
  }
  if (n == 0) return at;
  for (const uint32_t after : wanted.value_or(std::span<const uint32_t>())) {
    if (after == 0 || after > n)
      throw std::invalid_argument("states: " + std::to_string(after) + " is not from 1 to the " +
                                  std::to_string(n) + " reserved tokens");
    at.push_back(n_tokens_ + after);
  }
  at.push_back(n_tokens_ + n);
  for (size_t g = 0; g < pool_->n_groups() && !wanted; ++g)
    if (const uint64_t stride = pool_->layout(g).spec.stride)
      for (uint64_t p = (n_tokens_ / stride + 1) * stride; p < uint64_t(n_tokens_) + n; p += stride)
        at.push_back(uint32_t(p));
  std::sort(at.begin(), at.end());
  at.erase(std::unique(at.begin(), at.end()), at.end());
  return at;
}

Lease Context::open_lease(const std::shared_ptr<Context>& self, uint32_t n, std::span<const uint32_t> first,
                          std::optional<std::span<const uint32_t>> states) {
  std::lock_guard lock(mutex_);
  const Gate gate(*pool_);
  enter_exclusive();
  if (n > std::numeric_limits<int32_t>::max() - n_tokens_)
    throw std::invalid_argument("cannot reserve " + std::to_string(n) + " tokens after " +
                                std::to_string(n_tokens_) + ": a context holds at most 2147483647");
  const std::vector<uint32_t> at = states_to_write(n, states);
  if (!first.empty()) start_at(first, n);
  try {
    make_writable(n_tokens_, n_tokens_ + n, kAllGroups, at);
  } catch (...) {
    trim();
    throw;
  }
  lease_ = ++leases_;
  lease_thread_ = std::this_thread::get_id();
  if (pool_->spill()) table_->pin();
  return Lease(self, lease_, n_tokens_, n);
}

Lease reserve(const std::shared_ptr<Context>& context, uint32_t n, std::span<const uint32_t> first,
              std::optional<std::span<const uint32_t>> states) {
  const Context::Pin pin = context->pin_resident();
  return with_reclaim(*context->pool(), [&] { return context->open_lease(context, n, first, states); });
}

void Lease::enter() const {
  if (!context_->table_) throw ClosedError("the context of this lease is closed");
  if (context_->lease_ != number_) throw ClosedError("the lease has ended");
  context_->enter();
}

bool Lease::open() const {
  if (!context_) return false;
  std::lock_guard lock(context_->mutex_);
  return context_->lease_ == number_;
}

std::unique_ptr<Export> Lease::view() const {
  std::lock_guard lock(context_->mutex_);
  const Gate gate(*context_->pool_);
  enter();
  return std::make_unique<Export>(context_->table_, begin_, n_);
}

bool Lease::written(uint32_t at) const {
  return all_written_ || std::find(written_.begin(), written_.end(), at) != written_.end();
}

std::vector<uint32_t> Lease::states() const {
  std::lock_guard lock(context_->mutex_);
  enter();
  std::vector<uint32_t> after;
  for (const uint32_t at : context_->table_->states().live().at)
    if (at > begin_) after.push_back(at - begin_);
  return after;
}

void Lease::commit(std::span<const int32_t> ids, bool checkpoints) {
  Context& c = *context_;
  std::lock_guard lock(c.mutex_);
  const Gate gate(*c.pool_);
  enter();
  if (ids.size() > n_)
    throw std::invalid_argument("cannot commit " + std::to_string(ids.size()) +
                                " tokens: " + std::to_string(n_) + " are reserved");
  const uint32_t end = begin_ + uint32_t(ids.size());
  const HeldRows rows = RowTable::process().hold(ids);
  if (c.pool_->has_states() && !ids.empty()) require_states(end, checkpoints);
  if (!ids.empty()) {
    if (!c.tokens_->unique()) c.tokens_ = c.tokens_->clone(begin_);
    c.tokens_->append(ids.data(), uint32_t(ids.size()));
    c.n_tokens_ = end;
    c.side_.reset();
  }
  c.end_lease([&](uint32_t at) { return c.on_stride(at) || (checkpoints && at > begin_ && at < end); });
  c.drop_behind_windows();
}

void Lease::require_states(uint32_t end, bool checkpoints) const {
  const States& states = context_->table_->states().live();
  if (states.find(end) == states.size()) {
    std::string there;
    for (const uint32_t at : states.at)
      if (at > begin_) there += (there.empty() ? "" : ", ") + std::to_string(at - begin_);
    throw std::invalid_argument("cannot commit " + std::to_string(end - begin_) +
                                " tokens: recurrent groups have a state after " + there +
                                " of the reserved ones only; list others in `states` when reserving");
  }
  for (const uint32_t at : states.at) {
    const bool stays = at > begin_ && (at == end || (at < end && (checkpoints || context_->on_stride(at))));
    if (stays && !written(at))
      throw std::invalid_argument("the recurrent state after " + std::to_string(at - begin_) +
                                  " of the reserved tokens was not written");
  }
}

void Lease::release() noexcept {
  if (!context_) return;
  std::lock_guard lock(context_->mutex_);
  Context& c = *context_;
  const Gate gate(*c.pool_);
  if (!c.table_ || c.lease_ != number_) return;
  try {
    c.end_lease([](uint32_t) { return false; });
  } catch (const std::bad_alloc&) {
    // The spare pages stay listed; the next commit trims them.
  }
}

}  // namespace llamay::kv
