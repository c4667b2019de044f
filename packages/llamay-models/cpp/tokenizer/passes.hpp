#pragma once
// The passes of the known pre-tokenizers. Each comment gives the regular expression that the function stands
// for; the expressions are those of the models' tokenizer.json files.

#include "tokenizer/pretokenizer.hpp"

namespace llamay::tokenizer::passes {

/// A rule. It returns the end of its match at a position, or the position itself where there is none.
using Match = uint32_t (*)(const Characters& text, uint32_t at, uint32_t end);

/// Cut out every match, leftmost first; what lies between matches is one piece each.
template <Match match>
void isolate(const Characters& text, uint32_t begin, uint32_t end, Ends& out) {
  uint32_t gap = begin;
  for (uint32_t at = begin; at < end;) {
    const uint32_t stop = match(text, at, end);
    if (stop == at) {
      ++at;
      continue;
    }
    if (gap < at) out.push_back(at);
    out.push_back(stop);
    gap = at = stop;
  }
  if (gap < end) out.push_back(end);
}

// One-rule steps.
uint32_t number(const Characters&, uint32_t, uint32_t);               ///< \p{N}
uint32_t numbers(const Characters&, uint32_t, uint32_t);              ///< \p{N}+
uint32_t up_to_three_numbers(const Characters&, uint32_t, uint32_t);  ///< \p{N}{1,3}
uint32_t three_digits(const Characters&, uint32_t, uint32_t);         ///< [0-9][0-9][0-9]
uint32_t newline(const Characters&, uint32_t, uint32_t);              ///< [\r\n]
uint32_t lines(const Characters&, uint32_t, uint32_t);                ///< [^\n]+|[\n]+
uint32_t not_spaces(const Characters&, uint32_t, uint32_t);           ///< \S+
uint32_t spaced_letters(const Characters&, uint32_t, uint32_t);       ///< \s?\p{L}+
uint32_t spaced_punctuation(const Characters&, uint32_t, uint32_t);   ///< \s?\p{P}+
uint32_t falcon_punctuation(const Characters&, uint32_t, uint32_t);   ///< [\p{P}\$\+<=>\^~\|`]+
uint32_t default_punctuation(const Characters&, uint32_t, uint32_t);  ///< [\p{P}\$\+<=>\^~\|]+
uint32_t deepseek_letters(const Characters&, uint32_t, uint32_t);     ///< \s?[a fixed list of cased letters]+
uint32_t deepseek_punctuation(const Characters&, uint32_t, uint32_t);  ///< \s?[!-/:-~！-／：-～‘-‟　-。]+
uint32_t deepseek_cjk(const Characters&, uint32_t, uint32_t);          ///< [一-龥ࠀ-一가-퟿]+
uint32_t cjk_and_kana(const Characters&, uint32_t, uint32_t);          ///< [一-龥぀-ゟ゠-ヿ]+
uint32_t asian_scripts(const Characters&, uint32_t, uint32_t);         ///< AFMoE's list of scripts, repeated
uint32_t youtu_scripts(const Characters&, uint32_t, uint32_t);  ///< runs of Hangul, wide signs, bopomofo, CJK
uint32_t bloom(const Characters&, uint32_t, uint32_t);          ///< ` ?[^(\s|.,!?…。，、।۔،)]+`
uint32_t chameleon_sentinel(const Characters&, uint32_t, uint32_t);  ///< <sentinel:[0-9]+>
uint32_t chameleon_image(const Characters&, uint32_t, uint32_t);     ///< (IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z
uint32_t chameleon_layout(const Characters&, uint32_t, uint32_t);    ///< [\t\n]|    |  (four or two spaces)
uint32_t chameleon_punctuation(const Characters&, uint32_t, uint32_t);  ///< [\p{P}!-/:-@\[-`{-~]

/// \s+$, only at the end of a piece.
void trailing_space(const Characters&, uint32_t begin, uint32_t end, Ends& out);
/// (?=(\d{3})+(?!\d)): a cut before every group of three digits, counted from the right.
void digits_from_right(const Characters&, uint32_t begin, uint32_t end, Ends& out);
/// \d{1,3}(?=(?:\d{3})*\b): groups of three digits, counted from the right.
void digit_groups(const Characters&, uint32_t begin, uint32_t end, Ends& out);
/// \p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})): the same with all numbers, whatever follows.
void number_groups(const Characters&, uint32_t begin, uint32_t end, Ends& out);

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)
uint32_t gpt2(const Characters&, uint32_t, uint32_t);

/// The options by which the descendants of GPT-4's pattern differ.
struct Options {
  bool contractions = true;  ///< (?i:'s|'t|'re|'ve|'m|'ll|'d) as a piece of its own, or a word's ending
  uint32_t max_numbers = 3;  ///< \p{N}{1,max}
  uint32_t letters = unicode::kLetter;  ///< of words; with kMark: [\p{L}\p{M}]
  bool newlines_after_signs = true;     ///< [\r\n]* after signs
  bool slashes_after_signs = false;     ///< [\r\n/]* after signs
  bool one_after_signs = false;         ///< [\r\n/]? instead of *
  bool words_with_spaces = false;       ///< \p{L}\p{M}*(?: \p{L}\p{M}*)* instead of \p{L}+
  bool powers_of_two_spaces = false;    ///< \s{512}(?!\S)|\s{256}(?!\S)|…|\s{1} instead of \s+(?!\S)|\s+
};

/// (contraction)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
uint32_t gpt4_rule(const Characters&, uint32_t at, uint32_t end, const Options&);

/// The same with words cut where lower case turns to upper:
/// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(contraction)?|…
uint32_t gpt4o_rule(const Characters&, uint32_t at, uint32_t end, const Options&);

/// [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
/// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
uint32_t deepseek3(const Characters&, uint32_t, uint32_t);
/// The same with ` ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+` at the end.
uint32_t spark(const Characters&, uint32_t, uint32_t);
/// Kimi K2: runs of Han apart; words without Han as in GPT-4o; the rest as in GPT-4.
uint32_t kimi_k2(const Characters&, uint32_t, uint32_t);

template <Options options>
uint32_t gpt4(const Characters& text, uint32_t at, uint32_t end) {
  return gpt4_rule(text, at, end, options);
}

template <Options options>
uint32_t gpt4o(const Characters& text, uint32_t at, uint32_t end) {
  return gpt4o_rule(text, at, end, options);
}

}  // namespace llamay::tokenizer::passes
