// The functions of contexts and leases that move the bytes of snapshots, and checks for these and for arrays.
#include <algorithm>

#include "bind/bindings.hpp"
#include "pages/copy.hpp"

void check_range(uint32_t begin, uint32_t end, uint32_t first, uint32_t last) {
  if (begin > end || begin < first || end > last)
    throw nb::value_error(("positions [" + std::to_string(begin) + ", " + std::to_string(end) +
                           ") are not within [" + std::to_string(first) + ", " + std::to_string(last) + ")")
                              .c_str());
}

void check_present(const Table& table, size_t g, uint32_t begin, uint32_t end) {
  if (table.pool()->layout(g).recurrent())
    throw nb::value_error(
        ("group " + std::to_string(g) + " is recurrent: it has states and no positions").c_str());
  const uint32_t first = table.group(g).first;
  if (begin < end && begin < first)
    throw nb::value_error(("positions before " + std::to_string(first) +
                           " were dropped: they lie behind the window of group " + std::to_string(g))
                              .c_str());
}

std::byte* state_page(const Table& table, size_t g, uint32_t at) {
  const Pool& pool = *table.pool();
  if (!pool.layout(g).recurrent())
    throw nb::value_error(("group " + std::to_string(g) + " has no states: it is not recurrent").c_str());
  const Checkpoints* list = table.states().checkpoints();
  for (const States* states : {&table.states().live(), list ? &list->states : nullptr})
    if (states)
      if (const size_t i = states->find(at); i < states->size()) return pool.page(g, states->pages[g][i]);
  throw nb::value_error(("there is no state after " + std::to_string(at) + " tokens" +
                         (at ? "" : ": it is all zeros there and not stored"))
                            .c_str());
}

uint32_t reserved_state(const Lease& lease, std::optional<uint32_t> after) {
  const uint32_t n = after.value_or(lease.size());
  if (n == 0 || n > lease.size())
    throw nb::value_error(("after: " + std::to_string(n) + " is not from 1 to the " +
                           std::to_string(lease.size()) + " reserved tokens")
                              .c_str());
  const auto listed = lease.states();
  if (std::find(listed.begin(), listed.end(), n) == listed.end())
    throw nb::value_error(("there is no room for the state after " + std::to_string(n) +
                           " of the reserved tokens; list it in `states` when reserving")
                              .c_str());
  return lease.begin() + n;
}

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <>
constexpr const char* kWanted<Bytes> = "a writable, contiguous array of uint8 with one dimension";
template <>
constexpr bool kConverts<Bytes> = false;

