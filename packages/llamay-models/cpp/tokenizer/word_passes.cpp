#include <algorithm>

#include "tokenizer/passes.hpp"
#include "tokenizer/ranges.hpp"

namespace llamay::tokenizer::passes {
namespace {

using namespace unicode;

/// Script=Han (Scripts.txt), blocks taken whole where every assigned character is Han.
constexpr Range kHan[] = {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},  {0x3005, 0x3005},
                          {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},  {0x3400, 0x4DBF},
                          {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},  {0x16FE2, 0x16FE3},
                          {0x16FF0, 0x16FF1}, {0x20000, 0x2FA1D}, {0x30000, 0x323AF}};

uint32_t fold(uint32_t c) {
  if (c >= 'A' && c <= 'Z') return c + 32;
  return c == 0x17F ? 's' : c;  // U+017F, the long s, folds to s
}

/// Length of 's, 't, 'm, 'd, 're, 've or 'll at a position, 0 for none.
uint32_t contraction(const Characters& t, uint32_t at, uint32_t end, bool any_case) {
  if (at + 1 >= end || t.code(at) != '\'') return 0;
  const auto letter = [&](uint32_t i) { return any_case ? fold(t.code(i)) : t.code(i); };
  const uint32_t a = letter(at + 1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (at + 2 >= end) return 0;
  const uint32_t b = letter(at + 2);
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/// \s*[\r\n]+|\s+(?!\S)|\s+ or its variants, at a position that is white space.
uint32_t white_space(const Characters& t, uint32_t at, uint32_t end, bool newlines) {
  const uint32_t stop = t.run(at, end, kSpace);
  if (newlines)
    for (uint32_t i = stop; i-- > at;)
      if (is_newline(t.code(i))) return i + 1;
  return stop == end || stop - at == 1 ? stop : stop - 1;
}

/// \s{512}(?!\S)|\s{256}(?!\S)|…|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}
uint32_t white_space_in_powers(const Characters& t, uint32_t at, uint32_t end) {
  // Nothing beyond 513 matters for a run's first piece; so a long run costs what its pieces cost.
  const uint32_t stop = t.run(at, std::min(end, at + 514), kSpace);
  const uint32_t length = stop - at;
  const auto fits = [&](uint32_t n) { return n < length || (n == length && stop == end); };
  for (uint32_t n = 512; n >= 4; n /= 2)
    if (fits(n)) return at + n;
  return at + (fits(2) ? 2 : 1);
}

/// ` ?[signs]+` and then what `tail` holds; `at` for no match.
template <class Tail>
uint32_t signs(const Characters& t, uint32_t at, uint32_t end, uint32_t classes, uint32_t max_tail,
               Tail tail) {
  const uint32_t first = at + (t.code(at) == ' ' ? 1 : 0);
  uint32_t stop = t.run(first, end, classes);
  if (stop == first) return at;
  for (uint32_t n = 0; n < max_tail && stop < end && tail(t.code(stop)); ++n) ++stop;
  return stop;
}

/// \p{L}\p{M}*(?: \p{L}\p{M}*)*, repeated.
uint32_t words_with_spaces(const Characters& t, uint32_t at, uint32_t end) {
  while (at < end) {
    const uint32_t first = at > 0 && t.code(at) == ' ' ? at + 1 : at;
    if (first >= end || !t.is(first, kLetter)) break;
    at = t.run(first + 1, end, kMark);
  }
  return at;
}

/// Return the end of the word of GPT-4o's pattern that starts at `from`: [upper]*[lower]+ if `with_lower`,
/// else [upper]+[lower]*. Letters without case and marks count as both. `counts` further restricts what is a
/// letter.
template <class Counts>
uint32_t cased_word(const Characters& t, uint32_t from, uint32_t end, bool with_lower, Counts counts) {
  constexpr uint32_t kUpperLike = kUpper | kOtherLetter | kMark, kLowerLike = kLower | kOtherLetter | kMark;
  const auto run = [&](uint32_t at, uint32_t classes) {
    while (at < end && t.is(at, classes) && counts(t.code(at))) ++at;
    return at;
  };
  const uint32_t upper = run(from, kUpperLike);
  const uint32_t stop = run(upper, kLowerLike);
  if (!with_lower) return upper > from ? stop : from;
  if (stop > upper) return stop;
  // No lower case follows: give back upper case until the last letter is one that counts as lower too.
  for (uint32_t i = upper; i > from; --i)
    if (t.is(i - 1, kLowerLike)) return i;
  return from;
}

template <class Counts>
uint32_t cased_words(const Characters& t, uint32_t at, uint32_t end, bool contractions, Counts counts) {
  const bool may_lead = !is_newline(t.code(at)) && !t.is(at, kLetter | kNumber);
  for (const bool with_lower : {true, false}) {
    for (const bool lead : {true, false}) {
      if (lead && !may_lead) continue;
      const uint32_t from = at + (lead ? 1 : 0);
      const uint32_t stop = cased_word(t, from, end, with_lower, counts);
      if (stop > from) return stop + (contractions ? contraction(t, stop, end, true) : 0);
    }
  }
  return at;
}

uint32_t signs_of(const Characters& t, uint32_t at, uint32_t end, const Options& o) {
  const uint32_t classes = kAnything & ~(kSpace | kLetter | kNumber | o.letters);
  if (o.one_after_signs)
    return signs(t, at, end, classes, 1, [](uint32_t c) { return is_newline(c) || c == '/'; });
  if (o.slashes_after_signs)
    return signs(t, at, end, classes, UINT32_MAX, [](uint32_t c) { return is_newline(c) || c == '/'; });
  if (o.newlines_after_signs) return signs(t, at, end, classes, UINT32_MAX, is_newline);
  return signs(t, at, end, classes, 0, is_newline);
}

/// Return the end of a piece that is no word in GPT-4's pattern and its descendants: numbers, signs, white
/// space.
uint32_t after_words(const Characters& t, uint32_t at, uint32_t end, const Options& o) {
  if (t.is(at, kNumber)) return t.run(at, o.max_numbers < end - at ? at + o.max_numbers : end, kNumber);
  if (const uint32_t stop = signs_of(t, at, end, o); stop > at) return stop;
  if (!t.is(at, kSpace)) return at;
  if (!o.powers_of_two_spaces) return white_space(t, at, end, true);
  const uint32_t stop = t.run(at, end, kSpace);
  for (uint32_t i = stop; i-- > at;)
    if (is_newline(t.code(i))) return i + 1;
  return white_space_in_powers(t, at, end);
}

bool any(uint32_t) { return true; }
bool is_han(uint32_t c) { return in(c, kHan); }

}  // namespace

uint32_t gpt2(const Characters& t, uint32_t at, uint32_t end) {
  if (const uint32_t n = contraction(t, at, end, false)) return at + n;
  const uint32_t first = at + (t.code(at) == ' ' ? 1 : 0);
  if (first < end) {
    if (t.is(first, kLetter)) return t.run(first, end, kLetter);
    if (t.is(first, kNumber)) return t.run(first, end, kNumber);
    if (!t.is(first, kSpace)) return t.run(first, end, kAnything & ~(kSpace | kLetter | kNumber));
  }
  return t.is(at, kSpace) ? white_space(t, at, end, false) : at;
}

uint32_t gpt4_rule(const Characters& t, uint32_t at, uint32_t end, const Options& o) {
  if (o.contractions)
    if (const uint32_t n = contraction(t, at, end, true)) return at + n;
  const auto word = [&](uint32_t from) {
    return o.words_with_spaces ? (t.is(from, kLetter) ? words_with_spaces(t, from, end) : from)
                               : t.run(from, end, o.letters);
  };
  if (!is_newline(t.code(at)) && !t.is(at, kLetter | kNumber) && at + 1 < end)
    if (const uint32_t stop = word(at + 1); stop > at + 1) return stop;
  if (const uint32_t stop = word(at); stop > at) return stop;
  return after_words(t, at, end, o);
}

uint32_t gpt4o_rule(const Characters& t, uint32_t at, uint32_t end, const Options& o) {
  if (const uint32_t stop = cased_words(t, at, end, o.contractions, any); stop > at) return stop;
  return after_words(t, at, end, o);
}

uint32_t kimi_k2(const Characters& t, uint32_t at, uint32_t end) {
  if (const uint32_t stop = run_while(t, at, end, is_han); stop > at) return stop;
  const uint32_t stop = cased_words(t, at, end, true, [](uint32_t c) { return !is_han(c); });
  return stop > at ? stop : after_words(t, at, end, Options{});
}

namespace {

/// The first three alternatives that DeepSeek V3 and Spark share.
uint32_t deepseek3_words(const Characters& t, uint32_t at, uint32_t end, uint32_t max_newlines) {
  constexpr uint32_t kWord = kLetter | kMark, kSigns = kPunctuation | kSymbol;
  if (is_ascii_punctuation(t.code(at)) && at + 1 < end && is_ascii_letter(t.code(at + 1)))
    return run_while(t, at + 1, end, is_ascii_letter);
  if (!is_newline(t.code(at)) && !t.is(at, kLetter | kSigns) && at + 1 < end && t.is(at + 1, kWord))
    return t.run(at + 1, end, kWord);
  if (t.is(at, kWord)) return t.run(at, end, kWord);
  return signs(t, at, end, kSigns, max_newlines, is_newline);
}

}  // namespace

uint32_t deepseek3(const Characters& t, uint32_t at, uint32_t end) {
  if (const uint32_t stop = deepseek3_words(t, at, end, UINT32_MAX); stop > at) return stop;
  return t.is(at, kSpace) ? white_space(t, at, end, true) : at;
}

uint32_t spark(const Characters& t, uint32_t at, uint32_t end) {
  if (const uint32_t stop = deepseek3_words(t, at, end, 0); stop > at) return stop;
  if (is_newline(t.code(at))) return at + 1;
  return t.is(at, kSpace) ? white_space(t, at, end, false) : at;
}

}  // namespace llamay::tokenizer::passes
