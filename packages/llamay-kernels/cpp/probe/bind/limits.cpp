#include "probe/bind/bindings.hpp"

#include <nanobind/stl/string.h>

#include <cstdio>
#include <string>

#include "probe/limits.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_probe(nb::module_& m) {
  using llamay::Limits;
  nb::class_<Limits>(m, "Limits",
                     "The best rates that were measured on this machine: the two that bound an engine.")
      .def_ro("read_bandwidth", &Limits::read_bandwidth,
              "Bytes a second, read from memory by all threads together.")
      .def_ro("int8_ops", &Limits::int8_ops,
              "Operations (a multiplication is one, its addition another) on 8-bit integers a second, in the "
              "kernel set in use.")
      .def_ro("threads", &Limits::threads, "How many threads took part.")
      .def_prop_ro(
          "isa", [](const Limits& l) { return l.isa; }, "The kernel set that was measured.")
      .def("__repr__", [](const Limits& l) {
        char text[160];
        std::snprintf(text, sizeof text, "Limits(read_bandwidth=%.4g, int8_ops=%.4g, threads=%u, isa='%s')",
                      l.read_bandwidth, l.int8_ops, l.threads, l.isa);
        return std::string(text);
      });
  m.def("limits", &llamay::measure_limits, "threads"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Measure Limits with these threads, which takes about a second. On a busy machine the rates are the "
        "part that other processes leave.");
}
