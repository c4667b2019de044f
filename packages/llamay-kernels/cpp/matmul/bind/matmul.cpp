#include "matmul/bind/bindings.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.hpp"
#include "formats/codec.hpp"
#include "matmul/bind/weight.hpp"
#include "matmul/weights/packed.hpp"
#include "matmul/weights/stored.hpp"
#include "threads/float_environment.hpp"
#include "threads/threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;

LLAMAY_DECLARE_TABLES(llamay::MatmulTable, matmul);

namespace llamay {
namespace {

using FloatRows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using RowNumbers = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const MatmulTable& table(const std::optional<std::string>& isa) {
  static constexpr Tables<MatmulTable> tables = LLAMAY_TABLES(matmul);
  if (!isa) return tables[active_isa()];
  for (const Isa one : runnable_isas())
    if (*isa == name(one)) return tables[one];
  throw nb::value_error(("no kernel set '" + *isa + "' on this CPU").c_str());
}

[[noreturn]] void fail(const std::string& message) { throw nb::value_error(message.c_str()); }

const FormatTraits& format_named(const std::string& name) {
  std::string known;
  for (const FormatTraits& t : kFormats) {
    if (name == t.name) return t;
    known += (known.empty() ? "" : ", ") + std::string(t.name);
  }
  fail("unknown format '" + name + "'; known are " + known);
}

/// Any C-contiguous buffer.
using Buffer = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

template <class T>
using Array = nb::ndarray<nb::numpy, T>;

template <class T>
Array<T> new_array(std::initializer_list<size_t> shape) {
  size_t count = 1;
  for (const size_t n : shape) count *= n;
  T* data = new T[count];
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Array<T>(data, shape, owner);
}

/// Bytes of count values; ValueError where count does not fit the format's block or is too large.
size_t bytes_of(const FormatTraits& t, int64_t count, const std::string& what) {
  if (count < 0 || count % t.block != 0)
    fail(what + " must be a multiple of " + std::to_string(t.block) + ", the block of " + t.name + ", not " +
         std::to_string(count));
  if (count / t.block > INT64_MAX / t.block_bytes) fail(what + " is too large: " + std::to_string(count));
  return static_cast<size_t>(count / t.block) * t.block_bytes;
}

/// A loop over the pool: a free thread takes the next index.
struct PoolLoop {
  Threads* threads;

