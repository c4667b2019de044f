#include "tokenizer/bind.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <unordered_map>

#include "error.hpp"
#include "gguf/reader.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/ugm.hpp"
#include "tokenizer/wpm.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using namespace tokenizer;
using Attributes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using SpanTable = nb::ndarray<const uint32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

std::vector<std::string_view> strings(const gguf::File& file, const std::string& key) {
  const gguf::Entry* entry = file.find(key);
  if (!entry || !entry->is_array || entry->type != gguf::ValueType::kString)
    throw FormatError("metadata key '" + key + "' is missing or not an array of strings",
                      "the file has no usable vocabulary");
  file.mapping()->guard();
  std::vector<std::string_view> all;
  all.reserve(entry->count);
  for (uint64_t i = 0; i < entry->count; ++i) all.push_back(gguf::string_at(*entry, i));
  return all;
}

std::unique_ptr<Vocabulary> vocabulary_of(const gguf::File& file, const Attributes& attributes,
                                          Spelling spelling) {
  const auto texts = strings(file, "tokenizer.ggml.tokens");
  if (texts.size() != attributes.size())
    throw FormatError("there are " + std::to_string(texts.size()) + " tokens but attributes for " +
                          std::to_string(attributes.size()),
                      "the vocabulary is damaged");
  return std::make_unique<Vocabulary>(texts, std::span{attributes.data(), attributes.size()}, spelling);
}

std::shared_ptr<const Tokenizer> bpe_tokenizer(const gguf::File& file, const Attributes& attributes,
                                               const std::string& pre) {
  const PreTokenizer* pretokenizer = find_pretokenizer(pre);
  if (!pretokenizer) throw nb::value_error("unknown pre-tokenizer");
  nb::gil_scoped_release nogil;
  auto vocabulary = vocabulary_of(file, attributes,
                                  pretokenizer->byte_level ? Spelling::kByteLevel : Spelling::kSentencePiece);
  auto algorithm = make_bpe(*vocabulary, strings(file, "tokenizer.ggml.merges"), *pretokenizer);
  return std::make_shared<const Tokenizer>(std::move(vocabulary), std::move(algorithm));
}

void check_scores(const Vocabulary& vocabulary, const Scores& scores) {
  if (scores.size() != vocabulary.size())
    throw FormatError("there are " + std::to_string(vocabulary.size()) + " tokens but " +
                          std::to_string(scores.size()) + " scores",
                      "the vocabulary is damaged");
}

std::shared_ptr<const Tokenizer> spm_tokenizer(const gguf::File& file, const Attributes& attributes,
                                               const Scores& scores, std::optional<uint32_t> unknown,
                                               bool add_space_prefix) {
  nb::gil_scoped_release nogil;
  auto vocabulary = vocabulary_of(file, attributes, Spelling::kSentencePiece);
  check_scores(*vocabulary, scores);
  auto algorithm =
      make_spm(*vocabulary, {scores.data(), scores.size()}, unknown.value_or(kNoToken), add_space_prefix);
  return std::make_shared<const Tokenizer>(std::move(vocabulary), std::move(algorithm));
}

std::shared_ptr<const Tokenizer> wpm_tokenizer(const gguf::File& file, const Attributes& attributes,
                                               std::optional<uint32_t> unknown, bool lowercase,
                                               bool strip_accents) {
  nb::gil_scoped_release nogil;
  auto vocabulary = vocabulary_of(file, attributes, Spelling::kSentencePiece);
  auto algorithm = make_wpm(*vocabulary, unknown.value_or(kNoToken), lowercase, strip_accents);
  return std::make_shared<const Tokenizer>(std::move(vocabulary), std::move(algorithm));
}

std::shared_ptr<const Tokenizer> ugm_tokenizer(const gguf::File& file, const Attributes& attributes,
                                               const Scores& scores, std::optional<uint32_t> unknown,
                                               bool add_space_prefix, bool merge_spaces) {
  nb::gil_scoped_release nogil;
  auto vocabulary = vocabulary_of(file, attributes, Spelling::kSentencePiece);
  check_scores(*vocabulary, scores);
  UgmOptions options{unknown.value_or(kNoToken), add_space_prefix, merge_spaces, {}};
  std::vector<uint8_t> charsmap;  // a copy, because the file may change between two reads of it
  if (const gguf::Entry* map = file.find("tokenizer.ggml.precompiled_charsmap")) {
    if (!map->is_array || gguf::value_size(map->type) != 1)
      throw FormatError("metadata key 'tokenizer.ggml.precompiled_charsmap' must be an array of bytes",
                        "the file was written by a faulty tool");
    charsmap.assign(map->raw.begin(), map->raw.end());
    options.charsmap = charsmap;
  }
  auto algorithm = make_ugm(*vocabulary, {scores.data(), scores.size()}, options);
  return std::make_shared<const Tokenizer>(std::move(vocabulary), std::move(algorithm));
}

