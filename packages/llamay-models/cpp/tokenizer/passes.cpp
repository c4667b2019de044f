#include "tokenizer/passes.hpp"

#include <algorithm>

#include "tokenizer/ranges.hpp"

namespace llamay::tokenizer::passes {
namespace {

using namespace unicode;

/// The cased letters that DeepSeek's tokenizer lists.
constexpr Range kDeepseekLetter[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
    {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
    {0x376, 0x376},     {0x377, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},
    {0x388, 0x38A},     {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},
    {0x48A, 0x52F},     {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},
    {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},
    {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},
    {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},
    {0x2126, 0x2126},   {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
    {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},   {0x2184, 0x2184},
    {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},
    {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2},
    {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};
constexpr Range kDeepseekPunctuation[] = {{'!', '/'},       {':', '~'},       {0x2018, 0x201F},
                                          {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};
constexpr Range kDeepseekCjk[] = {{0x800, 0x4E00}, {0x4E00, 0x9FA5}, {0xAC00, 0xD7FF}};
constexpr Range kCjkAndKana[] = {{0x3040, 0x309F}, {0x30A0, 0x30FF}, {0x4E00, 0x9FA5}};
constexpr Range kAsianScripts[] = {{0x0E40, 0x0E7F}, {0x0E80, 0x0EFF}, {0x1000, 0x109F}, {0x1100, 0x11FF},
                                   {0x1780, 0x17FF}, {0x2F00, 0x2FDF}, {0x3040, 0x309F}, {0x30A0, 0x30FF},
                                   {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xA9E0, 0xA9FF}, {0xAA60, 0xAA7F},
                                   {0xAC00, 0xD7AF}, {0xF900, 0xFAFF}, {0xFF65, 0xFF9F}};
constexpr Range kHangul[] = {{0x3131, 0x318E}, {0xAC00, 0xD7A3}};
constexpr Range kWideSigns[] = {{0x2014, 0x2014}, {0x2018, 0x2019}, {0x201C, 0x201D},
                                {0x2026, 0x2026}, {0x3001, 0x303F}, {0xFE30, 0xFE4F},
                                {0xFF01, 0xFF01}, {0xFF0C, 0xFF0C}, {0xFF1A, 0xFF1B}};
constexpr Range kBopomofo[] = {{0x3105, 0x312F}};
/// Characters that \b takes for parts of a word besides letters, marks and digits: connector punctuation,
/// numerals that are letters, circled letters, and, as the regular expression library of the original does,
/// Latin-1's fractions and superscripts.
constexpr Range kWordSigns[] = {
    {'_', '_'},         {0xB2, 0xB3},       {0xB9, 0xB9},       {0xBC, 0xBE},       {0x16EE, 0x16F0},
    {0x203F, 0x2040},   {0x2054, 0x2054},   {0x2160, 0x2182},   {0x2185, 0x2188},   {0x24B6, 0x24E9},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303A},   {0xA6E6, 0xA6EF},   {0xFE33, 0xFE34},
    {0xFE4D, 0xFE4F},   {0xFF3F, 0xFF3F},   {0x10140, 0x10174}, {0x10341, 0x10341}, {0x1034A, 0x1034A},
    {0x103D1, 0x103D5}, {0x12400, 0x1246E}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
/// Characters that end a word for Bloom, besides white space.
constexpr Range kBloomStops[] = {{'!', '!'},       {'(', ')'},       {',', ','},       {'.', '.'},
                                 {'?', '?'},       {'|', '|'},       {0x060C, 0x060C}, {0x06D4, 0x06D4},
                                 {0x0964, 0x0964}, {0x2026, 0x2026}, {0x3001, 0x3002}, {0xFF0C, 0xFF0C}};

/// `\s?` and then a run of what `holds`; `at` when there is none.
template <class Holds>
uint32_t spaced_run(const Characters& t, uint32_t at, uint32_t end, Holds holds) {
  const uint32_t first = at + (t.is(at, kSpace) ? 1 : 0);
  const uint32_t stop = run_while(t, first, end, holds);
  if (stop > first) return stop;
  return run_while(t, at, end, holds);  // the list may hold the space itself
}

/// Runs of digits apart, in groups of three counted from the right; with `whole_words` only runs that no
/// letter follows.
void isolate_threes(const Characters& t, uint32_t begin, uint32_t end, uint32_t digits, bool whole_words,
                    Ends& out) {
  uint32_t gap = begin;
  const auto cut = [&](uint32_t at) {
    if (at > gap) out.push_back(gap = at);
  };
  for (uint32_t at = begin; at < end;) {
    const uint32_t stop = t.run(at, end, digits);
    if (stop == at) {
      ++at;
      continue;
    }
    if (!whole_words || stop == end || !(t.is(stop, kLetter | kMark) || in(t.code(stop), kWordSigns))) {
      cut(at);
      if ((stop - at) % 3) cut(at + (stop - at) % 3);
      while (gap < stop) cut(gap + 3);
    }
    at = stop;
  }
  cut(end);
}

}  // namespace

uint32_t number(const Characters& t, uint32_t at, uint32_t) { return at + (t.is(at, kNumber) ? 1 : 0); }
uint32_t numbers(const Characters& t, uint32_t at, uint32_t end) { return t.run(at, end, kNumber); }
uint32_t up_to_three_numbers(const Characters& t, uint32_t at, uint32_t end) {
  return t.run(at, std::min(end, at + 3), kNumber);
}
uint32_t three_digits(const Characters& t, uint32_t at, uint32_t end) {
  return end - at >= 3 && run_while(t, at, at + 3, is_ascii_digit) == at + 3 ? at + 3 : at;
}
uint32_t newline(const Characters& t, uint32_t at, uint32_t) { return at + (is_newline(t.code(at)) ? 1 : 0); }
uint32_t lines(const Characters& t, uint32_t at, uint32_t end) {
  const bool feeds = t.code(at) == '\n';
  return run_while(t, at, end, [&](uint32_t c) { return (c == '\n') == feeds; });
}
uint32_t not_spaces(const Characters& t, uint32_t at, uint32_t end) {
  return t.run(at, end, kAnything & ~kSpace);
}

uint32_t spaced_letters(const Characters& t, uint32_t at, uint32_t end) {
  const uint32_t first = at + (t.is(at, kSpace) ? 1 : 0);
  const uint32_t stop = t.run(first, end, kLetter);
  return stop > first ? stop : at;
}
uint32_t spaced_punctuation(const Characters& t, uint32_t at, uint32_t end) {
  const uint32_t first = at + (t.is(at, kSpace) ? 1 : 0);
  const uint32_t stop = t.run(first, end, kPunctuation);
  return stop > first ? stop : at;
}
uint32_t default_punctuation(const Characters& t, uint32_t at, uint32_t end) {
  while (at < end &&
         (t.is(at, kPunctuation) || (t.code(at) < 0x80 && t.is(at, kSymbol) && t.code(at) != '`')))
    ++at;
  return at;
}
uint32_t falcon_punctuation(const Characters& t, uint32_t at, uint32_t end) {
  while (at < end && (t.is(at, kPunctuation) || (t.code(at) < 0x80 && t.is(at, kSymbol)))) ++at;
  return at;
}
uint32_t deepseek_letters(const Characters& t, uint32_t at, uint32_t end) {
  return spaced_run(t, at, end, [](uint32_t c) { return in(c, kDeepseekLetter); });
}
uint32_t deepseek_punctuation(const Characters& t, uint32_t at, uint32_t end) {
  return spaced_run(t, at, end, [](uint32_t c) { return in(c, kDeepseekPunctuation); });
}
uint32_t deepseek_cjk(const Characters& t, uint32_t at, uint32_t end) {
  return run_while(t, at, end, [](uint32_t c) { return in(c, kDeepseekCjk); });
}
uint32_t cjk_and_kana(const Characters& t, uint32_t at, uint32_t end) {
  return run_while(t, at, end, [](uint32_t c) { return in(c, kCjkAndKana); });
}
uint32_t asian_scripts(const Characters& t, uint32_t at, uint32_t end) {
  return run_while(t, at, end, [](uint32_t c) { return in(c, kAsianScripts); });
}
uint32_t youtu_scripts(const Characters& t, uint32_t at, uint32_t end) {
  const auto run = [&](const auto& ranges) {
    return run_while(t, at, end, [&](uint32_t c) { return in(c, ranges); });
  };
  for (const uint32_t stop : {run(kHangul), run(kWideSigns), run(kBopomofo), run(kCjkAndKana)})
    if (stop > at) return stop;
  return at;
}
uint32_t bloom(const Characters& t, uint32_t at, uint32_t end) {
  const uint32_t first = at + (t.code(at) == ' ' ? 1 : 0);
  uint32_t stop = first;
  while (stop < end && !t.is(stop, kSpace) && !in(t.code(stop), kBloomStops)) ++stop;
  return stop > first ? stop : at;
}

uint32_t chameleon_sentinel(const Characters& t, uint32_t at, uint32_t end) {
  static constexpr std::string_view kOpen = "<sentinel:";
  if (end - at <= kOpen.size()) return at;
  for (uint32_t i = 0; i < kOpen.size(); ++i)
    if (t.code(at + i) != static_cast<uint8_t>(kOpen[i])) return at;
  const uint32_t first = at + static_cast<uint32_t>(kOpen.size());
  const uint32_t stop = run_while(t, first, end, is_ascii_digit);
  return stop > first && stop < end && t.code(stop) == '>' ? stop + 1 : at;
}
uint32_t chameleon_image(const Characters& t, uint32_t at, uint32_t end) {
  static constexpr std::string_view kOpen = "IMGIMG";
  if (end - at < kOpen.size() + 2) return at;
  for (uint32_t i = 0; i < kOpen.size(); ++i)
    if (t.code(at + i) != static_cast<uint8_t>(kOpen[i])) return at;
  const uint32_t first = at + static_cast<uint32_t>(kOpen.size());
  const uint32_t stop =
      run_while(t, first, std::min(end, first + 4), [](uint32_t c) { return c >= 'A' && c <= 'I'; });
  return stop > first && stop < end && t.code(stop) == 'Z' ? stop + 1 : at;
}
uint32_t chameleon_layout(const Characters& t, uint32_t at, uint32_t end) {
  if (t.code(at) == '\t' || t.code(at) == '\n') return at + 1;
  const uint32_t spaces = run_while(t, at, std::min(end, at + 4), [](uint32_t c) { return c == ' '; }) - at;
  return at + (spaces == 4 ? 4 : spaces >= 2 ? 2 : 0);
}
uint32_t chameleon_punctuation(const Characters& t, uint32_t at, uint32_t) {
  return at + (t.is(at, kPunctuation) || is_ascii_punctuation(t.code(at)) ? 1 : 0);
}

void trailing_space(const Characters& t, uint32_t begin, uint32_t end, Ends& out) {
  uint32_t stop = end;
  while (stop > begin && t.is(stop - 1, kSpace)) --stop;
  if (stop > begin) out.push_back(stop);
  if (stop < end) out.push_back(end);
}

void digits_from_right(const Characters& t, uint32_t begin, uint32_t end, Ends& out) {
  uint32_t cut = begin;
  for (uint32_t at = begin; at < end;) {
    const uint32_t stop = t.run(at, end, kDecimal);
    if (stop == at) {
      ++at;
      continue;
    }
    for (uint32_t group = at + (stop - at) % 3; group < stop; group += 3)
      if (group > cut) out.push_back(cut = group);
    at = stop;
  }
  if (cut < end) out.push_back(end);
}
void digit_groups(const Characters& t, uint32_t begin, uint32_t end, Ends& out) {
  isolate_threes(t, begin, end, kDecimal, true, out);
}
void number_groups(const Characters& t, uint32_t begin, uint32_t end, Ends& out) {
  isolate_threes(t, begin, end, kNumber, false, out);
}

}  // namespace llamay::tokenizer::passes
