// The Python module of the core. The bindings check shapes and types; the core decides their meaning.
#include "bind/bindings.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "numbers/crc64.hpp"

using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<int32_t> to_ids(nb::handle tokens) {
  Ids array;
  if (nb::try_cast(tokens, array, false)) return {array.data(), array.data() + array.shape(0)};
  return nb::cast<std::vector<int32_t>>(tokens);
}

void check_group(const Pool& pool, uint32_t g) {
  if (g >= pool.n_groups())
    throw nb::index_error(("the layout has " + std::to_string(pool.n_groups()) + " groups").c_str());
}

NB_MODULE(_kv, m) {
  m.def(
      "kv_view_version", [] { return std::make_tuple(LLAMAY_KV_VIEW_MAJOR, LLAMAY_KV_VIEW_MINOR); },
      "Major and minor version of abi/llamay/kv_view.h as this module was compiled with it.");
  nb::exception<OutOfPagesError>(m, "OutOfPagesError", PyExc_MemoryError);
  nb::exception<ContextBusyError>(m, "ContextBusyError", PyExc_RuntimeError);
  nb::exception<PagesLostError>(m, "PagesLostError", PyExc_RuntimeError);
  nb::exception<ClosedError>(m, "ClosedError", PyExc_ValueError);

  m.def(
      "crc64",
      [](ConstBytes data, uint64_t previous) {
        const size_t n = data.shape(0);
        if (n < 4096) return crc64(data.data(), n, previous);
        nb::gil_scoped_release nogil;
        return crc64(data.data(), n, previous);
      },
      "data"_a, "previous"_a = 0,
      nb::sig("def crc64(data: bytes | bytearray | memoryview | numpy.ndarray, previous: int = 0) -> int"),
      "CRC-64/NVME of a buffer, continuing from the CRC of the bytes before it.");

  bind_pool(m);
  bind_context(m);
  bind_lease(m);
  bind_prefix_tree(m);
  bind_rows(m);
}
