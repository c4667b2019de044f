// The Python module of the core. The bindings check shapes and types; the core decides their meaning.
#include "bind/bindings.hpp"

#include <nanobind/stl/tuple.h>

#include "numbers/crc64.hpp"

const std::shared_ptr<Pool>& core_of(nb::handle pool) {
  const PyPool* given = nullptr;
  take("pool", pool, given);
  return given->core;
}

void check_group(const Pool& pool, uint32_t g) {
  if (g >= pool.n_groups())
    throw nb::index_error(
        ("group " + std::to_string(g) + ": the layout has " + std::to_string(pool.n_groups()) + " groups")
            .c_str());
}

NB_MODULE(_kv, m) {
  m.def(
      "kv_view_version", [] { return std::make_tuple(LLAMAY_KV_VIEW_MAJOR, LLAMAY_KV_VIEW_MINOR); },
      "Major and minor version of abi/llamay/kv_view.h as this module was compiled with it.");
  nb::exception<OutOfPagesError>(m, "OutOfPagesError", PyExc_MemoryError).doc() =
      "The budget of the pool does not suffice. The call that raises it has changed nothing.";
  nb::exception<ContextBusyError>(m, "ContextBusyError", PyExc_RuntimeError).doc() =
      "The context is in use: it has an open lease, or another thread is at work on it.";
  nb::exception<PagesLostError>(m, "PagesLostError", PyExc_RuntimeError).doc() =
      "Spilled pages could not be read back. The context that needed them was closed.";
  nb::exception<ClosedError>(m, "ClosedError", PyExc_ValueError).doc() =
      "A context or a lease was used after its end.";

  m.def(
      "crc64",
      [](Arg<"data", ConstBytes> given, Arg<"previous", uint64_t> previous) {
        const ConstBytes& data = given;
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