namespace {

void pack_into(const PyContext& self, Arg<"group"> g, Arg<"begin"> begin, Arg<"end"> end,
               Arg<"out", Bytes> given) {
  const Bytes& out = given;
  const auto e = view_of(self);
  const Pool& pool = *self.core->pool();
  check_group(pool, g);
  check_range(begin, end, 0, e->view()->n_tokens);
  check_present(e->table(), g, begin, end);
  if (out.shape(0) != pool.layout(g).packed_bytes(end - begin))
    throw nb::value_error(("out has the wrong size: " + std::to_string(out.shape(0)) + " bytes for " +
                           std::to_string(pool.layout(g).packed_bytes(end - begin)))
                              .c_str());
  nb::gil_scoped_release nogil;
  pack(e->table(), g, begin, end, reinterpret_cast<std::byte*>(out.data()));
}

void unpack_from(const PyLease& self, Arg<"group"> g, Arg<"begin"> begin, Arg<"end"> end,
                 Arg<"data", ConstBytes> data) {
  const ConstBytes& in = data;
  const auto e = self.core->view();
  const Pool& pool = *e->table().pool();
  check_group(pool, g);
  check_range(begin, end, self.core->begin(), self.core->begin() + self.core->size());
  check_present(e->table(), g, begin, end);
  if (in.shape(0) != pool.layout(g).packed_bytes(end - begin))
    throw nb::value_error(("data has the wrong size: " + std::to_string(in.shape(0)) + " bytes for " +
                           std::to_string(pool.layout(g).packed_bytes(end - begin)))
                              .c_str());
  nb::gil_scoped_release nogil;
  unpack(e->table(), g, begin, end, reinterpret_cast<const std::byte*>(in.data()));
}

/// The bytes of a chunk without a copy, where a page holds exactly that; None otherwise.
template <class Array>
nb::object in_place(std::unique_ptr<Export> e, uint32_t g, uint32_t begin, uint32_t end) {
  const std::byte* data = packed_in_place(e->table(), g, begin, end);
  if (!data) return nb::none();
  const size_t size = e->table().pool()->layout(g).page_bytes;
  nb::capsule owner(e.release(), [](void* p) noexcept { delete static_cast<Export*>(p); });
  return nb::cast(Array(const_cast<std::byte*>(data), {size}, owner, {}, nb::dtype<uint8_t>()));
}

nb::object packed_view(const PyContext& self, Arg<"group"> g, Arg<"begin"> begin, Arg<"end"> end) {
  auto e = view_of(self);
  check_group(*self.core->pool(), g);
  check_range(begin, end, 0, e->view()->n_tokens);
  check_present(e->table(), g, begin, end);
  return in_place<nb::ndarray<nb::numpy, nb::ro>>(std::move(e), g, begin, end);
}

nb::object packed_target(const PyLease& self, Arg<"group"> g, Arg<"begin"> begin, Arg<"end"> end) {
  check_group(*self.core->context()->pool(), g);
  check_range(begin, end, self.core->begin(), self.core->begin() + self.core->size());
  check_present(self.core->view()->table(), g, begin, end);
  return in_place<nb::ndarray<nb::numpy>>(self.core->view(), g, begin, end);
}

nb::bytes pack_state(const PyContext& self, Arg<"group"> g, Arg<"at"> at) {
  const auto e = view_of(self);
  check_group(*self.core->pool(), g);
  const std::byte* base = state_page(e->table(), g, at);
  std::vector<std::byte> out(self.core->pool()->layout(g).state_bytes);
  pack_page(self.core->pool()->layout(g), base, out.data());
  return nb::bytes(out.data(), out.size());
}

void unpack_state(PyLease& self, Arg<"group"> g, Arg<"after"> after, Arg<"data", ConstBytes> data) {
  const ConstBytes& in = data;
  const auto e = self.core->view();
  const Pool& pool = *e->table().pool();
  check_group(pool, g);
  const uint32_t at = reserved_state(*self.core, after);
  std::byte* base = state_page(e->table(), g, at);
  if (in.shape(0) != pool.layout(g).state_bytes)
    throw nb::value_error(("data has the wrong size: " + std::to_string(in.shape(0)) + " bytes for " +
                           std::to_string(pool.layout(g).state_bytes))
                              .c_str());
  unpack_page(pool.layout(g), reinterpret_cast<const std::byte*>(in.data()), base);
  self.core->state_written(at);
}

}  // namespace

void bind_packing(nb::class_<PyContext>& c) {
  c.def("pack_into", &pack_into, "group"_a, "begin"_a, "end"_a, "out"_a,
        nb::sig("def pack_into(self, group: int, begin: int, end: int, out: numpy.ndarray) -> None"),
        "Write positions [begin, end) of a group into out, in the order of a snapshot's chunk.")
      .def("packed_view", &packed_view, "group"_a, "begin"_a, "end"_a,
           nb::sig("def packed_view(self, group: int, begin: int, end: int) -> numpy.ndarray | None"),
           "The same without a copy, where one page holds exactly that; else None.")
      .def("pack_state", &pack_state, "group"_a, "at"_a,
           nb::sig("def pack_state(self, group: int, at: int) -> bytes"),
           "The bytes of all layers of a group after so many tokens, in the order of a snapshot.");
}

void bind_unpacking(nb::class_<PyLease>& c) {
  c.def("unpack_from", &unpack_from, "group"_a, "begin"_a, "end"_a, "data"_a,
        nb::sig("def unpack_from(self, group: int, begin: int, end: int, data: bytes | memoryview | "
                "numpy.ndarray) -> "
                "None"),
        "Fill positions [begin, end) of a group from a snapshot's chunk.")
      .def("packed_target", &packed_target, "group"_a, "begin"_a, "end"_a,
           nb::sig("def packed_target(self, group: int, begin: int, end: int) -> numpy.ndarray | None"),
           "The memory that unpack_from would fill, where one page is exactly that; else None.")
      .def("unpack_state", &unpack_state, "group"_a, "after"_a, "data"_a,
           nb::sig("def unpack_state(self, group: int, after: int, data: bytes | memoryview | numpy.ndarray) "
                   "-> None"),
           "Fill the state after the first `after` reserved tokens from the bytes of pack_state.");
}
