#pragma once

#include <nanobind/nanobind.h>

// Kernels by themselves, for tests.

/// Functions of one value, and of a row.
void bind_ops(nanobind::module_& m);
/// Convolutions and scans.
void bind_recurrent(nanobind::module_& m);
/// The choice of experts for a row, and the weighted sum of their outputs.
void bind_experts(nanobind::module_& m);
/// Attention over temporary pages.
void bind_attention(nanobind::module_& m);