  static void run(void* self, size_t count, void (*body)(void*, size_t), void* context) {
    struct Shared {
      std::atomic<size_t> next{0};
      size_t count;
      void (*body)(void*, size_t);
      void* context;
    } shared{{}, count, body, context};
    Threads& pool = *static_cast<PoolLoop*>(self)->threads;
    pool.run(
        pool.size(),
        [](void* p, unsigned) {
          auto& s = *static_cast<Shared*>(p);
          for (size_t i; (i = s.next.fetch_add(1, std::memory_order_relaxed)) < s.count;)
            s.body(s.context, i);
        },
        &shared);
  }
};

/// Gives up pages of a mapped file that have been read. The system would read them again if they were needed.
void forget_pages(const void* at, size_t bytes) {
#ifdef __linux__
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(at) + page - 1) / page * page,
                  end = (reinterpret_cast<uintptr_t>(at) + bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
#else
  (void)at, (void)bytes;
#endif
}

/// Bytes of rows x cols values of a format in a file; ValueError where there is no such matrix.
size_t checked_bytes(const FormatTraits& t, int64_t rows, int64_t cols, const std::string& who) {
  if (rows < 1 || cols < 1)
    fail(who + ": rows and cols must be at least 1, not " + std::to_string(rows) + " and " +
         std::to_string(cols));
  const size_t row_bytes = bytes_of(t, cols, who + ": cols");
  if (static_cast<size_t>(rows) > static_cast<size_t>(INT64_MAX) / (row_bytes + 64) / 2)
    fail(who + ": too many rows: " + std::to_string(rows));
  return static_cast<size_t>(rows) * row_bytes;
}

std::string called(const std::string& name) { return name.empty() ? "weight" : "weight '" + name + "'"; }

void init_weight(Weight* self, const Buffer& buffer, const std::string& format, int64_t rows, int64_t cols,
                 std::string name, Threads* threads, bool mapped) {
  const FormatTraits& t = format_named(format);
  const std::string who = called(name);
  const size_t bytes = checked_bytes(t, rows, cols, who);
  if (buffer.nbytes() != bytes)
    fail(who + ": " + std::to_string(rows) + " x " + std::to_string(cols) + " values of " + t.name +
         " take " + std::to_string(bytes) + " bytes, but data has " + std::to_string(buffer.nbytes()));
  nb::gil_scoped_release nogil;
  PoolLoop loop{threads};
  const ParallelFor parallel = threads ? ParallelFor{&loop, PoolLoop::run} : serial_for;
  PackedMatrix matrix = pack(t.format, static_cast<size_t>(rows), static_cast<size_t>(cols), buffer.data(),
                             parallel, mapped ? forget_pages : nullptr);
  new (self) Weight{std::move(matrix), std::move(name)};
}

Weight read_weight(int file, uint64_t offset, const std::string& format, int64_t rows, int64_t cols,
                   uint64_t checksum, std::string name, Threads* threads) {
  const FormatTraits& t = format_named(format);
  const std::string who = called(name);
  checked_bytes(t, rows, cols, who);
  if (offset > INT64_MAX / 2) fail(who + ": the offset is too large: " + std::to_string(offset));
  PackedMatrix matrix;
  ReadError error;
  {
    nb::gil_scoped_release nogil;
    PoolLoop loop{threads};
    const ParallelFor parallel = threads ? ParallelFor{&loop, PoolLoop::run} : serial_for;
    error = read_packed(matrix, t.format, static_cast<size_t>(rows), static_cast<size_t>(cols), file, offset,
                        checksum, parallel);
  }
  if (error == ReadError::io) fail(who + ": its packed bytes cannot be read");
  if (error == ReadError::ended) fail(who + ": the file ends within its packed bytes");
  if (error == ReadError::checksum) fail(who + ": its packed bytes are not those that were written");
  return Weight{std::move(matrix), std::move(name)};
}

uint64_t weight_checksum(const Weight& w, Threads* threads) {
  nb::gil_scoped_release nogil;
  PoolLoop loop{threads};
  return packed_checksum(w.matrix, threads ? ParallelFor{&loop, PoolLoop::run} : serial_for);
}

Array<float> dequantize_weight(const Weight& w, const std::optional<RowNumbers>& rows,
                               const std::optional<std::string>& isa) {
  const PackedMatrix& m = w.matrix;
  std::vector<int32_t> numbers;
  if (rows) {
    numbers.assign(rows->data(), rows->data() + rows->shape(0));
    for (const int32_t row : numbers)
      if (row < 0 || static_cast<size_t>(row) >= m.rows)
        throw nb::index_error(
            ("row " + std::to_string(row) + " of a weight with " + std::to_string(m.rows) + " rows").c_str());
  } else {
    if (m.rows > INT32_MAX) fail("too many rows for one array; name the rows");
    for (size_t row = 0; row < m.rows; ++row) numbers.push_back(static_cast<int32_t>(row));
  }
  const MatmulTable& kernels = table(isa);
  Array<float> out = new_array<float>({numbers.size(), m.cols});
  nb::gil_scoped_release nogil;
  const FloatEnvironment exact;
  kernels.dequantize_rows(m, numbers.data(), numbers.size(), out.data());
  return out;
}

Array<float> dequantize_data(const Buffer& buffer, const std::string& format, int64_t count) {
  const FormatTraits& t = format_named(format);
  const size_t need = bytes_of(t, count, "count");
  if (buffer.nbytes() != need)
    fail(std::to_string(count) + " values of " + t.name + " take " + std::to_string(need) +
         " bytes, but data has " + std::to_string(buffer.nbytes()));
  Array<float> out = new_array<float>({static_cast<size_t>(count)});
  nb::gil_scoped_release nogil;
  const FloatEnvironment exact;
  dequantize(t.format, buffer.data(), static_cast<size_t>(count), out.data());
  return out;
}

nb::bytes quantize_values(nb::ndarray<const float, nb::c_contig, nb::device::cpu> values,
                          const std::string& format) {
  const FormatTraits& t = format_named(format);
  const size_t bytes = bytes_of(t, static_cast<int64_t>(values.size()), "the number of values");
  if (values.ndim() > 0 && t.block > 1 && values.shape(values.ndim() - 1) % t.block != 0)
    fail("rows must be a multiple of " + std::to_string(t.block) + " values, the block of " + t.name +
         ", not " + std::to_string(values.shape(values.ndim() - 1)));
  if (t.block > 1)
    for (size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values.data()[i]))
        fail("value " + std::to_string(i) + " is " + (std::isnan(values.data()[i]) ? "NaN" : "infinite") +
             "; " + t.name + " has no such values");
  const std::unique_ptr<uint8_t[]> out(new uint8_t[bytes + 1]);
  {
    nb::gil_scoped_release nogil;
    const FloatEnvironment exact;
    quantize(t.format, values.data(), values.size(), out.get());
  }
  return nb::bytes(out.get(), bytes);
}

ActivationKind kind_named(const std::string& name) {
  if (name == "f32") return ActivationKind::f32;
  if (name == "q8_32") return ActivationKind::q8_32;
  if (name == "q8_256") return ActivationKind::q8_256;
  fail("unknown kind of activations '" + name + "'; known are f32, q8_32, q8_256");
}

/// 64-byte aligned rows of activations.
class Activations {
 public:
  Activations(ActivationKind kind, size_t rows, size_t cols)
      : row_bytes(activation_bytes(kind, cols)),
        memory_(new (std::align_val_t{64}) uint8_t[rows * row_bytes + 64]()) {}
  ~Activations() { ::operator delete[](memory_, std::align_val_t{64}); }
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;
  uint8_t* row(size_t t) { return memory_ + t * row_bytes; }

