#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "cpu/bind/bindings.hpp"
#include "dispatch.hpp"
#include "matmul/bind/bindings.hpp"
#include "ops/bind/bindings.hpp"
#include "probe/bind/bindings.hpp"
#include "sampling/bind/bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // a plan held by a module until the very end is no leak
  llamay::active_isa();          // a bad $LLAMAY_ISA fails the import, not the first token

  m.def("isa", [] { return llamay::name(llamay::active_isa()); }, "The kernel set in use.");
  m.def("use_isa", &llamay::use_isa, "name"_a,
        "Use this kernel set from the next call on, in the whole process.\n\n"
        "Raises ValueError, naming the choices, if this CPU cannot run it. Results do not depend on the "
        "choice.");
  m.def(
      "runnable_isas",
      [] {
        std::vector<std::string> names;
        for (const auto isa : llamay::runnable_isas()) names.emplace_back(llamay::name(isa));
        return names;
      },
      "The kernel sets this CPU runs, fastest first; 'portable' comes last.");
  bind_plan(m);
  bind_matmul(m);
  bind_sampling(m);
  bind_masks(m);
  bind_probe(m);
  bind_ops(m);
  bind_recurrent(m);
  bind_experts(m);
  bind_attention(m);
}
