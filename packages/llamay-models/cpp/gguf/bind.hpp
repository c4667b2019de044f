#pragma once

#include <nanobind/nanobind.h>

namespace llamay {

void bind_gguf(nanobind::module_& m);

}  // namespace llamay
