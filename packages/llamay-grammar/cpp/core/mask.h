// Which tokens may come next: the union over the threads of what each can read.
#pragma once

#include "machine.h"
#include "vocabulary.h"

namespace llamay::grammar {

class Masker {
 public:
  Masker(const Machine& machine, const Vocabulary& vocabulary) : m_(machine), v_(vocabulary) {}

  // Sets bits; `mask` has vocabulary.words() words, cleared by the caller.
  void add(const Threads& threads, uint32_t* mask, Scratch& scratch) const;

 private:
  struct Walk;
  const Machine& m_;
  const Vocabulary& v_;
};

}  // namespace llamay::grammar
