#include "tokenizer/ugm.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string>

#include "error.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/trie.hpp"
#include "unicode/utf8.hpp"

namespace llamay::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr float kUnknownPenalty = 10;

class UgmAlgorithm final : public Algorithm {
 public:
  UgmAlgorithm(const Vocabulary& vocabulary, std::span<const float> scores, const UgmOptions& options)
      : scores_(scores.begin(), scores.end()),
        charsmap_(options.charsmap),
        unknown_(options.unknown),
        add_space_prefix_(options.add_space_prefix),
        merge_spaces_(options.merge_spaces) {
    std::vector<Trie::Key> tokens, user_defined;
    float lowest = FLT_MAX;
    for (uint32_t id = 0; id < vocabulary.size(); ++id) {
      const uint8_t attributes = vocabulary.attributes(id);
      if (std::isnan(scores_[id]))
        throw FormatError("the score of token " + std::to_string(id) + " is not a number",
                          "the vocabulary is damaged");
      if (attributes & kNormal) lowest = std::min(lowest, scores_[id]);
      if (attributes & (kControl | kUnknown)) continue;
      if (attributes & (kNormal | kUserDefined | kUnused)) tokens.push_back({vocabulary.text(id), id});
      if (!(attributes & kUserDefined)) continue;
      user_defined.push_back({vocabulary.text(id), id});
      scores_[id] = 0;  // above every log probability, so that these tokens are taken
    }
    unknown_score_ = lowest - kUnknownPenalty;
    tokens_ = Trie(std::move(tokens));
    user_defined_ = Trie(std::move(user_defined));
  }

  void encode(std::string_view text, bool after_special, Encoding& encoding) const override {
    const std::string input = normalize(text, !after_special);
    if (input.empty()) return;
    struct Step {
      double score = -DBL_MAX;
      uint32_t from = 0;
      uint32_t id = kNoToken;
    };
    std::vector<Step> best(input.size() + 1);
    best[0].score = 0;
    for (uint32_t at = 0; at < input.size();) {
      const uint32_t character = unicode::decode(input, at).length;
      const auto reach = [&](uint32_t end, double score, uint32_t id) {
        if (best[at].score + score > best[end].score) best[end] = {best[at].score + score, at, id};
      };
      bool covered = false;
      uint32_t node = 0;
      for (uint32_t i = at; i < input.size(); ++i) {
        node = tokens_.step(node, static_cast<uint8_t>(input[i]));
        if (node == Trie::kNone) break;
        const uint32_t id = tokens_.value(node);
        if (id == Trie::kNone) continue;
        covered = covered || i + 1 == at + character;
        reach(i + 1, scores_[id], id);
      }
      if (!covered) reach(at + character, unknown_score_, unknown_);
      at += character;
    }
    const size_t before = encoding.out.size();
    bool after_unknown = false;
    for (auto at = static_cast<uint32_t>(input.size()); at > 0; at = best[at].from) {
      const bool is_unknown = best[at].id == unknown_;
      if (best[at].id != kNoToken && !(is_unknown && after_unknown)) encoding.out.push_back(best[at].id);
      after_unknown = is_unknown;
    }
    std::reverse(encoding.out.begin() + static_cast<ptrdiff_t>(before), encoding.out.end());
  }

 private:
  /// A continuation goes on inside of a word that has begun.
  std::string normalize(std::string_view text, bool continuation) const {
    std::string out;
    out.reserve(text.size() * 3 / 2 + 3);
    bool in_word = continuation, begun = continuation;
    const auto append = [&](std::string_view part) {
      for (const char c : part) {
        if (c == ' ') {
          in_word = false;
          if (!merge_spaces_) out += kSpaceMark;
          continue;
        }
        if (!in_word && ((add_space_prefix_ && !begun) || merge_spaces_)) {
          out += kSpaceMark;
          begun = true;
        }
        in_word = true;
        out += c;
      }
    };
    for (size_t at = 0; at < text.size();) {
      const std::string_view rest = text.substr(at);
      if (const auto token = user_defined_.longest(rest); token.length > 0) {
        append(rest.substr(0, token.length));
        at += token.length;
      } else if (const auto rule = charsmap_.find(rest)) {
        append(rule->text);
        at += rule->length;
      } else {
        const auto d = unicode::decode(rest, 0);
        append(d.code_point == unicode::kInvalid ? "\xEF\xBF\xBD" : rest.substr(0, d.length));
        at += d.length;
      }
    }
    return out;
  }

  std::vector<float> scores_;
  Charsmap charsmap_;
  uint32_t unknown_;
  bool add_space_prefix_;
  bool merge_spaces_;
  float unknown_score_;
  Trie tokens_, user_defined_;
};

class RwkvAlgorithm final : public Algorithm {
 public:
  RwkvAlgorithm(const Vocabulary& vocabulary, uint32_t unknown) : unknown_(unknown) {
    std::vector<Trie::Key> keys;
    for (uint32_t id = 0; id < vocabulary.size(); ++id)
      if (!(vocabulary.attributes(id) & (kControl | kUnknown))) keys.push_back({vocabulary.bytes(id), id});
    tokens_ = Trie(std::move(keys));
  }

  void encode(std::string_view text, bool, Encoding& encoding) const override {
    for (size_t at = 0; at < text.size();) {
      const auto match = tokens_.longest(text.substr(at));
      if (match.length > 0)
        encoding.out.push_back(match.value);
      else if (unknown_ != kNoToken)
        encoding.out.push_back(unknown_);
      at += std::max<uint32_t>(match.length, 1);
    }
  }

 private:
  uint32_t unknown_;
  Trie tokens_;
};

}  // namespace

std::unique_ptr<Algorithm> make_ugm(const Vocabulary& vocabulary, std::span<const float> scores,
                                    const UgmOptions& options) {
  return std::make_unique<UgmAlgorithm>(vocabulary, scores, options);
}

std::unique_ptr<Algorithm> make_rwkv(const Vocabulary& vocabulary, uint32_t unknown) {
  return std::make_unique<RwkvAlgorithm>(vocabulary, unknown);
}

}  // namespace llamay::tokenizer
