#include "gguf/reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "error.hpp"
#include "unicode/utf8.hpp"

static_assert(std::endian::native == std::endian::little,
              "the reader hands out the file's bytes as they are");

namespace llamay::gguf {
namespace {

const std::string kFetchAgain = "the file is damaged or was not downloaded completely; fetch it again";

std::string text(std::string_view s) { return std::string(s.substr(0, 100)); }
std::string number(uint64_t n) { return std::to_string(n); }

/// The bytes at `at` as a T, read once: the compiler may not come back to them for the value, which another
/// program may have changed meanwhile.
template <class T>
T read_once(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  asm volatile("" : "+r"(value));
  return value;
}

/// Reads forward through the header; the only code that touches its bytes.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  T read(const char* what) {
    need(sizeof(T), what);
    const T value = read_once<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  std::span<const uint8_t> take(uint64_t n, const char* what) {
    need(n, what);
    const auto result = bytes_.subspan(at_, n);
    at_ += n;
    return result;
  }

  std::string_view string(const char* what) {
    const size_t start = at_;
    const auto length = read<uint64_t>(what);
    if (length > left())
      throw FormatError(std::string(what) + " claims " + number(length) + " bytes, but only " +
                            number(left()) + " are left in the file",
                        kFetchAgain, start);
    const auto raw = take(length, what);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }

