#pragma once

#include <nanobind/nanobind.h>

/// Binds limits and Limits.
void bind_probe(nanobind::module_& m);
