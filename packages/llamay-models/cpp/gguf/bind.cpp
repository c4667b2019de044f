#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "error.hpp"
#include "gguf/bind.hpp"
#include "gguf/reader.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using gguf::Entry;
using gguf::File;
using gguf::ValueType;
using Bytes = nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>;

/// A read-only array over bytes that `held` keeps alive.
Bytes view(std::shared_ptr<const void> held, std::span<const uint8_t> part) {
  auto* keep = new std::shared_ptr<const void>(std::move(held));
  nb::capsule owner(keep, [](void* p) noexcept { delete static_cast<std::shared_ptr<const void>*>(p); });
  const size_t shape[1] = {part.size()};
  return Bytes(part.data(), 1, shape, owner);
}

/// Decoded from a copy: the decoder expects bytes that stay what they are.
nb::object py_text(const std::string& s) {
  return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

template <class T>
nb::object numbers(const Entry& entry) {
  // Copied, because GGUF does not align values to their size.
  auto values = std::make_unique<T[]>(entry.count ? entry.count : 1);
  if constexpr (std::is_same_v<T, bool>)
    std::transform(entry.raw.begin(), entry.raw.end(), values.get(), [](uint8_t b) { return b != 0; });
  else if (entry.count)
    std::memcpy(values.get(), entry.raw.data(), entry.raw.size());
  const size_t shape[1] = {entry.count};
  T* data = values.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, 1, shape, owner));
}

template <class T>
T scalar(const Entry& entry) {
  T value;
  std::memcpy(&value, entry.raw.data(), sizeof value);
  return value;
}

template <class T>
nb::object one_or_many(const Entry& entry) {
  if (entry.is_array) return numbers<T>(entry);
  return nb::cast(scalar<T>(entry));
}

/// The strings of an array, decoded one at a time when asked for.
class Strings {
 public:
  Strings(std::shared_ptr<const File> file, const Entry* entry) : file_(std::move(file)), entry_(entry) {}
  size_t size() const { return entry_->count; }
  std::string_view at(size_t i) const {
    if (i >= size()) throw nb::index_error("string index out of range");
    file_->mapping()->guard();
    return string_at(*entry_, i);
  }
  nb::list texts() const {
    file_->mapping()->guard();
    nb::list all;
    for (size_t i = 0; i < size(); ++i) all.append(py_text(std::string(string_at(*entry_, i))));
    return all;
  }
  const std::shared_ptr<const File>& file() const { return file_; }

 private:
  std::shared_ptr<const File> file_;
  const Entry* entry_;
};

const Entry& entry_of(const File& file, std::string_view key) {
  const Entry* entry = file.find(key);
  if (!entry) throw nb::key_error(std::string(key).c_str());
  file.mapping()->guard();
  return *entry;
}

nb::object value_of(const std::shared_ptr<const File>& file, const std::string& key) {
  const Entry& e = entry_of(*file, key);
  switch (e.type) {
    case ValueType::kUint8:
      return one_or_many<uint8_t>(e);
    case ValueType::kInt8:
      return one_or_many<int8_t>(e);
    case ValueType::kUint16:
      return one_or_many<uint16_t>(e);
    case ValueType::kInt16:
      return one_or_many<int16_t>(e);
    case ValueType::kUint32:
      return one_or_many<uint32_t>(e);
    case ValueType::kInt32:
      return one_or_many<int32_t>(e);
    case ValueType::kUint64:
      return one_or_many<uint64_t>(e);
    case ValueType::kInt64:
      return one_or_many<int64_t>(e);
    case ValueType::kFloat32:
      return one_or_many<float>(e);
    case ValueType::kFloat64:
      return one_or_many<double>(e);
    case ValueType::kBool:
      return one_or_many<bool>(e);
    case ValueType::kString:
      return e.is_array ? nb::cast(Strings(file, &e)) : py_text(std::string(string_at(e, 0)));
    case ValueType::kArray:
      break;  // parse() refuses arrays of arrays
  }
  throw nb::value_error("unreachable value type");
}

nb::list tensor_list(const File& file) {
  nb::list result;
  for (const auto& t : file.tensors()) {
    nb::list shape;
    for (uint32_t i = t.n_dims; i-- > 0;) shape.append(t.dims[i]);
    result.append(nb::make_tuple(py_text(t.name), t.format, nb::tuple(shape), t.offset, t.nbytes));
  }
  return result;
}

}  // namespace

