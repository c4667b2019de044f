#include "masks/value_entries.h"

#include <mutex>

namespace llamay::grammar {

ValueEntryPtr ValueEntries::find(const Trie* trie, uint32_t node) const {
  std::shared_lock<std::shared_mutex> hold(lock_);
  auto it = entries_.find({trie, node});
  return it == entries_.end() ? nullptr : it->second;
}

ValueEntryPtr ValueEntries::add(uint32_t node, ValueEntryPtr entry) {
  std::unique_lock<std::shared_mutex> hold(lock_);
  if (entries_.size() >= kMost) entries_.clear();
  const Key key{entry->trie.get(), node};
  return entries_.emplace(key, std::move(entry)).first->second;
}

}  // namespace llamay::grammar
