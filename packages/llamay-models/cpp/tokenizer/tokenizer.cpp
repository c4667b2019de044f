#include "tokenizer/tokenizer.hpp"

#include <string>

#include "error.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/characters.hpp"
#include "tokenizer/spm.hpp"

namespace llamay::tokenizer {
namespace {

std::string with_space_marks(std::string_view text, bool space_before) {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + 3);
  if (space_before) out += "\xE2\x96\x81";
  for (const char c : text) {
    if (c == ' ')
      out += "\xE2\x96\x81";
    else
      out += c;
  }
  return out;
}

class BpeAlgorithm final : public Algorithm {
 public:
  BpeAlgorithm(const Vocabulary& vocabulary, std::span<const std::string_view> merges,
               const PreTokenizer& pretokenizer)
      : vocabulary_(vocabulary), bpe_(vocabulary, merges), pretokenizer_(pretokenizer) {}

  void encode(std::string_view text, bool, Encoding& encoding) const override {
    std::string marked;
    if (!pretokenizer_.byte_level) text = marked = with_space_marks(text, false);
    const Characters characters(text);
    Ends ends;
    pretokenizer_.split(characters, ends);
    size_t begin = 0;
    for (const uint32_t end_character : ends) {
      const size_t end = characters.start(end_character);
      const std::string_view piece = text.substr(begin, end - begin);
      encoding.cache.append(piece, [&] {
        if (const uint32_t id = whole(piece); id != kNoToken)
          encoding.out.push_back(id);
        else
          bpe_.encode(piece, encoding.scratch, encoding.out);
      });
      begin = end;
    }
  }

 private:
  /// The token that a piece is as a whole, where the pre-tokenizer asks for that before merging.
  uint32_t whole(std::string_view piece) const {
    if (!pretokenizer_.ignore_merges &&
        !(pretokenizer_.whole_newlines && piece.find_first_not_of('\n') == std::string_view::npos))
      return kNoToken;
    const uint32_t id = vocabulary_.find_key(piece);
    return id == kNoToken || vocabulary_.attributes(id) & (kControl | kUnknown) ? kNoToken : id;
  }

  const Vocabulary& vocabulary_;
  Bpe bpe_;
  const PreTokenizer& pretokenizer_;
};

class SpmAlgorithm final : public Algorithm {
 public:
  SpmAlgorithm(const Vocabulary& vocabulary, std::span<const float> scores, uint32_t unknown,
               bool add_space_prefix)
      : spm_(vocabulary, scores, unknown), add_space_prefix_(add_space_prefix) {}

  void encode(std::string_view text, bool after_special, Encoding& encoding) const override {
    const std::string marked = with_space_marks(text, add_space_prefix_ && after_special);
    for (size_t begin = 0; begin < marked.size();) {
      const size_t end = spm_.next_cut(marked, begin);
      const std::string_view piece = std::string_view(marked).substr(begin, end - begin);
      encoding.cache.append(piece, [&] { spm_.encode(piece, encoding.scratch, encoding.out); });
      begin = end;
    }
  }

 private:
  Spm spm_;
  bool add_space_prefix_;
};

}  // namespace

std::unique_ptr<Algorithm> make_bpe(const Vocabulary& vocabulary, std::span<const std::string_view> merges,
                                    const PreTokenizer& pretokenizer) {
  return std::make_unique<BpeAlgorithm>(vocabulary, merges, pretokenizer);
}

std::unique_ptr<Algorithm> make_spm(const Vocabulary& vocabulary, std::span<const float> scores,
                                    uint32_t unknown, bool add_space_prefix) {
  return std::make_unique<SpmAlgorithm>(vocabulary, scores, unknown, add_space_prefix);
}

void Tokenizer::encode(std::string_view text, std::span<const Span> trusted, std::vector<uint32_t>& out,
                       bool continuation) const {
  if (text.size() > kMaxTextBytes)
    throw FormatError("the text is " + std::to_string(text.size()) + " bytes long; 1 GiB is the most",
                      "encode it in parts");
  if (text.empty()) return;
  bool after_special = !continuation;
  Encoding encoding{out, PieceCache(text.size(), out)};
  for (const Fragment& f : special_.partition(text, trusted)) {
    if (f.id != kNoToken)
      out.push_back(f.id);
    else
      algorithm_->encode(text.substr(f.span.begin, f.span.end - f.span.begin), after_special, encoding);
    after_special = f.id != kNoToken;
  }
}

}  // namespace llamay::tokenizer
