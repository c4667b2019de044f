#include <nanobind/nanobind.h>

#include <system_error>

#include "error.hpp"
#include "gguf/bind.hpp"
#include "tokenizer/bind.hpp"

namespace nb = nanobind;

namespace {

PyObject* format_error = nullptr;

/// Raise `type` with (problem, hint, offset or None). Messages quote names from the file, which need not be
/// UTF-8.
void raise_format_error(const llamay::FormatError& e) {
  const auto decode = [](const std::string& s) {
    return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
  };
  nb::object offset = nb::none();
  if (e.offset() != llamay::FormatError::kNowhere) offset = nb::int_(e.offset());
  PyErr_SetObject(format_error, nb::make_tuple(decode(e.problem()), decode(e.hint()), offset).ptr());
}

}  // namespace

NB_MODULE(_native, m) {
  format_error =
      PyErr_NewExceptionWithDoc("llamay_models._native.FormatError",
                                "A file or vocabulary that cannot be used: (problem, hint, offset or None).",
                                PyExc_ValueError, nullptr);
  m.attr("FormatError") = nb::borrow(format_error);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const llamay::FormatError& e) {
      raise_format_error(e);
    } catch (const std::system_error& e) {
      errno = e.code().value();
      PyErr_SetFromErrno(PyExc_OSError);
    }
  });
  llamay::bind_gguf(m);
  llamay::bind_tokenizer(m);
  llamay::bind_stream(m);
}
