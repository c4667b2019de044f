#pragma once

#include <cstdint>
#include <memory>

#include "tokenizer/tokenizer.hpp"

namespace llamay::tokenizer {

/// WordPiece as BERT has it: words are normalised and cut at white space and punctuation, then covered from
/// left to right by the longest tokens that fit; a word that cannot be covered is one unknown token. Tokens
/// that begin a word are written with U+2581 before them.
///
/// Source: Wu et al. 2016, and BertNormalizer and BertPreTokenizer of Hugging Face.
std::unique_ptr<Algorithm> make_wpm(const Vocabulary& vocabulary, uint32_t unknown, bool lowercase,
                                    bool strip_accents);

}  // namespace llamay::tokenizer
