#include "starts.h"

#include <chrono>

namespace llamay::grammar {

void remember_starts(const Program& program, const Vocabulary& v) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + std::chrono::milliseconds(1);
  const Lexeme kind = program.canonical_escapes ? Lexeme::JsonCanonical : Lexeme::JsonString;
  auto one = [&](Lexeme lexeme, const Lang* lang, uint32_t min, uint32_t max, const Trie& trie, uint32_t node,
                 TrieId id) {
    if (node == Trie::kNoNode || (node != 0 && trie.end(node) - node < kSmallSubtree)) return;
    if (!lang || lang->empty() || lang->trie || Clock::now() >= until) return;
    v.limit(*lang, min, max);
    v.entry(lexeme, *lang, 0, 0, min, max, node, id);
  };
  // Behind a quote that was written, and with it.
  auto string = [&](const Lang* lang, uint32_t min, uint32_t max) {
    one(kind, lang, min, max, v.trie(), 0, TrieId::All);
    const Trie& symbols = v.trie(TrieId::Symbols);
    one(kind, lang, min, max, symbols, symbols.child(0, '"'), TrieId::Symbols);
  };
  for (const StringAtom& a : program.strings) string(a.lang.get(), a.min, a.max);
  for (const ObjectAtom& a : program.objects) string(a.rest.get(), 0, kInf);
  for (const StringAtom& a : program.lexemes)
    if (!a.closed) one(Lexeme::Last, a.lang.get(), a.min, a.max, v.trie(), 0, TrieId::All);
}

}  // namespace llamay::grammar
