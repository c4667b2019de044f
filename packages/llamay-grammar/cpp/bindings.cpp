// The Python face of the native core.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "api/compile.h"
#include "api/constraint.h"
#include "support/compile_error.h"

namespace nb = nanobind;
using namespace llamay::grammar;

namespace {

using Words = nb::ndarray<nb::device::cpu>;

/// The array to write masks to, itself and no copy of it: words of numpy, torch, or whatever else has DLPack.
Words writable(nb::handle out, size_t dimensions) {
  Words words;
  if (nb::try_cast(out, words, false) && words.ndim() == dimensions &&
      (words.dtype() == nb::dtype<uint32_t>() || words.dtype() == nb::dtype<int32_t>()))
    return words;
  throw nb::type_error(("out must be a writable array of uint32 or int32 with " + std::to_string(dimensions) +
                        (dimensions == 1 ? " dimension" : " dimensions") + ", in the memory of the CPU")
                           .c_str());
}

void check_words(const Matcher& matcher, size_t words) {
  const size_t needed = matcher.grammar()->vocabulary->words();
  if (words < needed)
    throw nb::value_error(("the mask is too short: it has " + std::to_string(words) +
                           " words, but the tokens of the vocabulary need " + std::to_string(needed))
                              .c_str());
}

/// Writes the mask to words that lie `stride` words apart, and clears those beyond the vocabulary.
void fill_row(const Matcher& matcher, uint32_t* row, int64_t stride, size_t words) {
  const size_t used = matcher.grammar()->vocabulary->words();
  if (stride == 1) {
    matcher.fill_mask(row);
  } else {
    std::vector<uint32_t> mask(used);
    matcher.fill_mask(mask.data());
    for (size_t i = 0; i < used; ++i) row[static_cast<int64_t>(i) * stride] = mask[i];
  }
  for (size_t i = used; i < words; ++i) row[static_cast<int64_t>(i) * stride] = 0;
}

std::shared_ptr<Vocabulary> make_vocabulary(nb::bytes flat,
                                            nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig> offsets,
                                            const std::vector<uint32_t>& special,
                                            const std::vector<uint32_t>& ends) {
  std::string bytes(flat.c_str(), flat.size());
  std::vector<uint64_t> off(offsets.data(), offsets.data() + offsets.shape(0));
  nb::gil_scoped_release release;
  return std::make_shared<Vocabulary>(std::move(bytes), std::move(off), special, ends);
}

CompileOptions options(const std::string& mode, const std::string& draft, const std::string& whitespace,
                       uint32_t max_whitespace, bool schema_order, bool canonical_escapes, double seconds,
                       uint32_t states, uint32_t alternatives) {
  CompileOptions o;
  o.mode = mode == "exact"         ? CompileMode::Exact
           : mode == "approximate" ? CompileMode::Approximate
                                   : CompileMode::Annotate;
  o.draft = draft == "4"         ? Draft::D4
            : draft == "6"       ? Draft::D6
            : draft == "7"       ? Draft::D7
            : draft == "2019-09" ? Draft::D2019
            : draft == "2020-12" ? Draft::D2020
                                 : Draft::Any;
  o.whitespace = whitespace == "compact"  ? Whitespace::Compact
                 : whitespace == "spaced" ? Whitespace::Spaced
                                          : Whitespace::Flexible;
  o.max_whitespace = max_whitespace, o.schema_order = schema_order, o.canonical_escapes = canonical_escapes;
  o.budget.seconds = seconds, o.budget.automaton_states = states, o.budget.alternatives = alternatives;
  return o;
}

}  // namespace

