#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/characters.hpp"

namespace llamay::tokenizer {

/// The ends of the pieces of a text, as character positions in increasing order; the last is the end of the
/// text.
using Ends = std::vector<uint32_t>;

/// One step of a pre-tokenizer: cuts the piece [begin, end) further and appends where its parts end.
using Pass = void (*)(const Characters& text, uint32_t begin, uint32_t end, Ends& out);

/// The way to cut text before BPE, by a file's `tokenizer.ggml.pre`: merges never cross a cut.
struct PreTokenizer {
  std::string_view name{};
  std::vector<Pass> passes{};
  bool byte_level =
      true;  ///< tokens are spelled in GPT-2's byte alphabet; else in plain UTF-8 with U+2581 for space
  bool ignore_merges = false;   ///< a piece that is a token as a whole is that token, whatever the merges say
  bool whole_newlines = false;  ///< ignore_merges, but for pieces of newlines only
  bool add_bos = false;         ///< the default where the file does not say

  void split(const Characters& text, Ends& out) const;
};

/// The pre-tokenizer of this name, or nullptr.
const PreTokenizer* find_pretokenizer(std::string_view name);

/// All names, in alphabetical order.
std::vector<std::string_view> pretokenizer_names();

}  // namespace llamay::tokenizer
