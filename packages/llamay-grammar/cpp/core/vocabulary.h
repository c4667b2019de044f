// The tokens of a model as bytes, and what is remembered about them for every automaton state that has been
// asked.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lang.h"
#include "trie.h"

namespace llamay::grammar {

// What the tokens below a node of the trie do to a lexeme in a given state. It depends on the automaton and
// the vocabulary alone, so grammars share it.
struct Entry {
  std::vector<uint32_t> dense;   // a bit mask of the tokens that stay inside the lexeme, or
  std::vector<uint32_t> sparse;  // their list
  struct Exit {
    uint32_t label = 0;  // of the word that ended
    Trie rest;           // what the tokens have after its end
  };
  std::vector<Exit> exits;

  // Of languages with one state, where only the length of a token matters: enough to derive the entry for any
  // limit.
  struct Measured {
    uint32_t token, length;
  };
  struct MeasuredExit {
    uint32_t token, length, offset;
  };
  std::vector<Measured> inside;  // sorted by length
  std::vector<MeasuredExit> ends;
  size_t memory() const;
};
using EntryPtr = std::shared_ptr<const Entry>;

// JsonString: until the closing quote. Plain: may end after any byte. Last: the same, and nothing can follow
// it.
enum class Lexeme : uint8_t { JsonString, Plain, Last };

struct EntryKey {
  uint64_t lang;
  uint32_t state, scan, min, max, node;
  Lexeme kind;
  bool operator==(const EntryKey&) const = default;
};

class Vocabulary {
 public:
  // `offsets` has size + 1 entries. Special tokens have no bytes that could match.
  Vocabulary(std::string bytes, std::vector<uint64_t> offsets, const std::vector<uint32_t>& special,
             std::vector<uint32_t> end_tokens);

  uint32_t size() const { return static_cast<uint32_t>(offsets_.size() - 1); }
  uint32_t words() const { return (size() + 31) / 32; }
  std::string_view bytes(uint32_t token) const {
    return std::string_view(bytes_).substr(offsets_[token], offsets_[token + 1] - offsets_[token]);
  }
  bool is_special(uint32_t token) const { return special_[token]; }
  const std::vector<uint32_t>& end_tokens() const { return end_tokens_; }
  const Trie& trie() const { return trie_; }
  uint32_t longest() const { return longest_; }
  const std::string& digest() const { return digest_; }
  void set_digest(std::string d) { digest_ = std::move(d); }

  // The entry for a state of a lexeme below a node of the trie, made on first use. min and max are the code
  // points that are still needed and still allowed.
  EntryPtr entry(Lexeme kind, const Lang& lang, uint32_t state, uint32_t scan, uint32_t min, uint32_t max,
                 uint32_t node) const;
  size_t cache_bytes() const { return cache_bytes_.load(); }
  size_t cache_limit = size_t{256} << 20;

 private:
  EntryPtr make(const EntryKey& key, const Lang& lang) const;
  EntryPtr derive(const Entry& base, uint32_t min, uint32_t max) const;

  std::string bytes_;
  std::vector<uint64_t> offsets_;
  std::vector<bool> special_;
  std::vector<uint32_t> end_tokens_;
  Trie trie_;
  uint32_t longest_ = 0;
  std::string digest_;

  struct Hash {
    size_t operator()(const EntryKey& k) const {
      uint64_t h = k.lang * 0x9E3779B97F4A7C15ull;
      for (uint64_t x : {uint64_t{k.state} << 32 | k.scan, uint64_t{k.min} << 32 | k.max,
                         uint64_t{k.node} << 2 | static_cast<uint64_t>(k.kind)})
        h = (h ^ x) * 0xD6E8FEB86659FD93ull, h ^= h >> 29;
      return h;
    }
  };
  mutable std::shared_mutex lock_;
  mutable std::unordered_map<EntryKey, EntryPtr, Hash> cache_;
  mutable std::atomic<size_t> cache_bytes_{0};
};

}  // namespace llamay::grammar
