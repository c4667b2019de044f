#pragma once

#include <nanobind/nanobind.h>

/// The elementary functions, for tests of their accuracy.
void bind_ops(nanobind::module_& m);
