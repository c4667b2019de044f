#pragma once

#include <nanobind/nanobind.h>

/// PlanError, Threads, Plan.
void bind_plan(nanobind::module_& m);
