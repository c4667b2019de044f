#pragma once

#include <nanobind/nanobind.h>

// Kernels by themselves, for tests.

/// Functions of one value, and of a row.
void bind_ops(nanobind::module_& m);
/// Convolutions and scans.
void bind_recurrent(nanobind::module_& m);
/// Which experts a row takes, and the sum of what they make of it.
void bind_experts(nanobind::module_& m);
/// Attention over pages made on the spot.
void bind_attention(nanobind::module_& m);
