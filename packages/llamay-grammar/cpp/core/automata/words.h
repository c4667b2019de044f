// Finite languages: tries of words, and dense automata for the operations that need them.
#pragma once

#include <string>
#include <vector>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// A trie. Words in UTF-8, in any order, repeats allowed. Throws CompileError("budget", ...) where a grammar
// has too many words altogether.
LanguagePtr language_of_words(std::vector<std::string> words, Budget& budget);

// The same language as a table over classes of code points; a dense language is returned unchanged. Throws
// CompileError("budget", ...) for enumerations whose table would have more than some millions of cells.
LanguagePtr dense(const LanguagePtr& a, Budget& budget);

}  // namespace llamay::grammar
