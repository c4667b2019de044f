#include "tokenizer/wpm.hpp"

#include <string>

#include "tokenizer/trie.hpp"
#include "unicode/properties.hpp"
#include "unicode/utf8.hpp"

namespace llamay::tokenizer {
namespace {

/// The blocks that BERT cuts character by character; Hugging Face's list, with its slip in the last range but
/// two.
bool is_ideograph(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class WpmAlgorithm final : public Algorithm {
 public:
  WpmAlgorithm(const Vocabulary& vocabulary, uint32_t unknown, bool lowercase, bool strip_accents)
      : unknown_(unknown), lowercase_(lowercase), strip_accents_(strip_accents) {
    std::vector<Trie::Key> keys;
    for (uint32_t id = 0; id < vocabulary.size(); ++id)
      if (!(vocabulary.attributes(id) & (kControl | kUnknown))) keys.push_back({vocabulary.text(id), id});
    tokens_ = Trie(std::move(keys));
  }

  void encode(std::string_view text, bool, Encoding& encoding) const override {
    std::vector<uint32_t> characters;
    for (size_t at = 0; at < text.size();) {
      const auto d = unicode::decode(text, at);
      characters.push_back(d.code_point == unicode::kInvalid ? 0xFFFD : d.code_point);
      at += d.length;
    }
    if (strip_accents_) characters = unicode::nfd(characters);
    std::string word;
    const auto flush = [&] {
      if (word.empty()) return;
      encoding.cache.append(word, [&] { encode_word(word, encoding.out); });
      word.clear();
    };
    for (const uint32_t c : characters) {
      const auto kind = unicode::class_of(c);
      if (kind == unicode::kSpace) {
        flush();
        continue;
      }
      if (c == 0 || c == 0xFFFD || kind == unicode::kOther) continue;
      if (strip_accents_ && kind == unicode::kMark) continue;
      const bool alone =
          kind == unicode::kPunctuation || (c < 0x7F && kind == unicode::kSymbol) || is_ideograph(c);
      if (alone) flush();
      unicode::append(word, lowercase_ ? unicode::lower(c) : c);
      if (alone) flush();
    }
    flush();
  }

 private:
  void encode_word(const std::string& word, std::vector<uint32_t>& out) const {
    const std::string marked = "\xE2\x96\x81" + word;
    const size_t before = out.size();
    for (size_t at = 0; at < marked.size();) {
      const auto match = tokens_.longest(std::string_view(marked).substr(at));
      if (match.length == 0) {
        out.resize(before);
        break;
      }
      out.push_back(match.value);
      at += match.length;
    }
    if (out.size() == before && unknown_ != kNoToken) out.push_back(unknown_);
  }

  uint32_t unknown_;
  bool lowercase_;
  bool strip_accents_;
  Trie tokens_;
};

}  // namespace

std::unique_ptr<Algorithm> make_wpm(const Vocabulary& vocabulary, uint32_t unknown, bool lowercase,
                                    bool strip_accents) {
  return std::make_unique<WpmAlgorithm>(vocabulary, unknown, lowercase, strip_accents);
}

}  // namespace llamay::tokenizer
