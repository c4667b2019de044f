#include "pages/states.hpp"

#include <algorithm>

namespace llamay::kv {
namespace {

void drop_states(Pool& pool, States& states, size_t begin, size_t end) {
  for (size_t g = 0; g < states.pages.size(); ++g) {
    auto& pages = states.pages[g];
    if (pages.empty()) continue;
    for (size_t i = begin; i < end; ++i) pool.drop(g, pages[i]);
    pages.erase(pages.begin() + std::ptrdiff_t(begin), pages.begin() + std::ptrdiff_t(end));
  }
  states.at.erase(states.at.begin() + std::ptrdiff_t(begin), states.at.begin() + std::ptrdiff_t(end));
}

template <class T>
void make_room(std::vector<T>& v) {
  if (v.size() == v.capacity()) v.reserve(2 * v.size() + 1);
}

void append(Pool& pool, States& states, uint32_t at, const States& from, size_t i) {
  // Allocations, which can fail, come before the first count.
  make_room(states.at);
  for (auto& pages : states.pages) make_room(pages);
  states.at.push_back(at);
  for (size_t g = 0; g < states.pages.size(); ++g) {
    if (from.pages[g].empty()) continue;
    pool.share(g, from.pages[g][i]);
    states.pages[g].push_back(from.pages[g][i]);
  }
}

}  // namespace

size_t States::find(uint32_t n) const {
  const auto found = std::lower_bound(at.begin(), at.end(), n);
  return found != at.end() && *found == n ? size_t(found - at.begin()) : at.size();
}

Ref<Checkpoints> Checkpoints::clone(size_t n) const {
  auto copy = Ref<Checkpoints>::adopt(new Checkpoints(pool));
  for (size_t i = 0; i < n; ++i) append(pool, copy->states, states.at[i], states, i);
  return copy;
}

void Checkpoints::add(uint32_t at, const States& from, size_t i) { append(pool, states, at, from, i); }

void Checkpoints::cut(size_t n) { drop_states(pool, states, n, states.size()); }

void Checkpoints::drop_front(size_t n) { drop_states(pool, states, 0, n); }

void Checkpoints::drop(size_t i) { drop_states(pool, states, i, i + 1); }

void StateList::share(const StateList& from, uint32_t n) {
  for (size_t i = 0; i < from.live_.size() && from.live_.at[i] <= n; ++i)
    append(pool_, live_, from.live_.at[i], from.live_, i);
  if (!from.checkpoints_) return;
  const auto& at = from.checkpoints_->states.at;
  const auto wanted = size_t(std::upper_bound(at.begin(), at.end(), n) - at.begin());
  if (wanted == at.size())
    checkpoints_ = from.checkpoints_;
  else if (wanted)
    checkpoints_ = from.checkpoints_->clone(wanted);
}

void StateList::push(uint32_t at, const std::vector<int32_t>& pages) {
  make_room(live_.at);
  for (auto& list : live_.pages) make_room(list);
  live_.at.push_back(at);
  for (size_t g = 0; g < pages.size(); ++g)
    if (pages[g] >= 0) live_.pages[g].push_back(pages[g]);
}

void StateList::settle_at(uint32_t n) {
  const auto& at = live_.at;
  const auto behind = size_t(std::upper_bound(at.begin(), at.end(), n) - at.begin());
  drop_states(pool_, live_, behind, live_.size());
  const auto before = size_t(std::lower_bound(at.begin(), at.end(), n) - at.begin());
  drop_states(pool_, live_, 0, before);
}

void StateList::add_checkpoint(size_t i) {
  const uint32_t at = live_.at[i];
  if (checkpoints_ && !checkpoints_->states.at.empty() && checkpoints_->states.at.back() >= at) return;
  exclusive().add(at, live_, i);
}

void StateList::mark(uint32_t n) {
  if (const size_t i = live_.find(n); i < live_.size()) add_checkpoint(i);
}

void StateList::go_back(uint32_t n) {
  States now(live_.pages.size());
  if (n) {
    const States& kept = checkpoints_->states;
    append(pool_, now, n, kept, kept.find(n));
  }
  if (checkpoints_) {
    const auto& at = checkpoints_->states.at;
    const auto wanted = size_t(std::upper_bound(at.begin(), at.end(), n) - at.begin());
    if (wanted == 0)
      checkpoints_ = {};
    else if (wanted < at.size())
      checkpoints_->unique() ? checkpoints_->cut(wanted) : void(checkpoints_ = checkpoints_->clone(wanted));
  }
  cut(0);
  live_ = std::move(now);
}

void StateList::forget_before(uint32_t n) {
  if (!checkpoints_) return;
  const auto& at = checkpoints_->states.at;
  const auto count = size_t(std::lower_bound(at.begin(), at.end(), n) - at.begin());
  if (count == at.size())
    checkpoints_ = {};
  else if (count)
    exclusive().drop_front(count);
}

void StateList::forget(uint32_t n) {
  exclusive().drop(checkpoints_->states.find(n));
  if (checkpoints_->states.size() == 0) checkpoints_ = {};
}

void StateList::thin(size_t most) {
  while (checkpoints_ && checkpoints_->states.size() > most) {
    const auto& at = exclusive().states.at;
    // hole / distance, compared without a division.
    const auto hole = [&](size_t i) { return uint64_t(at[i + 1] - (i ? at[i - 1] : 0)); };
    const auto distance = [&](size_t i) { return uint64_t(at.back() - at[i]); };
    size_t least = 0;
    for (size_t i = 1; i + 1 < at.size(); ++i)
      if (hole(i) * distance(least) < hole(least) * distance(i)) least = i;
    checkpoints_->drop(least);
  }
}

Checkpoints& StateList::exclusive() {
  if (!checkpoints_)
    checkpoints_ = Ref<Checkpoints>::adopt(new Checkpoints(pool_));
  else if (!checkpoints_->unique())
    checkpoints_ = checkpoints_->clone(checkpoints_->states.size());
  return *checkpoints_;
}

void StateList::cut(size_t n) { drop_states(pool_, live_, n, live_.size()); }

}  // namespace llamay::kv