std::shared_ptr<const Tokenizer> rwkv_tokenizer(const gguf::File& file, const Attributes& attributes,
                                                std::optional<uint32_t> unknown) {
  nb::gil_scoped_release nogil;
  auto vocabulary = vocabulary_of(file, attributes, Spelling::kEscaped);
  auto algorithm = make_rwkv(*vocabulary, unknown.value_or(kNoToken));
  return std::make_shared<const Tokenizer>(std::move(vocabulary), std::move(algorithm));
}

/// The bytes of a str or bytes object, valid while it lives.
std::string_view text_of(nb::handle text) {
  if (PyBytes_Check(text.ptr()))
    return {PyBytes_AsString(text.ptr()), static_cast<size_t>(PyBytes_Size(text.ptr()))};
  if (!PyUnicode_Check(text.ptr())) throw nb::type_error("text must be str or bytes");
  Py_ssize_t size;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (!data) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

std::vector<uint32_t> encode(const Tokenizer& self, nb::handle text, std::span<const Span> trusted,
                             bool continuation = false) {
  const std::string_view bytes = text_of(text);
  std::vector<uint32_t> ids;
  if (bytes.size() < 256) {
    self.encode(bytes, trusted, ids, continuation);
  } else {
    nb::gil_scoped_release nogil;
    self.encode(bytes, trusted, ids, continuation);
  }
  return ids;
}

std::vector<uint32_t> encode_text(const Tokenizer& self, nb::handle text, bool parse_special,
                                  bool continuation = false) {
  const Span all{0, UINT32_MAX};
  return encode(self, text, {&all, parse_special ? size_t{1} : 0}, continuation);
}

nb::list to_list(const std::vector<uint32_t>& ids) {
  nb::list out;
  for (const uint32_t id : ids) out.append(id);
  return out;
}

nb::object to_array(const std::vector<uint32_t>& ids) {
  auto* data = new int32_t[ids.size() + 1];
  std::copy(ids.begin(), ids.end(), data);
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  const size_t shape[1] = {ids.size()};
  return nb::cast(nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>(data, 1, shape, owner));
}

void check_id(const Tokenizer& self, int64_t id) {
  if (id < 0 || id >= self.vocabulary().size())
    throw nb::index_error(("token " + std::to_string(id) + " is not in the vocabulary of " +
                           std::to_string(self.vocabulary().size()))
                              .c_str());
}

nb::bytes decode(const Tokenizer& self, const Ids& ids, bool skip_special, bool strip_space) {
  const Vocabulary& v = self.vocabulary();
  for (size_t i = 0; i < ids.size(); ++i) check_id(self, ids.data()[i]);
  std::string out;
  {
    nb::gil_scoped_release nogil;
    bool after_special = true;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<uint32_t>(ids.data()[i]);
      const bool special = v.attributes(id) & (kControl | kUnknown);
      std::string_view bytes = v.bytes(id);
      if (strip_space && after_special && !special && bytes.starts_with(' ')) bytes.remove_prefix(1);
      after_special = special || v.attributes(id) & kUserDefined;
      if (!(skip_special && special)) out += bytes;
    }
  }
  return nb::bytes(out.data(), out.size());
}

/// Return those of `names` that are token texts, without building a vocabulary first.
nb::dict find_tokens(const gguf::File& file, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, uint32_t> wanted;
  bool first[256] = {};
  for (const auto& name : names) {
    wanted.emplace(name, kNoToken);
    if (!name.empty()) first[static_cast<uint8_t>(name[0])] = true;
  }
  uint32_t id = 0;
  for (const auto text : strings(file, "tokenizer.ggml.tokens")) {
    if (!text.empty() && first[static_cast<uint8_t>(text[0])])
      if (const auto found = wanted.find(text); found != wanted.end() && found->second == kNoToken)
        found->second = id;
    ++id;
  }
  nb::dict result;
  for (const auto& [name, token] : wanted)
    if (token != kNoToken) result[nb::str(name.data(), name.size())] = token;
  return result;
}

}  // namespace

