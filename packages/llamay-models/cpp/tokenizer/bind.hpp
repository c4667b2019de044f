#pragma once

#include <nanobind/nanobind.h>

namespace llamay {

void bind_tokenizer(nanobind::module_& m);
/// StreamDecoder.
void bind_stream(nanobind::module_& m);

}  // namespace llamay
