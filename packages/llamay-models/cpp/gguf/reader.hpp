#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/mapping.hpp"
#include "gguf/types.hpp"

namespace llamay::gguf {

/// One metadata entry.
///
/// Another program may write to the file at any time, so nothing that was checked is read from the mapping
/// again: the key and a scalar are copies. Large values stay in the mapping; what their bytes say may change,
/// where they are does not.
struct Entry {
  std::string key;
  ValueType type;  ///< type of the value, or of the elements when is_array
  bool is_array;
  uint64_t count;                ///< elements; 1 for a scalar
  std::span<const uint8_t> raw;  ///< encoded elements, without type and count
  /// Strings only: offset in raw of every kStride-th string's length field. A start for each would take
  /// megabytes for the vocabularies and merges of today.
  std::vector<uint64_t> starts;
  std::vector<uint8_t> copy;  ///< what raw points to, of a scalar of at most kMaxCopy bytes

  static constexpr uint64_t kStride = 8;
  static constexpr uint64_t kMaxCopy = 1 << 16;

  Entry() = default;
  Entry(Entry&&) = default;  // raw stays where it points to
  Entry& operator=(Entry&&) = default;
};

struct Tensor {
  std::string name;
  uint32_t format;  ///< id for tensor_format()
  uint32_t n_dims;
  std::array<uint64_t, 4> dims;  ///< in the file's order: dims[0] runs fastest; 1 beyond n_dims
  uint64_t offset;               ///< from the start of the file
  uint64_t nbytes;
};

/// The header of one GGUF file, wholly checked: every string, array and tensor lies inside the mapping, also
/// after the file has changed.
///
/// Throws FormatError from parse() for anything else. Memory is bounded by the size of the file and the two
/// limits below, time is O(n log n) in the length of the header.
class File {
 public:
  static constexpr uint64_t kMaxEntries = 1 << 16;
  static constexpr uint64_t kMaxTensors = 1 << 18;
  static constexpr size_t kMaxTensorName = 63;  ///< bytes; ggml reserves 64 with the final zero

  static File parse(std::shared_ptr<const Mapping> mapping);
  File(File&&) = default;
  File& operator=(File&&) = default;

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  uint64_t data_offset() const { return data_offset_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::shared_ptr<const Mapping>& mapping() const { return mapping_; }

  const Entry* find(std::string_view key) const;

 private:
  File() = default;

  std::shared_ptr<const Mapping> mapping_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t data_offset_ = 0;
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
  std::vector<uint32_t> by_key_;
};

/// String i of an entry of strings, always inside entry.raw; where the file has changed since it was parsed,
/// of any bytes there. i must be below entry.count.
std::string_view string_at(const Entry& entry, uint64_t i);

}  // namespace llamay::gguf
