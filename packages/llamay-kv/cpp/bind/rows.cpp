// Rows that are not tokens, and ids as files have them.
#include <nanobind/stl/tuple.h>

#include "bind/bindings.hpp"

namespace {

/// The ids of the first rows of a digest, which mean these rows for as long as this lives.
struct PyRows {
  std::shared_ptr<const RowSource> source;
  uint32_t n;
  std::vector<int32_t> ids(uint32_t begin, uint32_t end) const {
    return RowTable::process().ids(*source, begin, end);
  }
};

struct PyHeldRows {
  HeldRows rows;
};

nb::bytes to_bytes(const Digest& digest) { return nb::bytes(digest.data(), digest.size()); }

int32_t item(const PyRows& self, int64_t at) {
  if (at < 0) at += self.n;
  if (at < 0 || at >= int64_t(self.n))
    throw nb::index_error(("there are " + std::to_string(self.n) + " rows").c_str());
  return self.ids(uint32_t(at), uint32_t(at) + 1).front();
}

std::vector<int32_t> part(const PyRows& self, nb::slice slice) {
  const auto [start, stop, step, n] = slice.compute(self.n);
  std::vector<int32_t> ids;
  if (step == 1) return n ? self.ids(uint32_t(start), uint32_t(stop)) : ids;
  for (size_t i = 0; i < n; ++i) ids.push_back(item(self, start + Py_ssize_t(i) * step));
  return ids;
}

PyRows rows(Arg<"digest", nb::bytes> given, Arg<"n", int64_t> rows) {
  const nb::bytes& digest = given;
  const int64_t n = rows;
  Digest d;
  if (digest.size() != d.size())
    throw nb::value_error(("a digest has 32 bytes, not " + std::to_string(digest.size())).c_str());
  if (n < 1 || n > INT32_MAX)
    throw nb::value_error(("n must be from 1 to 2^31 - 1, not " + std::to_string(n)).c_str());
  std::copy_n(reinterpret_cast<const uint8_t*>(digest.c_str()), d.size(), d.begin());
  return {RowTable::process().intern(d, 0, uint32_t(n)), uint32_t(n)};
}

nb::object digest_of(Arg<"row", int64_t> row) {
  const int64_t id = row;
  if (id < INT32_MIN || id > INT32_MAX) return nb::none();
  const auto [source, index] = RowTable::process().find(int32_t(id));
  return source ? nb::object(nb::make_tuple(to_bytes(source->digest), index)) : nb::none();
}

nb::object token_ids(IdsArg<"tokens"> tokens) {
  auto* memory = new std::vector<int32_t>(std::move(tokens.value));
  nb::capsule owner(memory, [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, int32_t>(memory->data(), {memory->size()}, owner));
}

nb::object describe_ids(IdsArg<"ids"> ids) {
  auto* d = new DescribedIds(describe(ids.value));
  const nb::bytes table(d->table.data(), d->table.size());
  nb::capsule owner(d, [](void* p) noexcept { delete static_cast<DescribedIds*>(p); });
  return nb::make_tuple(nb::ndarray<nb::numpy, int32_t>(d->ids.data(), {d->ids.size()}, owner), table);
}

nb::object resolve_ids(IdsArg<"ids"> ids, Arg<"table", nb::bytes> table) {
  auto [resolved, held] = resolve(ids.value, {table.value.c_str(), table.value.size()});
  auto* memory = new std::vector<int32_t>(std::move(resolved));
  nb::capsule owner(memory, [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
  return nb::make_tuple(nb::ndarray<nb::numpy, int32_t>(memory->data(), {memory->size()}, owner),
                        PyHeldRows{std::move(held)});
}

}  // namespace

void bind_rows(nb::module_& m) {
  // The id of a position whose token was not given. It equals no other: prefixes end before it.
  m.attr("UNKNOWN_TOKEN") = kUnknownToken;
  nb::class_<PyRows>(
      m, "Rows",
      "The ids of rows that are not tokens, in the order of the rows: a sequence of negative integers.\n\n"
      "An id means its row for as long as this object lives, and for as long as a context, a prefix tree or "
      "a\n"
      "save that waits has it. Copies of the ids hold nothing: keep this beside them.")
      .def("__len__", [](const PyRows& r) { return r.n; })
      .def("__getitem__", &item, nb::sig("def __getitem__(self, index: int, /) -> int"))
      .def("__getitem__", &part, nb::sig("def __getitem__(self, index: slice, /) -> list[int]"))
      .def(
          "__iter__", [](const PyRows& r) { return nb::iter(nb::cast(r.ids(0, r.n))); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[int]"))
      .def_prop_ro(
          "digest", [](const PyRows& r) { return to_bytes(r.source->digest); },
          "The 32 bytes that name the vectors of the rows.");
  nb::class_<PyHeldRows>(m, "HeldRows",
                         "Rows whose ids keep their meaning for as long as this object lives.");
  m.def("rows", &rows, "digest"_a, "n"_a, nb::sig("def rows(digest: bytes, n: int) -> Rows"),
        "The first n rows of a digest.");
  m.def("digest_of", &digest_of, "row"_a, nb::sig("def digest_of(row: int) -> tuple[bytes, int] | None"),
        "The digest and the index of a row; None if the id is no row's.");
  m.def(
      "hold_rows", [](IdsArg<"ids"> ids) { return PyHeldRows{RowTable::process().hold(ids.value)}; }, "ids"_a,
      nb::sig("def hold_rows(ids: collections.abc.Sequence[int] | numpy.ndarray) -> HeldRows"),
      "Hold the rows among some ids. ValueError at an id that is neither a token, unknown nor a row.");
  m.def("token_ids", &token_ids, "tokens"_a,
        nb::sig("def token_ids(tokens: collections.abc.Sequence[int] | numpy.ndarray) -> numpy.ndarray"),
        "The ids of tokens or rows as int32. TypeError or ValueError at what is none.");
  m.def("describe_ids", &describe_ids, "ids"_a,
        nb::sig("def describe_ids(ids: collections.abc.Sequence[int] | numpy.ndarray) -> "
                "tuple[numpy.ndarray, bytes]"),
        "The ids as files have them, which is the same in every process, and the table of the rows among "
        "them.");
  m.def("resolve_ids", &resolve_ids, "ids"_a, "table"_a,
        nb::sig("def resolve_ids(ids: collections.abc.Sequence[int] | numpy.ndarray, table: bytes) -> "
                "tuple[numpy.ndarray, HeldRows]"),
        "The ids of this process for the result of describe_ids, and an object that holds their rows. "
        "ValueError for "
        "anything else.");
}
