// Any bytes must give a file or a FormatError, and everything that a file offers must be readable.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "error.hpp"
#include "gguf/reader.hpp"

using namespace llamay;

namespace {

uint64_t sum = 0;

void touch(const uint8_t* data, uint64_t size) {
  for (uint64_t i = 0; i < size; ++i) sum += data[i];
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const gguf::File file = gguf::File::parse(gguf::Mapping::of_bytes({data, size}));
    for (const auto& entry : file.entries()) {
      touch(entry.raw.data(), entry.raw.size());
      require(file.find(entry.key) == &entry);
      if (entry.type != gguf::ValueType::kString) continue;
      for (uint64_t i = 0; i < entry.count; ++i) {
        const auto text = gguf::string_at(entry, i);
        touch(reinterpret_cast<const uint8_t*>(text.data()), text.size());
      }
    }
    for (const auto& tensor : file.tensors()) {
      require(tensor.offset <= size && tensor.nbytes <= size - tensor.offset);
      touch(file.mapping()->bytes().data() + tensor.offset, tensor.nbytes);
    }
  } catch (const FormatError& e) {
    require(!e.problem().empty() && !e.hint().empty());
  }
  return 0;
}
