// A cache of the tokens that cross the end of a lexeme, for the time that the lexeme is being written.
#pragma once

#include "machine/configuration.h"
#include "vocabulary/vocabulary.h"

namespace llamay::grammar {

// The allowed tokens that end a lexeme and continue after it, at one position in the document. The set of
// tokens is the same for every token of a string, so a matcher caches the last few sets.
struct Crossing {
  Mode mode = Mode::String;  // a name and a string value may share both entry and place
  EntryPtr entry;
  const Frame* top = nullptr;  // retained by the owner of the list
  std::vector<uint32_t> tokens;
};

class CrossingList {
 public:
  CrossingList() = default;
  CrossingList(const CrossingList&) = delete;
  CrossingList& operator=(const CrossingList&) = delete;
  ~CrossingList();
  const Crossing* find(Mode mode, const Entry* entry, const Frame* top) const;
  void add(Mode mode, EntryPtr entry, const Frame* top, std::vector<uint32_t> tokens);

 private:
  static constexpr size_t kKept = 8;
  std::vector<Crossing> list_;
  size_t next_ = 0;
};

}  // namespace llamay::grammar
