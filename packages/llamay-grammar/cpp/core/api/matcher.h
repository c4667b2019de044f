// A compiled grammar over a vocabulary, and positions in documents.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "masks/mask.h"

namespace llamay::grammar {

struct Grammar {
  Program program;
  std::shared_ptr<const Vocabulary> vocabulary;
  Machine machine{program};
  std::string digest;  // identifies source, options and vocabulary
  mutable ValueEntries values;
  Grammar() = default;
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;
};

class RefusedTokenError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A position in a document, immutable once made. A rollback follows the chain of previous positions.
struct Position {
  std::atomic<uint32_t> refs{0};
  Position* previous = nullptr;
  uint32_t token = 0;
  uint64_t index = 0;      // tokens read
  bool ended = false;      // an end-of-sequence token was read
  bool accepting = false;  // the document may end here
  Configurations configurations;
};

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Grammar> grammar);
  Matcher(const Matcher& other);  // forks: O(1)
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher();

  void fill_mask(uint32_t* mask) const;
  bool allows(uint32_t token) const;
  void accept(uint32_t token);  // throws RefusedTokenError, leaving the position as it was
  bool try_accept(uint32_t token);
  void rollback(uint64_t n);  // throws std::out_of_range
  // Returns the longest run, of at most `limit` tokens, in which each token is the only allowed one.
  std::vector<uint32_t> forced(uint32_t limit) const;
  std::string forced_bytes(uint32_t limit) const;
  bool complete() const { return at_->accepting; }
  bool ended() const { return at_->ended; }
  uint64_t length() const { return at_->index; }
  std::vector<uint32_t> tokens() const;
  std::string expected() const;  // for messages: the bytes that may come next
  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }

 private:
  Position* advance(const Position* from, uint32_t token) const;  // null when refused
  void move_to(Position* p);

  std::shared_ptr<const Grammar> grammar_;
  Position* at_ = nullptr;
  mutable CrossingList crossings_;
};

}  // namespace llamay::grammar
