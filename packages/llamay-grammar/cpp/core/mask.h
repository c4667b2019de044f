// Which tokens may come next: the union over the threads of what each can read.
#pragma once

#include "machine.h"
#include "value_entries.h"
#include "vocabulary.h"

namespace llamay::grammar {

// What the tokens that end a lexeme and go on do at one place in the document. It stays the same while a
// string is being written, so the last few answers are kept. Belongs to one matcher.
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

// Makes equal stacks one stack, from the bottom up, and drops threads that are the same.
void merge_threads(Threads& list, Scratch& scratch);

class Masker {
 public:
  Masker(const Machine& machine, const Vocabulary& vocabulary, CrossingList* crossings, ValueEntries* values)
      : m_(machine), v_(vocabulary), crossings_(crossings), values_(values) {}

  // Writes the mask of vocabulary.words() words, whatever it held before.
  void add(const Threads& threads, uint32_t* mask, Scratch& scratch) const;

 private:
  const Machine& m_;
  const Vocabulary& v_;
  CrossingList* crossings_;
  ValueEntries* values_;
};

}  // namespace llamay::grammar
