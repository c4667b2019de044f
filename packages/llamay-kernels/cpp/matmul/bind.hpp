#pragma once

#include <nanobind/nanobind.h>

/// Weight, dequantize, quantize, FORMATS, and the entry points that tests use.
void bind_matmul(nanobind::module_& m);
