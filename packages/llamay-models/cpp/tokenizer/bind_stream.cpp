#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "tokenizer/bind.hpp"
#include "tokenizer/tokenizer.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using namespace tokenizer;

/// Python's own decoder says what a whole character is, so that pieces and whole texts decode alike.
nb::object to_text(const std::string& bytes, Py_ssize_t* used) {
  PyObject* text =
      PyUnicode_DecodeUTF8Stateful(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace", used);
  if (!text) throw nb::python_error();
  return nb::steal(text);
}

std::string shown(nb::handle value) { return nb::cast<std::string>(nb::repr(value)); }

class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special,
                const std::vector<uint32_t>& keep)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), keep_(keep.begin(), keep.end()) {}

  nb::object push(const nb::args& tokens) {
    const Vocabulary& v = tokenizer_->vocabulary();
    for (const nb::handle token : tokens) {
      int64_t id = -1;
      const bool fits = nb::try_cast<int64_t>(token, id);
      if (!fits && !PyLong_Check(token.ptr()))
        throw nb::type_error(("a token must be a whole number, not " + shown(token)).c_str());
      if (!fits || id < 0 || id >= v.size())
        throw nb::index_error(("token " + (fits ? std::to_string(id) : shown(token)) +
                               " is not in the vocabulary of " + std::to_string(v.size()))
                                  .c_str());
      const auto known = static_cast<uint32_t>(id);
      const bool hidden =
          skip_special_ && v.attributes(known) & (kControl | kUnknown) && !keep_.contains(known);
      if (!hidden) held_ += v.bytes(known);
    }
    Py_ssize_t used = 0;
    nb::object text = to_text(held_, &used);
    held_.erase(0, static_cast<size_t>(used));
    return text;
  }

  nb::object finish() {
    nb::object text = to_text(held_, nullptr);
    held_.clear();
    return text;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::unordered_set<uint32_t> keep_;
  std::string held_;
};

}  // namespace

void bind_stream(nb::module_& m) {
  nb::class_<StreamDecoder>(
      m, "StreamDecoder",
      "Turns tokens into text as they come, holding back bytes until they make a whole character.\n\n"
      "The tokens go on from others. skip_special leaves control tokens out, all but those of keep.")
      .def(nb::init<std::shared_ptr<const Tokenizer>, bool, const std::vector<uint32_t>&>(), "tokenizer"_a,
           "skip_special"_a, "keep"_a)
      .def("push", &StreamDecoder::push, nb::sig("def push(self, *tokens: int) -> str"),
           "The text that these tokens complete; often \"\" in the middle of a character. Raises IndexError.")
      .def("finish", &StreamDecoder::finish, nb::sig("def finish(self) -> str"),
           "What is still held back, with U+FFFD for bytes that are no character; then it starts afresh.");
}

}  // namespace llamay