  const size_t row_bytes;

 private:
  uint8_t* memory_;
};

Array<uint8_t> quantize_activations(FloatRows x, const std::string& kind_name,
                                    const std::optional<std::string>& isa) {
  const ActivationKind kind = kind_named(kind_name);
  const size_t n = x.shape(0), cols = x.shape(1),
               block = kind == ActivationKind::f32     ? 1
                       : kind == ActivationKind::q8_32 ? 32
                                                       : 256;
  if (cols % block)
    fail("columns must be a multiple of " + std::to_string(block) + ", not " + std::to_string(cols));
  Activations rows(kind, n, cols);
  {
    const FloatEnvironment exact;
    table(isa).quantize_rows(kind, x.data(), cols, n, cols, rows.row(0));
  }
  Array<uint8_t> out = new_array<uint8_t>({n, rows.row_bytes});
  std::copy(rows.row(0), rows.row(n), out.data());
  return out;
}

/// The boundaries of a split of [0, n): 0, the given ones, n.
std::vector<size_t> boundaries(const std::vector<size_t>& splits, size_t n) {
  std::vector<size_t> all{0};
  for (const size_t at : splits) {
    if (at < all.back() || at > n) fail("splits must increase and lie within the whole");
    all.push_back(at);
  }
  all.push_back(n);
  return all;
}

Array<float> multiply(const Weight& w, FloatRows x, const std::optional<Floats>& bias,
                      const std::optional<FloatRows>& residual, const std::vector<size_t>& row_splits,
                      const std::vector<size_t>& group_splits, const std::optional<std::string>& isa) {
  const PackedMatrix& m = w.matrix;
  const size_t n = x.shape(0);
  if (x.shape(1) != m.cols)
    fail("x has " + std::to_string(x.shape(1)) + " columns, the weight " + std::to_string(m.cols));
  if (bias && bias->shape(0) != m.rows) fail("bias must have a value for each row of the weight");
  if (residual && (residual->shape(0) != n || residual->shape(1) != m.rows))
    fail("residual must have the shape of the result");
  const std::vector<size_t> rows = boundaries(row_splits, n), groups = boundaries(group_splits, m.groups);
  const MatmulTable& kernels = table(isa);
  Array<float> out = new_array<float>({n, m.rows});
  const float* bias_data = bias ? bias->data() : nullptr;
  const float* residual_data = residual ? residual->data() : nullptr;
  nb::gil_scoped_release nogil;
  const FloatEnvironment exact;
  const ActivationKind kind = traits(m.format).activation;
  Activations activations(kind, n, m.cols);
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    const size_t t = rows[i], count = rows[i + 1] - t;
    kernels.quantize_rows(kind, x.data() + t * m.cols, m.cols, count, m.cols, activations.row(t));
    for (size_t j = 0; j + 1 < groups.size(); ++j)
      kernels.matmul(m, activations.row(t), count, groups[j], groups[j + 1], out.data() + t * m.rows, m.rows,
                     bias_data, residual_data ? residual_data + t * m.rows : nullptr, m.rows);
  }
  return out;
}

}  // namespace
}  // namespace llamay

