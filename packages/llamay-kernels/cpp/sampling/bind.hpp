#pragma once

#include <nanobind/nanobind.h>

/// Sampler, logprobs, philox4x32.
void bind_sampling(nanobind::module_& m);
