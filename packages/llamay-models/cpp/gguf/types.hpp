#pragma once
// The value and tensor types of GGUF, with the sizes that the reader needs to check a file.
// Source: the GGUF specification (ggml, docs/gguf.md) and the block layouts of ggml's quantized formats.

#include <cstdint>
#include <span>
#include <string_view>

namespace llamay::gguf {

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr uint32_t kValueTypeCount = 13;

/// Bytes of one value; 0 for strings and arrays, whose length is in the file.
constexpr uint32_t value_size(ValueType type) {
  constexpr uint32_t sizes[kValueTypeCount] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return sizes[static_cast<uint32_t>(type)];
}

constexpr std::string_view value_type_name(ValueType type) {
  constexpr std::string_view names[kValueTypeCount] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                                       "int32",  "float32", "bool",   "string", "array",
                                                       "uint64", "int64",   "float64"};
  return names[static_cast<uint32_t>(type)];
}

struct TensorFormat {
  std::string_view name;
  uint32_t block_size;   ///< elements in a block; 0: the id is reserved but no file may use it any more
  uint32_t block_bytes;  ///< bytes of a block
};

/// The format with this id, or nullptr when the id is not assigned.
const TensorFormat* tensor_format(uint32_t id);

/// All assigned formats, indexed by id.
std::span<const TensorFormat> tensor_formats();

}  // namespace llamay::gguf
