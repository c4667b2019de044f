#pragma once

#include <nanobind/nanobind.h>

/// limits, Limits.
void bind_probe(nanobind::module_& m);
