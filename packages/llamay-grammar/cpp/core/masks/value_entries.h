// What tokens do to a whole value of JSON, remembered for the values of a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "support/hash.h"
#include "tokens/trie.h"

namespace llamay::grammar {

// The tokens of a trie that are read behind a name, from its colon on. What they do as long as they are
// inside the value depends on the value alone, not on the object that it is in.
struct ValueEntry {
  std::vector<uint32_t> inside;      // tokens that end at the colon, in the value or with it
  Trie rest;                         // what the others have behind the end of the value
  std::shared_ptr<const Trie> trie;  // kept, so that no other one gets its address
};
using ValueEntryPtr = std::shared_ptr<const ValueEntry>;

// Of one grammar, for all matchers that read it.
class ValueEntries {
 public:
  ValueEntries() = default;
  ValueEntries(const ValueEntries&) = delete;
  ValueEntries& operator=(const ValueEntries&) = delete;
  // Null when there is none. `node` is the value's.
  ValueEntryPtr find(const Trie* trie, uint32_t node) const;
  ValueEntryPtr add(uint32_t node, ValueEntryPtr entry);

 private:
  // Few grammars have more kinds of values that undeclared names can have, times states to be in at such a
  // name.
  static constexpr size_t kMost = 128;
  using Key = std::pair<const Trie*, uint32_t>;
  struct Hash {
    size_t operator()(const Key& k) const { return hash_mix(reinterpret_cast<uintptr_t>(k.first), k.second); }
  };
  mutable std::shared_mutex lock_;
  std::unordered_map<Key, ValueEntryPtr, Hash> entries_;
};

}  // namespace llamay::grammar
