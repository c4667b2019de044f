// The mask of the tokens that may come next: the union over the configurations of the tokens that each can
// read.
#pragma once

#include "machine/machine.h"
#include "masks/crossings.h"
#include "masks/value_entries.h"
#include "vocabulary/vocabulary.h"

namespace llamay::grammar {

class Masker {
 public:
  Masker(const Machine& machine, const Vocabulary& vocabulary, CrossingList* crossings, ValueEntries* values)
      : m_(machine), v_(vocabulary), crossings_(crossings), values_(values) {}

  // Writes the mask of vocabulary.words() words, whatever it held before.
  void add(const Configurations& configurations, uint32_t* mask, Scratch& scratch) const;

 private:
  const Machine& m_;
  const Vocabulary& v_;
  CrossingList* crossings_;
  ValueEntries* values_;
};

}  // namespace llamay::grammar