void bind_tokenizer(nb::module_& m) {
  nb::class_<Tokenizer>(m, "Tokenizer", "A vocabulary with its algorithm; immutable, usable from any thread.")
      .def_static(
          "bpe", &bpe_tokenizer, "file"_a, "attributes"_a, "pre"_a,
          "Byte-pair encoding by merge ranks. Raises FormatError, ValueError for an unknown pre-tokenizer.")
      .def_static("spm", &spm_tokenizer, "file"_a, "attributes"_a, "scores"_a, "unknown"_a.none(),
                  "add_space_prefix"_a, "SentencePiece BPE with byte fallback. Raises FormatError.")
      .def_static("wpm", &wpm_tokenizer, "file"_a, "attributes"_a, "unknown"_a.none(), "lowercase"_a,
                  "strip_accents"_a, "WordPiece. Raises FormatError.")
      .def_static("ugm", &ugm_tokenizer, "file"_a, "attributes"_a, "scores"_a, "unknown"_a.none(),
                  "add_space_prefix"_a, "merge_spaces"_a,
                  "SentencePiece's unigram model. Raises FormatError.")
      .def_static("rwkv", &rwkv_tokenizer, "file"_a, "attributes"_a, "unknown"_a.none(),
                  "RWKV's World tokenizer. Raises FormatError.")
      .def("__len__", [](const Tokenizer& t) { return t.vocabulary().size(); })
      .def(
          "encode",
          [](const Tokenizer& t, nb::handle text, bool special, bool continuation) {
            return to_list(encode_text(t, text, special, continuation));
          },
          "text"_a, "parse_special"_a, "continuation"_a = false,
          nb::sig("def encode(self, text: str | bytes, parse_special: bool, continuation: bool = False) -> "
                  "list[int]"),
          "The ids of a text, without BOS and EOS. Before a continuation no space is put. Releases the GIL "
          "for all but\n"
          "short texts.")
      .def(
          "encode_array",
          [](const Tokenizer& t, nb::handle text, bool special) {
            return to_array(encode_text(t, text, special));
          },
          "text"_a, "parse_special"_a,
          nb::sig("def encode_array(self, text: str | bytes, parse_special: bool) -> NDArray[numpy.int32]"),
          "As encode, in an int32 array.")
      .def(
          "encode_trusting",
          [](const Tokenizer& t, nb::bytes text, const SpanTable& spans) {
            std::vector<Span> trusted;
            for (size_t i = 0; i < spans.shape(0); ++i)
              trusted.push_back({spans.data()[2 * i], spans.data()[2 * i + 1]});
            return to_list(encode(t, text, trusted));
          },
          "text"_a, "spans"_a,
          nb::sig("def encode_trusting(self, text: bytes, spans: NDArray[numpy.uint32]) -> list[int]"),
          "As encode, with control tokens recognised only inside the byte spans [begin, end), given in "
          "order.")
      .def("decode", &decode, "ids"_a, "skip_special"_a, "strip_space"_a,
           "The bytes of tokens. strip_space takes one space from text at the start and after special "
           "tokens.\n\n"
           "Raises IndexError for an id that is not in the vocabulary.")
      .def(
          "token_bytes",
          [](const Tokenizer& t, int64_t id) {
            check_id(t, id);
            const auto bytes = t.vocabulary().bytes(static_cast<uint32_t>(id));
            return nb::bytes(bytes.data(), bytes.size());
          },
          "id"_a, "The bytes that a token stands for. Raises IndexError.")
      .def(
          "token_text",
          [](const Tokenizer& t, int64_t id) {
            check_id(t, id);
            const auto text = t.vocabulary().text(static_cast<uint32_t>(id));
            return nb::bytes(text.data(), text.size());
          },
          "id"_a, "The token as it is written in the file. Raises IndexError.")
      .def(
          "attributes",
          [](const Tokenizer& t, int64_t id) {
            check_id(t, id);
            return t.vocabulary().attributes(static_cast<uint32_t>(id));
          },
          "id"_a,
          "What a token is: bits 0 to 7 are normal, unknown, control, user-defined, unused, byte,\n"
          "strip left, strip right. Raises IndexError.")
      .def(
          "find",
          [](const Tokenizer& t, const std::string& text) -> std::optional<uint32_t> {
            const uint32_t id = t.vocabulary().find(text);
            return id == kNoToken ? std::nullopt : std::optional(id);
          },
          "text"_a, "The token with this text in the file, or None.");
  m.def("find_tokens", &find_tokens, "file"_a, "names"_a,
        nb::sig("def find_tokens(file: File, names: collections.abc.Sequence[str]) -> dict[str, int]"),
        "Which of these texts are tokens, and their ids.");
  m.def(
      "pretokenizer",
      [](const std::string& name) -> nb::object {
        const PreTokenizer* p = find_pretokenizer(name);
        if (!p) return nb::none();
        return nb::make_tuple(p->byte_level, p->add_bos);
      },
      "name"_a, nb::sig("def pretokenizer(name: str) -> tuple[bool, bool] | None"),
      "(tokens are spelled byte by byte, BOS is added unless the file says otherwise), or None if unknown.");
  m.def(
      "pretokenize",
      [](const std::string& name, nb::handle text) {
        const PreTokenizer* p = find_pretokenizer(name);
        if (!p) throw nb::value_error("unknown pre-tokenizer");
        const Characters characters(text_of(text));
        Ends ends;
        p->split(characters, ends);
        nb::list pieces;
        uint32_t begin = 0;
        for (const uint32_t end : ends) {
          const uint32_t from = characters.start(begin), to = characters.start(end);
          pieces.append(nb::bytes(characters.bytes().data() + from, to - from));
          begin = end;
        }
        return pieces;
      },
      "name"_a, "text"_a, nb::sig("def pretokenize(name: str, text: str | bytes) -> list[bytes]"),
      "The pieces into which a pre-tokenizer cuts a text (for tests). Raises ValueError for an unknown one.");
  m.def(
      "pretokenizer_names",
      [] {
        nb::list names;
        for (const auto name : pretokenizer_names()) names.append(nb::str(name.data(), name.size()));
        return names;
      },
      nb::sig("def pretokenizer_names() -> list[str]"), "Every pre-tokenizer that is known.");
}

}  // namespace llamay
