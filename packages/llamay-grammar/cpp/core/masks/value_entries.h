// A cache of the tokens that the JSON values of a grammar read.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "support/hash.h"
#include "tokens/trie.h"

namespace llamay::grammar {

// The tokens of a trie that are read after a name, from the colon on. Up to the end of the value, the set of
// tokens depends on the value alone and not on the object around the value.
struct ValueEntry {
  std::vector<uint32_t> inside;      // tokens that end at the colon, in the value or with it
  Trie rest;                         // the bytes that the other tokens have behind the end of the value
  std::shared_ptr<const Trie> trie;  // kept alive, so that no other trie gets its address
};
using ValueEntryPtr = std::shared_ptr<const ValueEntry>;

// The cache of one grammar, shared by its matchers.
class ValueEntries {
 public:
  ValueEntries() = default;
  ValueEntries(const ValueEntries&) = delete;
  ValueEntries& operator=(const ValueEntries&) = delete;
  // The entry of the value at `node`, null without one.
  ValueEntryPtr find(const Trie* trie, uint32_t node) const;
  ValueEntryPtr add(uint32_t node, ValueEntryPtr entry);

 private:
  // Few grammars have more pairs of a kind of value for undeclared names and a state at such a name.
  static constexpr size_t kMost = 128;
  using Key = std::pair<const Trie*, uint32_t>;
  struct Hash {
    size_t operator()(const Key& k) const { return hash_mix(reinterpret_cast<uintptr_t>(k.first), k.second); }
  };
  mutable std::shared_mutex lock_;
  std::unordered_map<Key, ValueEntryPtr, Hash> entries_;
};

}  // namespace llamay::grammar
