// Any text through every pre-tokenizer and both algorithms: nothing crashes, and what can be exact is exact.
//
// The first byte chooses; the rest is the text, or, for the last choice, a vocabulary of texts and merges.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "error.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/ugm.hpp"
#include "tokenizer/wpm.hpp"

using namespace llamay;
using namespace llamay::tokenizer;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::string spell(uint8_t byte) {
  static const std::vector<std::string> alphabet = [] {
    std::vector<std::string> all(256);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      const uint32_t c = printable ? b : next++;
      if (c < 0x80) {
        all[b] = std::string(1, static_cast<char>(c));
      } else {
        all[b] = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
      }
    }
    return all;
  }();
  return alphabet[byte];
}

struct Made {
  std::vector<std::string> texts;
  std::vector<uint8_t> attributes;
  std::vector<std::string> merges;
};

Made base() {
  Made m;
  for (int b = 0; b < 256; ++b) m.texts.push_back(spell(static_cast<uint8_t>(b)));
  for (const char* merge : {"a a", "aa aa", "a b", "Ċ Ċ", "Ġ Ġ", "Ġ a", "1 1", "' s", "Ã ©"}) {
    m.merges.emplace_back(merge);
    std::string joined(merge);
    joined.erase(joined.find(' ', 1), 1);
    m.texts.push_back(joined);
  }
  m.attributes.assign(m.texts.size(), kNormal);
  for (const auto& [text, attribute] :
       std::vector<std::pair<std::string, uint8_t>>{{"<|x|>", kControl},
                                                    {"<|x", kUserDefined},
                                                    {"\n\n", kUserDefined},
                                                    {"|><", kControl | kStripRight}}) {
    m.texts.push_back(text);
    m.attributes.push_back(attribute);
  }
  return m;
}

std::unique_ptr<Tokenizer> make(const Made& m, const PreTokenizer& pretokenizer) {
  const std::vector<std::string_view> texts(m.texts.begin(), m.texts.end());
  const std::vector<std::string_view> merges(m.merges.begin(), m.merges.end());
  auto vocabulary = std::make_unique<Vocabulary>(
      texts, m.attributes, pretokenizer.byte_level ? Spelling::kByteLevel : Spelling::kSentencePiece);
  auto algorithm = make_bpe(*vocabulary, merges, pretokenizer);
  return std::make_unique<Tokenizer>(std::move(vocabulary), std::move(algorithm));
}

std::unique_ptr<Tokenizer> make_sentencepiece(int kind) {
  std::vector<std::string> texts{"<unk>", "<s>", "</s>"};
  std::vector<uint8_t> attributes{kUnknown, kControl, kControl};
  for (int b = 0; b < 256; ++b) {
    char name[7];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    texts.emplace_back(name);
    attributes.push_back(kByte);
  }
  for (const char* t : {"a", "b", "aa", "aaaa", "ab", "▁", "▁a", "▁▁", ">▁<", "é"}) {
    texts.emplace_back(t);
    attributes.push_back(kNormal);
  }
  std::vector<float> scores(texts.size());
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i % 7);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  auto vocabulary = std::make_unique<Vocabulary>(views, attributes, Spelling::kSentencePiece);
  auto algorithm = kind == 0   ? make_spm(*vocabulary, scores, 0, true)
                   : kind == 1 ? make_ugm(*vocabulary, scores, {0, true, false, {}})
                   : kind == 2 ? make_wpm(*vocabulary, 0, true, true)
                               : make_rwkv(*vocabulary, 0);
  return std::make_unique<Tokenizer>(std::move(vocabulary), std::move(algorithm));
}

std::string decode(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids) {
  std::string out;
  for (const uint32_t id : ids) out += tokenizer.vocabulary().bytes(id);
  return out;
}

/// A vocabulary out of the input: strings separated by zero bytes, the last one in four a merge.
void hostile_vocabulary(std::string_view input) {
  Made m;
  for (size_t at = 0; at < input.size();) {
    const size_t end = std::min(input.find('\0', at), input.size());
    const std::string part(input.substr(at, end - at));
    if (m.texts.size() % 4 == 3 && m.merges.size() < m.texts.size()) {
      m.merges.push_back(part);
    } else {
      m.texts.push_back(part);
      m.attributes.push_back(part.empty() ? kNormal : static_cast<uint8_t>(1u << (part[0] & 7)));
    }
    at = end + 1;
  }
  try {
    const auto tokenizer = make(m, *find_pretokenizer(input.size() % 2 ? "gpt-2" : "gemma4"));
    std::vector<uint32_t> ids;
    const Span all{0, UINT32_MAX};
    tokenizer->encode(input, {&all, 1}, ids);
    for (const uint32_t id : ids) require(id < tokenizer->vocabulary().size());
  } catch (const FormatError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto names = pretokenizer_names();
  static const auto sentencepiece = make_sentencepiece(0);
  static const std::unique_ptr<Tokenizer> others[] = {make_sentencepiece(1), make_sentencepiece(2),
                                                      make_sentencepiece(3)};
  static const auto byte_level = [] {
    std::vector<std::unique_ptr<Tokenizer>> all;
    for (const auto name : names)
      if (const auto* p = find_pretokenizer(name); p->byte_level) all.push_back(make(base(), *p));
    return all;
  }();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t choice = data[0] % (byte_level.size() + 4);
  const Span half{0, static_cast<uint32_t>(size / 2)};
  std::vector<uint32_t> ids;
  if (choice < byte_level.size()) {
    byte_level[choice]->encode(text, {&half, data[0] / 128u}, ids);
    // A token that strips white space cannot give it back.
    if (text.find("|><") == std::string_view::npos) require(decode(*byte_level[choice], ids) == text);
  } else if (choice == byte_level.size()) {
    sentencepiece->encode(text, {}, ids);
    if (!text.empty() && text.find("\xE2\x96\x81") == std::string_view::npos)
      require(decode(*sentencepiece, ids) == " " + std::string(text));
  } else if (choice == byte_level.size() + 1) {
    hostile_vocabulary(text);
  } else if (choice == byte_level.size() + 2) {
    for (const auto& other : others) {
      other->encode(text, {}, ids);
      for (const uint32_t id : ids) require(id < other->vocabulary().size());
    }
  } else {
    // The first half are normalisation rules, the second is what they are applied to.
    try {
      const Charsmap rules({data + 1, (size - 1) / 2});
      for (size_t at = text.size() / 2; at < text.size(); ++at)
        if (const auto rule = rules.find(text.substr(at))) require(rule->length <= text.size() - at);
    } catch (const FormatError&) {
    }
  }
  return 0;
}
