// The tokens of a model as bytes, and a cache of the tokens that a lexeme reads in each state of its
// automaton.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "automata/language.h"
#include "support/hash.h"
#include "tokens/groups.h"
#include "vocabulary/group_kinds.h"

namespace llamay::grammar {

// An entry tells how each token below a node of the trie continues a lexeme in a given state. The entry
// depends on the automaton and the vocabulary only, so different grammars share it.
struct Entry {
  std::vector<uint32_t> dense;   // a bit mask of the tokens that stay inside the lexeme, or
  std::vector<uint32_t> sparse;  // their list
  struct Exit {
    uint32_t label = 0;                // of the word that ended
    std::shared_ptr<const Trie> rest;  // the bytes that the tokens have behind the end
  };
  std::vector<Exit> exits;
  // A token in which a word ends, and the bytes that it has behind the end.
  struct End {
    uint32_t label, token;
    std::string_view rest;
  };
  // Makes a trie for each label.
  void add_exits(std::vector<End> ends);
  // In an entry without a limit of lengths: the least limit, in code points, that would change nothing.
  uint64_t needs = 0;
  size_t memory() const;
};
using EntryPtr = std::shared_ptr<const Entry>;

// The kinds of lexemes. JsonString: a string up to the closing quote. JsonCanonical: as JsonString, with one
// spelling of every character. Plain: the lexeme may end after any byte. Member: as Plain, followed only by
// bytes that can follow a number in an array or object. Last: as Plain, followed by nothing.
enum class Lexeme : uint8_t { JsonString, JsonCanonical, Plain, Member, Last };

inline bool follows_member(uint8_t b) {
  return b == ' ' || b == '\n' || b == '\t' || b == '\r' || b == ',' || b == ']' || b == '}';
}

inline bool is_json(Lexeme kind) { return kind <= Lexeme::JsonCanonical; }

// The tries of a vocabulary. Between two symbols of JSON, whitespace changes only the amount of further
// whitespace, so a second trie has the tokens without their leading whitespace.
enum class TrieId : uint8_t {
  All,
  Symbols,  // texts that begin with a symbol of JSON, behind at most kMaxLead characters of whitespace
};

struct EntryKey {
  uint64_t language;
  uint32_t state, scan, min, max, node;
  Lexeme kind;
  TrieId trie;
  bool operator==(const EntryKey&) const = default;
};

// Below this many nodes of a trie reading the bytes is cheaper than looking an entry up.
constexpr uint32_t kSmallSubtree = 24;

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
  const Trie& trie(TrieId which) const { return which == TrieId::All ? trie_ : symbols_; }
  // Tokens that consist of whitespace, shortest first; the number of such tokens with at most `length` bytes;
  // and tokens with more leading whitespace than the trie of symbols holds (indented).
  const std::vector<uint32_t>& blanks() const { return blanks_; }
  size_t n_blanks(size_t length) const {
    return n_blanks_.empty() ? 0 : n_blanks_[std::min(length, n_blanks_.size() - 1)];
  }
  // Returns a mask of the blank tokens of at most `length` bytes, or null if there are few blank tokens or no
  // mask for this length.
  const uint32_t* blank_mask(size_t length) const {
    return (length + 1) * words() <= blank_masks_.size() ? blank_masks_.data() + length * words() : nullptr;
  }
  const Trie& indented() const { return indented_; }
  uint32_t longest_lead() const { return longest_lead_; }  // whitespace in front of tokens of `symbols`
  uint32_t longest() const { return longest_; }
  const std::string& digest() const { return digest_; }
  void set_digest(std::string d) { digest_ = std::move(d); }

  // Returns the text of a token in one of the tries.
  std::string_view text(TrieId which, uint32_t token) const;

  // The entry for a state of a lexeme below a node of a trie, made on first use. `min` and `max` are the
  // numbers of code points that are still needed and still allowed.
  EntryPtr entry(Lexeme kind, const Language& language, uint32_t state, uint32_t scan, uint32_t min,
                 uint32_t max, uint32_t node, TrieId trie) const;
  // Replaces limits that no token can reach by no limit, so that states far from a limit share one entry.
  void limit(const Language& language, uint32_t& min, uint32_t& max) const {
    if (max != kInf && max >= longest_ + language.longest_min + 1) max = kInf;
    if (language.all_infinite && min > longest_ + 1) min = longest_ + 1;
  }
  // Whether a token may exceed a limit of `max` characters of a number.
  bool reaches(const Language& language, uint32_t max) const {
    return max != kInf && max < longest_number_ + language.longest_min;
  }
  size_t cache_bytes() const { return cache_bytes_.load(); }
  size_t cache_limit = size_t{256} << 20;

 private:
  template <class Make>
  EntryPtr kept(const EntryKey& key, Make make_it) const;
  EntryPtr make(const EntryKey& key, const Language& language) const;
  // Whether an entry covers all tokens, behind a whole character.
  static bool is_whole(const EntryKey& key, const Language& language);
  EntryPtr make_whole(const EntryKey& key, const Language& language) const;
  // The entry with a maximum (make_limited) or a minimum (make_longer) of code points, from the entry
  // without.
  EntryPtr make_limited(const EntryKey& key, const Language& language, const Entry& unlimited) const;
  EntryPtr make_longer(const EntryKey& key, const Language& language, const Entry& any_length) const;
  std::shared_ptr<const GroupKinds> kinds(const Language& language, bool json) const;
  void split_whitespace();
  void sort_by_length();
  void make_room() const;  // under the lock

  std::string bytes_;
  std::vector<uint64_t> offsets_;
  std::vector<bool> special_;
  std::vector<uint32_t> end_tokens_;
  Trie trie_, symbols_, indented_;
  TokenGroups groups_;
  std::vector<uint32_t> blanks_, n_blanks_, blank_masks_;
  // Tokens with text in descending order of length; the number of code points of each token; and whether the
  // token contains a quote or a backslash.
  std::vector<uint32_t> by_length_, lengths_;
  std::vector<bool> marked_;
  static constexpr uint32_t kMaxLead = 12;
  // A limit below this number of characters nearly always has an effect.
  static constexpr uint32_t kShortest = 16;
  uint32_t longest_ = 0, longest_lead_ = 0;
  uint32_t longest_number_ = 0;  // the most characters of one number that a token has
  std::string digest_;

  struct Hash {
    size_t operator()(const EntryKey& k) const {
      uint64_t h = k.language;
      for (uint64_t x :
           {uint64_t{k.state} << 32 | k.scan, uint64_t{k.min} << 32 | k.max,
            uint64_t{k.node} << 8 | static_cast<uint64_t>(k.kind) << 4 | static_cast<uint64_t>(k.trie)})
        h = hash_mix(h, x);
      return h;
    }
  };
  mutable std::shared_mutex lock_;
  mutable std::unordered_map<EntryKey, EntryPtr, Hash> cache_;
  mutable std::unordered_map<uint64_t, std::shared_ptr<const GroupKinds>> kinds_;
  mutable std::atomic<size_t> cache_bytes_{0};
};

}  // namespace llamay::grammar
