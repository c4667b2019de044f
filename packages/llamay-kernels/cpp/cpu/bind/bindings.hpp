#pragma once

#include <nanobind/nanobind.h>

/// Binds PlanError, Threads and Plan.
void bind_plan(nanobind::module_& m);