 private:
  void need(uint64_t n, const char* what) const {
    if (n > left())
      throw FormatError(std::string("the file ends inside ") + what + ": " + number(n) + " bytes needed, " +
                            number(left()) + " left",
                        kFetchAgain, at_);
  }

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

ValueType value_type(uint32_t id, std::string_view key, size_t offset) {
  if (id >= kValueTypeCount)
    throw FormatError("metadata key '" + text(key) + "' has unknown value type " + number(id),
                      "the file is damaged, or made by a newer format than version 3", offset);
  return static_cast<ValueType>(id);
}

void check_bools(const Entry& entry, size_t offset) {
  const auto bad = std::find_if(entry.raw.begin(), entry.raw.end(), [](uint8_t b) { return b > 1; });
  if (bad != entry.raw.end())
    throw FormatError("metadata key '" + text(entry.key) + "' holds a bool of value " + number(*bad),
                      "a bool is one byte, 0 or 1; the file is damaged",
                      offset + static_cast<size_t>(bad - entry.raw.begin()));
}

/// Keep a scalar's bytes, so that it stays what it was when it was checked.
void keep_copy(Entry& entry) {
  if (entry.is_array || entry.raw.size() > Entry::kMaxCopy) return;
  const bool is_string = entry.type == ValueType::kString;
  entry.copy.assign(entry.raw.begin(), entry.raw.end());
  if (is_string) {
    const uint64_t length = entry.raw.size() - sizeof length;
    std::memcpy(entry.copy.data(), &length, sizeof length);
  }
  entry.raw = entry.copy;
}

Entry read_entry(Cursor& in) {
  Entry entry{};
  const size_t start = in.at();
  const std::string_view key = in.string("a metadata key");
  if (key.empty()) throw FormatError("a metadata key is empty", kFetchAgain, start);
  if (key.size() > 65535)
    throw FormatError("a metadata key is " + number(key.size()) + " bytes long; 65535 is the most",
                      kFetchAgain, start);
  entry.key = key;
  if (!unicode::is_valid(entry.key)) throw FormatError("a metadata key is not UTF-8", kFetchAgain, start);

  const size_t type_at = in.at();
  entry.type = value_type(in.read<uint32_t>("a metadata value type"), entry.key, type_at);
  entry.count = 1;
  entry.is_array = entry.type == ValueType::kArray;
  if (entry.is_array) {
    const size_t element_at = in.at();
    entry.type = value_type(in.read<uint32_t>("an array's element type"), entry.key, element_at);
    if (entry.type == ValueType::kArray)
      throw FormatError("metadata key '" + text(entry.key) + "' is an array of arrays, which no model uses",
                        "write the key as a flat array", element_at);
    entry.count = in.read<uint64_t>("an array's length");
  }

  const size_t value_at = in.at();
  // A string is at least its 8-byte length: this bounds what is reserved below by the size of the file.
  const uint64_t smallest = entry.type == ValueType::kString ? 8 : value_size(entry.type);
  if (entry.count > in.left() / smallest)
    throw FormatError("metadata key '" + text(entry.key) + "' claims " + number(entry.count) +
                          " values of type " + std::string(value_type_name(entry.type)) + ", but only " +
                          number(in.left()) + " bytes are left in the file",
                      kFetchAgain, value_at);
  if (entry.type == ValueType::kString) {
    Cursor ahead = in;
    entry.starts.reserve((entry.count + Entry::kStride - 1) / Entry::kStride);
    for (uint64_t i = 0; i < entry.count; ++i) {
      if (i % Entry::kStride == 0) entry.starts.push_back(ahead.at() - value_at);
      ahead.string(entry.is_array ? "a string of an array" : "a string");
    }
    entry.raw = in.take(ahead.at() - value_at, "strings");
  } else {
    entry.raw = in.take(entry.count * value_size(entry.type), "a metadata value");
  }
  keep_copy(entry);
  if (entry.type == ValueType::kBool) check_bools(entry, value_at);
  return entry;
}

/// Bytes of a tensor, or an error when its shape does not fit its format or 63 bits.
uint64_t tensor_bytes(const Tensor& t, const TensorFormat& format, size_t offset) {
  constexpr uint64_t kMax = INT64_MAX;
  if (t.dims[0] % format.block_size != 0)
    throw FormatError("tensor '" + text(t.name) + "' has rows of " + number(t.dims[0]) + " elements, but " +
                          std::string(format.name) + " comes in blocks of " + number(format.block_size),
                      "the file is damaged, or its quantizer is wrong", offset);
  uint64_t elements = 1;
  for (const uint64_t d : t.dims) {
    if (d != 0 && elements > kMax / d)
      throw FormatError("tensor '" + text(t.name) + "' has more than 2^63 elements", kFetchAgain, offset);
    elements *= d;
  }
  const uint64_t blocks = elements / format.block_size;
  if (blocks > kMax / format.block_bytes)
    throw FormatError("tensor '" + text(t.name) + "' has more than 2^63 bytes", kFetchAgain, offset);
  return blocks * format.block_bytes;
}

/// `offset` of the result is still relative to the data section, whose start is not known yet.
Tensor read_tensor(Cursor& in) {
  Tensor t{};
  const size_t start = in.at();
  const std::string_view name = in.string("a tensor name");
  if (name.size() <= File::kMaxTensorName) t.name = name;
  if (t.name.empty() || !unicode::is_valid(t.name))
    throw FormatError("a tensor name is " + (name.empty() ? "empty"
                                             : name.size() > File::kMaxTensorName
                                                 ? number(name.size()) + " bytes long; " +
                                                       number(File::kMaxTensorName) + " is the most"
                                                 : "not UTF-8"),
                      kFetchAgain, start);
  const size_t dims_at = in.at();
  t.n_dims = in.read<uint32_t>("a tensor's number of dimensions");
  if (t.n_dims > 4)
    throw FormatError("tensor '" + text(t.name) + "' has " + number(t.n_dims) + " dimensions; 4 is the most",
                      kFetchAgain, dims_at);
  t.dims = {1, 1, 1, 1};
  for (uint32_t i = 0; i < t.n_dims; ++i) {
    const size_t dim_at = in.at();
    t.dims[i] = in.read<uint64_t>("a tensor's shape");
    if (t.dims[i] > INT64_MAX)
      throw FormatError("tensor '" + text(t.name) + "' has a dimension of 2^63 or more", kFetchAgain, dim_at);
  }
  const size_t type_at = in.at();
  t.format = in.read<uint32_t>("a tensor's type");
  const TensorFormat* format = tensor_format(t.format);
  if (!format)
    throw FormatError("tensor '" + text(t.name) + "' has unknown type " + number(t.format),
                      "the file is damaged, or uses a quantization newer than this program; update llamay",
                      type_at);
  if (format->block_size == 0)
    throw FormatError("tensor '" + text(t.name) + "' has type " + std::string(format->name) +
                          ", which was withdrawn from the format",
                      "quantize the model again, for example to Q4_0", type_at);
  t.nbytes = tensor_bytes(t, *format, dims_at);
  t.offset = in.read<uint64_t>("a tensor's offset");
  return t;
}

/// Indices of `items` in the order of their names; an error when two have the same.
template <class Item, class Name>
std::vector<uint32_t> sorted_unique(const std::vector<Item>& items, Name name, const char* what) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return name(items[a]) < name(items[b]); });
  for (size_t i = 1; i < order.size(); ++i)
    if (name(items[order[i]]) == name(items[order[i - 1]]))
      throw FormatError(std::string(what) + " '" + text(name(items[order[i]])) + "' occurs twice",
                        "the file is damaged, or was written by a faulty tool");
  return order;
}

void check_version(uint32_t version) {
  if (version == 2 || version == 3) return;
  // Byte-swapped small numbers: the only way to know that a file is big endian.
  if ((version & 0xFFFF) == 0 && version != 0)
    throw FormatError("the file is big endian (version field " + number(version) + ")",
                      "convert it to little endian, for example with gguf-convert-endian", 4);
  if (version == 1)
    throw FormatError("GGUF version 1 is not supported", "convert the model again; versions 2 and 3 are read",
                      4);
  throw FormatError("unknown GGUF version " + number(version),
                    "versions 2 and 3 are read; update llamay, or fetch the file again", 4);
}

