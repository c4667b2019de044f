// Finite languages: tries of words, and the automata that they are where they meet others.
#pragma once

#include <string>
#include <vector>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// A trie. Words in UTF-8, in any order, repeats allowed. Throws CompileError("budget", ...) where those of
// the grammar are too many altogether.
LanguagePtr language_of_words(std::vector<std::string> words, Budget& budget);

// The same language as a table over classes of code points; one that is dense already is given back. Throws
// CompileError("budget", ...) for enumerations whose table would have more than some millions of cells.
LanguagePtr dense(const LanguagePtr& a, Budget& budget);

}  // namespace llamay::grammar
