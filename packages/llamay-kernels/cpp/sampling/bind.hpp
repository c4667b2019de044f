#pragma once

#include <nanobind/nanobind.h>

/// Sampler, sample_batch, logprobs, philox4x32.
void bind_sampling(nanobind::module_& m);
/// fill_masks.
void bind_masks(nanobind::module_& m);