uint64_t read_alignment(const File& file) {
  const Entry* entry = file.find("general.alignment");
  if (!entry) return 32;
  if (entry->is_array || entry->type != ValueType::kUint32)
    throw FormatError("metadata key 'general.alignment' must be a uint32, but is " +
                          std::string(entry->is_array ? "an array" : value_type_name(entry->type)),
                      kFetchAgain);
  uint32_t alignment;
  std::memcpy(&alignment, entry->raw.data(), sizeof alignment);
  if (!std::has_single_bit(alignment))
    throw FormatError("general.alignment is " + number(alignment) + ", which is not a power of two",
                      kFetchAgain);
  return alignment;
}

void place_tensors(std::vector<Tensor>& tensors, uint64_t data_offset, uint64_t alignment,
                   uint64_t file_size) {
  for (Tensor& t : tensors) {
    if (t.offset % alignment != 0)
      throw FormatError("tensor '" + text(t.name) + "' starts at " + number(t.offset) +
                            " of the data section, which is not a multiple of the alignment " +
                            number(alignment),
                        kFetchAgain);
    const uint64_t room = file_size - data_offset;
    if (t.offset > room || t.nbytes > room - t.offset)
      throw FormatError("the data of tensor '" + text(t.name) + "' (" + number(t.nbytes) + " bytes at " +
                            number(t.offset) + " of the data section) reaches beyond the end of the file",
                        kFetchAgain, data_offset);
    t.offset += data_offset;
  }
  std::vector<const Tensor*> order;
  order.reserve(tensors.size());
  for (const Tensor& t : tensors)
    if (t.nbytes) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i)
    if (order[i]->offset - order[i - 1]->offset < order[i - 1]->nbytes)
      throw FormatError(
          "the data of tensors '" + text(order[i - 1]->name) + "' and '" + text(order[i]->name) + "' overlap",
          "the file is damaged, or was written by a faulty tool", order[i]->offset);
}

}  // namespace

std::string_view string_at(const Entry& entry, uint64_t i) {
  const uint64_t group = i / Entry::kStride;
  const uint64_t end = group + 1 < entry.starts.size() ? entry.starts[group + 1] : entry.raw.size();
  uint64_t at = entry.starts[group], length = 0;
  for (uint64_t ahead = i % Entry::kStride + 1; ahead; --ahead) {
    at += length;
    if (end - at < sizeof length) return {};
    // Where nobody wrote to the file, the lengths are those that were checked.
    length = read_once<uint64_t>(entry.raw.data() + at);
    at += sizeof length;
    length = std::min(length, end - at);
  }
  return {reinterpret_cast<const char*>(entry.raw.data() + at), length};
}

const Entry* File::find(std::string_view key) const {
  const auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                      [&](uint32_t i, std::string_view k) { return entries_[i].key < k; });
  return found != by_key_.end() && entries_[*found].key == key ? &entries_[*found] : nullptr;
}

File File::parse(std::shared_ptr<const Mapping> mapping) {
  const auto bytes = mapping->bytes();
  Cursor in(bytes);
  const auto magic = in.take(4, "the magic 'GGUF'");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0)
    throw FormatError("the file does not start with 'GGUF'",
                      "give the path of a GGUF model, or fetch it again", 0);

  File file;
  file.version_ = in.read<uint32_t>("the version");
  check_version(file.version_);
  const auto n_tensors = in.read<uint64_t>("the number of tensors");
  const auto n_entries = in.read<uint64_t>("the number of metadata entries");
  if (n_tensors > kMaxTensors)
    throw FormatError(
        "the header claims " + number(n_tensors) + " tensors; " + number(kMaxTensors) + " is the most",
        kFetchAgain, 8);
  if (n_entries > kMaxEntries)
    throw FormatError("the header claims " + number(n_entries) + " metadata entries; " + number(kMaxEntries) +
                          " is the most",
                      kFetchAgain, 16);

  for (uint64_t i = 0; i < n_entries; ++i) file.entries_.push_back(read_entry(in));
  file.by_key_ =
      sorted_unique(file.entries_, [](const Entry& e) { return std::string_view(e.key); }, "metadata key");
  file.alignment_ = read_alignment(file);

  for (uint64_t i = 0; i < n_tensors; ++i) file.tensors_.push_back(read_tensor(in));
  sorted_unique(file.tensors_, [](const Tensor& t) { return std::string_view(t.name); }, "tensor");

  const uint64_t end = in.at();
  file.data_offset_ = (end + file.alignment_ - 1) / file.alignment_ * file.alignment_;
  if (n_tensors > 0) {
    if (file.data_offset_ > bytes.size())
      throw FormatError("the file ends before its data section, which starts at " + number(file.data_offset_),
                        kFetchAgain, end);
    place_tensors(file.tensors_, file.data_offset_, file.alignment_, bytes.size());
  }
  file.mapping_ = std::move(mapping);
  return file;
}

}  // namespace llamay::gguf
