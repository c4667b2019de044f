#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/merge.hpp"
#include "tokenizer/piece_cache.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/special.hpp"
#include "tokenizer/vocabulary.hpp"

namespace llamay::tokenizer {

/// One text on its way: what its fragments share.
struct Encoding {
  std::vector<uint32_t>& out;  ///< ids are appended here
  PieceCache cache;
  MergeScratch scratch{};
};

/// An algorithm that makes ids of text without special tokens.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  /// Append the ids of one fragment; `after_special`: nothing or a special token stands before it.
  virtual void encode(std::string_view text, bool after_special, Encoding& encoding) const = 0;
};

/// Byte-level BPE and its SentencePiece-spelled relatives. Throws FormatError as Bpe does.
std::unique_ptr<Algorithm> make_bpe(const Vocabulary& vocabulary, std::span<const std::string_view> merges,
                                    const PreTokenizer& pretokenizer);

/// SentencePiece BPE with byte fallback. Throws FormatError as Spm does.
std::unique_ptr<Algorithm> make_spm(const Vocabulary& vocabulary, std::span<const float> scores,
                                    uint32_t unknown, bool add_space_prefix);

/// A vocabulary with its algorithm. Immutable and safe to use from any number of threads.
class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  Tokenizer(std::unique_ptr<Vocabulary> vocabulary, std::unique_ptr<Algorithm> algorithm)
      : vocabulary_(std::move(vocabulary)), algorithm_(std::move(algorithm)), special_(*vocabulary_) {}

  const Vocabulary& vocabulary() const { return *vocabulary_; }

  /// Append the ids of `text`; see SpecialTokens::partition for `trusted`. A continuation goes on from other
  /// text, so no space is put before it. Throws FormatError beyond kMaxTextBytes.
  void encode(std::string_view text, std::span<const Span> trusted, std::vector<uint32_t>& out,
              bool continuation = false) const;

 private:
  std::unique_ptr<Vocabulary> vocabulary_;
  std::unique_ptr<Algorithm> algorithm_;
  SpecialTokens special_;
};

}  // namespace llamay::tokenizer