NB_MODULE(_grammar, m) {
  // The exception types are Python's: they carry fields.
  nb::object errors = nb::module_::import_("llamay_grammar.errors");
  m.attr("errors") = errors;
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void* payload) {
        nb::handle types(static_cast<PyObject*>(payload));
        try {
          std::rethrow_exception(p);
        } catch (const CompileError& e) {
          PyErr_SetObject(types.attr("CompileError").ptr(),
                          nb::make_tuple(e.what(), e.keyword, e.pointer).ptr());
        } catch (const RefusedTokenError& e) {
          PyErr_SetString(types.attr("RefusedTokenError").ptr(), e.what());
        }
      },
      errors.ptr());

  nb::class_<Vocabulary>(m, "_Vocabulary")
      .def_prop_ro("size", &Vocabulary::size)
      .def_prop_ro("cache_bytes", &Vocabulary::cache_bytes)
      .def_rw("cache_limit", &Vocabulary::cache_limit)
      .def("bytes_of", [](const Vocabulary& v, uint32_t t) {
        if (t >= v.size()) throw nb::index_error("token outside the vocabulary");
        auto b = v.bytes(t);
        return nb::bytes(b.data(), b.size());
      });
  m.def("_make_vocabulary", &make_vocabulary);

  nb::class_<Grammar>(m, "_Grammar")
      .def_prop_ro("warnings", [](const Grammar& g) { return g.program.warnings; })
      .def_prop_ro("nodes", [](const Grammar& g) { return g.program.nodes.size(); });

  nb::class_<CompileOptions>(m, "_Options")
      .def(
          "__init__",
          [](CompileOptions* self, const std::string& mode, const std::string& draft,
             const std::string& whitespace, uint32_t max_whitespace, bool schema_order,
             bool canonical_escapes, double seconds, uint32_t states, uint32_t alternatives,
             std::optional<std::function<std::optional<std::string>(const std::string&)>> resolver) {
            new (self) CompileOptions(options(mode, draft, whitespace, max_whitespace, schema_order,
                                              canonical_escapes, seconds, states, alternatives));
            if (resolver)
              self->resolver = [r = *resolver](const std::string& uri) {
                nb::gil_scoped_acquire hold;
                return r(uri);
              };
          },
          nb::arg("mode"), nb::arg("draft"), nb::arg("whitespace"), nb::arg("max_whitespace"),
          nb::arg("schema_order"), nb::arg("canonical_escapes"), nb::arg("seconds"), nb::arg("states"),
          nb::arg("alternatives"), nb::arg("resolver").none());

  m.def("_compile_json_schema", &compile_json_schema, nb::call_guard<nb::gil_scoped_release>());
  m.def("_compile_regex", &compile_regex, nb::call_guard<nb::gil_scoped_release>());
  m.def("_compile_gbnf", &compile_gbnf, nb::call_guard<nb::gil_scoped_release>());
  m.def("_compile_ebnf", &compile_ebnf, nb::call_guard<nb::gil_scoped_release>());
  m.def("_compile_layout", &compile_layout, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<Matcher>(m, "_Matcher")
      .def(nb::new_([](std::shared_ptr<Grammar> g) { return std::make_shared<Matcher>(g); }))
      .def(
          "fill_mask",
          [](const Matcher& self, nb::handle out) {
            const Words words = writable(out, 1);
            check_words(self, words.shape(0));
            nb::gil_scoped_release release;
            fill_row(self, static_cast<uint32_t*>(words.data()), words.stride(0), words.shape(0));
          },
          nb::arg("out").none())
      .def("fill_pointer",
           [](const Matcher& self, uintptr_t out) {
             nb::gil_scoped_release release;
             self.fill_mask(reinterpret_cast<uint32_t*>(out));
           })
      .def("allows", &Matcher::allows, nb::call_guard<nb::gil_scoped_release>())
      .def("accept", &Matcher::accept, nb::call_guard<nb::gil_scoped_release>())
      .def("rollback", &Matcher::rollback)
      .def("fork", [](const Matcher& self) { return std::make_shared<Matcher>(self); })
      .def("constraint",
           [](std::shared_ptr<Matcher> self) {
             return nb::capsule(
                 make_constraint(std::move(self)), LLAMAY_TOKEN_CONSTRAINT_CAPSULE,
                 [](void* p) noexcept { free_constraint(static_cast<llamay_token_constraint*>(p)); });
           })
      .def("forced", &Matcher::forced, nb::call_guard<nb::gil_scoped_release>())
      .def("forced_bytes",
           [](const Matcher& self, uint32_t limit) {
             std::string s = self.forced_bytes(limit);
             return nb::bytes(s.data(), s.size());
           })
      .def_prop_ro("complete", &Matcher::complete)
      .def_prop_ro("ended", &Matcher::ended)
      .def_prop_ro("length", &Matcher::length)
      .def("tokens", &Matcher::tokens)
      .def("expected", &Matcher::expected);

  m.def(
      "_fill_masks",
      [](const std::vector<Matcher*>& matchers, nb::handle out) {
        const Words words = writable(out, 2);
        if (words.shape(0) < matchers.size())
          throw nb::value_error((std::to_string(matchers.size()) +
                                 " matchers need as many rows, but out has " + std::to_string(words.shape(0)))
                                    .c_str());
        for (const Matcher* x : matchers) check_words(*x, words.shape(1));
        nb::gil_scoped_release release;
        uint32_t* row = static_cast<uint32_t*>(words.data());
        for (const Matcher* x : matchers) {
          fill_row(*x, row, words.stride(1), words.shape(1));
          row += words.stride(0);
        }
      },
      nb::arg("matchers"), nb::arg("out").none());
}