void bind_matmul(nb::module_& m) {
  using namespace llamay;

  nb::dict formats;
  for (const FormatTraits& t : kFormats) formats[t.name] = nb::make_tuple(t.block, t.block_bytes);
  m.attr("FORMATS") = formats;
  m.attr("PACKED_LAYOUT") = kPackedLayout;

  nb::class_<Weight>(m, "Weight",
                     "A matrix of one format, packed for the kernels: sixteen rows side by "
                     "side, the same "
                     "bytes in every kernel set.\n\n"
                     "A vector has one row. Immutable; may be shared between threads.")
      .def("__init__", &init_weight, "data"_a, "format"_a, "rows"_a, "cols"_a, nb::kw_only(), "name"_a = "",
           "threads"_a.none() = nb::none(), "mapped"_a = false,
           "Pack rows x cols values. data: a buffer with exactly the bytes of "
           "the format, row by row as in a "
           "file; not kept.\n\n"
           "threads: the pool that packs; None packs on the calling thread. mapped: data is a read-only "
           "mapping of a file, whose\n"
           "pages are given up while it is packed; on other memory, the contents of data are lost. "
           "Raises ValueError when the "
           "format is unknown,\n"
           "cols is not a multiple of its block, or data has another size.")
      .def_prop_ro(
          "format", [](const Weight& w) { return traits(w.matrix.format).name; },
          "The name of the format, as in FORMATS.")
      .def_prop_ro(
          "rows", [](const Weight& w) { return w.matrix.rows; }, "Number of rows (outputs).")
      .def_prop_ro(
          "cols", [](const Weight& w) { return w.matrix.cols; }, "Number of columns (inputs).")
      .def_prop_ro(
          "nbytes", [](const Weight& w) { return w.matrix.groups * w.matrix.group_bytes; },
          "Bytes of the packed form.")
      .def_static(
          "read_packed", &read_weight, "file"_a, "offset"_a, "format"_a, "rows"_a, "cols"_a, "checksum"_a,
          nb::kw_only(), "name"_a = "", "threads"_a.none() = nb::none(),
          "A weight from the bytes of `packed`, kept in a file under PACKED_LAYOUT. file: a descriptor "
          "that can be read at any offset.\n\n"
          "Raises ValueError where the bytes cannot be read, or do not match checksum.")
      .def("checksum", &weight_checksum, "threads"_a.none() = nb::none(),
           "A checksum of the packed bytes, for read_packed. Not cryptographic.")
      .def_prop_ro(
          "packed",
          [](const Weight& w) {
            const size_t bytes = w.matrix.groups * w.matrix.group_bytes;
            return nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(w.matrix.data, {bytes}, nb::find(w));
          },
          nb::rv_policy::reference, "The packed bytes, uint8 (nbytes,); a view.")
      .def_prop_ro(
          "name", [](const Weight& w) { return w.name; }, "The name in the file; may be empty.")
      .def(
          "dequantize",
          [](const Weight& w, const std::optional<RowNumbers>& rows) {
            return dequantize_weight(w, rows, {});
          },
          "rows"_a.none() = nb::none(),
          "Rows as float32 (n, cols); rows: int32 numbers, or None for all. "
          "Raises IndexError for a row that "
          "is not there.")
      .def("__repr__", [](const Weight& w) {
        return "Weight(" + (w.name.empty() ? "" : "'" + w.name + "', ") + traits(w.matrix.format).name +
               ", " + std::to_string(w.matrix.rows) + " x " + std::to_string(w.matrix.cols) + ")";
      });

  m.def("dequantize", &dequantize_data, "data"_a, "format"_a, "count"_a,
        "The count values in data, a buffer of exactly their bytes in the "
        "format, as float32 (count,).\n\n"
        "Raises ValueError when the format is unknown or the sizes do not fit. "
        "Formulas: docs/arithmetic.md.");
  m.def(
      "quantize", &quantize_values, "values"_a, "format"_a,
      "Round float32 values, row by row, to the format; returns its bytes.\n\n"
      "Formats with one level of scales, but for IQ4_NL, give the bytes of GGML's reference quantizers; the "
      "others search for good scales.\n"
      "Raises ValueError when the format is unknown, a row is not a multiple of its block, or a format with "
      "blocks meets NaN or infinity.");

  // For tests: one kernel, one set, any split.
  m.def("matmul", &multiply, "weight"_a, "x"_a, nb::kw_only(), "bias"_a.none() = nb::none(),
        "residual"_a.none() = nb::none(), "row_splits"_a = std::vector<size_t>(),
        "group_splits"_a = std::vector<size_t>(), "isa"_a.none() = nb::none(),
        "x (n, cols) times the weight, transposed: float32 (n, rows), computed "
        "in the given pieces by the "
        "given kernel set.");
  m.def("quantize_activations", &quantize_activations, "x"_a, "kind"_a, "isa"_a.none() = nb::none(),
        "Rows of activations as the kernels store them: uint8 (n, bytes).");
  m.def("dequantize_rows", &dequantize_weight, "weight"_a, "rows"_a.none(), "isa"_a.none() = nb::none(),
        "Weight.dequantize by the given kernel set.");
}