void bind_gguf(nb::module_& m) {
  nb::class_<Strings>(m, "Strings", "The strings of a metadata array, decoded one at a time.")
      .def("__len__", &Strings::size)
      .def(
          "text", [](const Strings& s, size_t i) { return py_text(std::string(s.at(i))); }, "index"_a,
          nb::sig("def text(self, index: int) -> str"),
          "String `index`; bytes that are not UTF-8 become U+FFFD.")
      .def(
          "raw",
          [](const Strings& s, size_t i) {
            const auto t = s.at(i);
            return nb::bytes(t.data(), t.size());
          },
          "index"_a, "The bytes of string `index`.")
      .def("texts", &Strings::texts, nb::sig("def texts(self) -> list[str]"), "All strings at once.");

  nb::class_<File>(m, "File", "The checked header of one GGUF file, and views into its mapping.")
      .def_static(
          "of_fd",
          [](int fd) {
            nb::gil_scoped_release nogil;
            return std::make_shared<const File>(File::parse(gguf::Mapping::of_file(fd)));
          },
          "fd"_a, "Map the file behind a descriptor and check its header. Raises FormatError, OSError.")
      .def_static(
          "of_bytes",
          [](nb::bytes data) {
            const std::span<const uint8_t> bytes{static_cast<const uint8_t*>(data.data()), data.size()};
            return std::make_shared<const File>(File::parse(gguf::Mapping::of_bytes(bytes)));
          },
          "data"_a, "Check a header that is in memory (for tests). Raises FormatError.")
      .def_prop_ro("version", &File::version)
      .def_prop_ro("alignment", &File::alignment)
      .def_prop_ro("data_offset", &File::data_offset)
      .def(
          "keys",
          [](const File& f) {
            nb::list keys;
            for (const auto& e : f.entries()) keys.append(py_text(e.key));
            return keys;
          },
          nb::sig("def keys(self) -> list[str]"), "The metadata keys, in the order of the file.")
      .def(
          "type",
          [](const File& f, const std::string& key) {
            const Entry& e = entry_of(f, key);
            const std::string name(value_type_name(e.type));
            return e.is_array ? "array of " + name : name;
          },
          "key"_a, "The type that the file gives for a key, for messages. Raises KeyError.")
      .def("value", &value_of, "key"_a, nb::sig("def value(self, key: str) -> typing.Any"),
           "The value of a key: bool, int, float, str, a 1-D numpy array, or Strings. Raises KeyError.")
      .def(
          "raw",
          [](const std::shared_ptr<const File>& f, const std::string& key) {
            return view(f, entry_of(*f, key).raw);
          },
          "key"_a, "The encoded value of a key, as it stands in the file. Raises KeyError.")
      .def("tensors", &tensor_list,
           nb::sig("def tensors(self) -> list[tuple[str, int, tuple[int, ...], int, int]]"),
           "(name, format id, shape with the fastest dimension last, byte offset in the file, bytes) of "
           "every tensor.")
      .def(
          "bytes",
          [](const std::shared_ptr<const File>& f, uint64_t offset, uint64_t size) {
            const auto all = f->mapping()->bytes();
            if (offset > all.size() || size > all.size() - offset) throw nb::index_error("outside the file");
            f->mapping()->guard();
            return view(f->mapping(), all.subspan(offset, size));
          },
          "offset"_a, "size"_a, "Part of the file as a read-only array of uint8; it keeps the mapping alive.")
      .def_prop_ro(
          "size", [](const File& f) { return f.mapping()->bytes().size(); }, "Bytes in the file.")
      .def_prop_ro(
          "lost", [](const File& f) { return f.mapping()->lost(); },
          "Whether bytes that were read were zeros in the place of a page that the file no longer has, or "
          "that the disk could not read.");

  m.def(
      "tensor_formats",
      [] {
        nb::list all;
        uint32_t id = 0;
        for (const auto& f : gguf::tensor_formats()) {
          if (f.block_size) all.append(nb::make_tuple(id, std::string(f.name), f.block_size, f.block_bytes));
          ++id;
        }
        return all;
      },
      nb::sig("def tensor_formats() -> list[tuple[int, str, int, int]]"),
      "(id, name, elements of a block, bytes of a block) of every tensor format that a file may use.");
}

}  // namespace llamay
