#pragma once

#include <nanobind/nanobind.h>

/// Binds Weight, dequantize, quantize, FORMATS, and the functions that tests use.
void bind_matmul(nanobind::module_& m);
