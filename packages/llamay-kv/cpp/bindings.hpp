#pragma once
// What the files of the bindings share.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "context.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace llamay::kv;

struct PyPool {
  std::shared_ptr<Pool> core;
};

struct PyContext {
  std::shared_ptr<Context> core;
  nb::object pool;  // the object the user made, so that context.pool is that one
};

/// A Python object of a class that derives from _kv.Context.
nb::object wrap_context(nb::handle type, nb::object pool, std::shared_ptr<Context> core);

/// Token ids from any sequence of int; an int32 array is not walked element by element.
std::vector<int32_t> to_ids(nb::handle tokens);

void bind_prefix_tree(nb::module_& m);
