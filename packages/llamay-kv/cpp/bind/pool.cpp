// Pools, and the objects that a pool calls back: the store of spilled pages and an allocator.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "bind/bindings.hpp"

namespace {

using LayerTuple = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;
using GroupTuple = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, std::vector<LayerTuple>>;

/// A Python object that is released with its last holder, on any thread.
std::shared_ptr<nb::object> shared_object(nb::handle o) {
  return {new nb::object(nb::borrow(o)), [](nb::object* p) {
            if (!nb::is_alive()) return;  // the interpreter has gone, and the object with it
            nb::gil_scoped_acquire gil;
            delete p;
          }};
}

/// A store in Python: write(group, slot, serial, page) -> bool, read(group, slot, serial, page), overhead.
class PySpillStore : public SpillStore {
 public:
  explicit PySpillStore(nb::handle store)
      : store_(shared_object(store)), overhead_(nb::cast<size_t>(store.attr("overhead"))) {}

  size_t overhead() const override { return overhead_; }

  bool write(size_t group, uint32_t slot, uint64_t serial, std::span<const std::byte> page) override {
    nb::gil_scoped_acquire gil;
    return in_words([&] {
      auto* data = const_cast<char*>(reinterpret_cast<const char*>(page.data()));
      const nb::object view = nb::steal(PyMemoryView_FromMemory(data, Py_ssize_t(page.size()), PyBUF_READ));
      return nb::cast<bool>(store_->attr("write")(group, slot, serial, view));
    });
  }

  void read(size_t group, uint32_t slot, uint64_t serial, std::span<std::byte> page) override {
    nb::gil_scoped_acquire gil;
    in_words([&] {
      auto* data = reinterpret_cast<char*>(page.data());
      const nb::object view = nb::steal(PyMemoryView_FromMemory(data, Py_ssize_t(page.size()), PyBUF_WRITE));
      store_->attr("read")(group, slot, serial, view);
      return true;
    });
  }

 private:
  /// An exception of Python must not outlive the time that we have the interpreter.
  template <class F>
  static bool in_words(F&& f) {
    std::string what;
    try {
      return f();
    } catch (nb::python_error& e) {
      what = nb::str(e.value()).c_str();
      if (what.empty()) what = nb::type_name(e.type()).c_str();
    }
    throw std::runtime_error(what);
  }

  std::shared_ptr<nb::object> store_;
  size_t overhead_;
};

/// Memory from a Python callable: allocate(bytes) returns a writable buffer, which is released in the end.
class BufferAllocator {
 public:
  explicit BufferAllocator(nb::handle allocate) : allocate_(shared_object(allocate)) {}

  static void* allocate(void* user, uint64_t bytes) {
    auto& self = *static_cast<BufferAllocator*>(user);
    nb::gil_scoped_acquire gil;
    auto buffer = std::make_unique<Py_buffer>();
    const nb::object provided = (*self.allocate_)(bytes + kAlign);
    if (PyObject_GetBuffer(provided.ptr(), buffer.get(), PyBUF_SIMPLE | PyBUF_WRITABLE))
      throw nb::python_error();
    const auto base = reinterpret_cast<uintptr_t>(buffer->buf);
    const uintptr_t aligned = (base + kAlign - 1) / kAlign * kAlign;
    if (aligned + bytes > base + uintptr_t(buffer->len)) {
      PyBuffer_Release(buffer.get());
      throw nb::value_error(
          ("the allocator was asked for " + std::to_string(bytes + kAlign) + " bytes and gave fewer")
              .c_str());
    }
    self.buffers_.emplace_back(aligned, std::move(buffer));
    return reinterpret_cast<void*>(aligned);
  }

  static void release(void* user, void* memory, uint64_t) {
    auto& self = *static_cast<BufferAllocator*>(user);
    if (!nb::is_alive()) return;
    nb::gil_scoped_acquire gil;
    for (auto& [address, buffer] : self.buffers_)
      if (buffer && address == reinterpret_cast<uintptr_t>(memory)) {
        PyBuffer_Release(buffer.get());
        buffer.reset();
      }
  }

 private:
  static constexpr uintptr_t kAlign = 64;
  std::shared_ptr<nb::object> allocate_;
  std::vector<std::pair<uintptr_t, std::unique_ptr<Py_buffer>>> buffers_;
};

std::shared_ptr<const Allocator> to_allocator(nb::handle o) {
  if (o.is_none()) return nullptr;
  if (!nb::hasattr(o, LLAMAY_ALLOCATOR_METHOD)) {
    if (!PyCallable_Check(o.ptr()))
      throw nb::type_error("allocator: give an object with " LLAMAY_ALLOCATOR_METHOD
                           "(), or a callable that takes a number of bytes and returns a writable buffer");
    auto buffers = std::make_shared<BufferAllocator>(o);
    const llamay_allocator functions{sizeof functions,          buffers.get(), &BufferAllocator::allocate,
                                     &BufferAllocator::release, nullptr,       nullptr};
    return std::make_shared<Allocator>(Allocator{functions, std::move(buffers)});
  }
  const nb::object capsule = o.attr(LLAMAY_ALLOCATOR_METHOD)(LLAMAY_ALLOCATOR_MAJOR);
  if (!PyCapsule_IsValid(capsule.ptr(), LLAMAY_ALLOCATOR_CAPSULE)) {
    PyErr_Format(PyExc_BufferError, "allocator: expected a capsule named %s, got something else",
                 LLAMAY_ALLOCATOR_CAPSULE);
    throw nb::python_error();
  }
  const auto* given =
      static_cast<const llamay_allocator*>(PyCapsule_GetPointer(capsule.ptr(), LLAMAY_ALLOCATOR_CAPSULE));
  constexpr size_t kLeast = offsetof(llamay_allocator, copy);  // the size of 1.0
  llamay_allocator functions{};
  if (given->size >= kLeast) std::memcpy(&functions, given, std::min(given->size, sizeof functions));
  if (!functions.allocate || !functions.release) {
    PyErr_Format(PyExc_BufferError,
                 "allocator: its struct has %zu bytes or lacks a function; allocator %d.0 has %zu",
                 given->size, LLAMAY_ALLOCATOR_MAJOR, kLeast);
    throw nb::python_error();
  }
  return std::make_shared<Allocator>(Allocator{functions, shared_object(capsule)});
}

template <ArgName name>
using Count64 = Arg<name, std::optional<uint64_t>>;

std::shared_ptr<Pool> make_pool(const std::vector<GroupTuple>& groups, uint32_t page_tokens,
                                std::optional<uint64_t> budget, std::optional<uint64_t> pages,
                                nb::handle spill, uint64_t spill_bytes, nb::handle allocator,
                                std::optional<uint64_t> checkpoint_bytes) {
  std::vector<GroupSpec> specs;
  for (const auto& [kind, window, stride, precision, layers] : groups) {
    GroupSpec spec{Kind(kind), window, Precision(precision), {}, stride};
    for (const auto& [layer, heads, k, v] : layers) spec.layers.push_back({layer, heads, k, v});
    specs.push_back(std::move(spec));
  }
  if (budget.has_value() == pages.has_value()) throw nb::type_error("give either budget_bytes or pages");
  if (pages) {
    validate(specs, page_tokens);
    uint64_t one = 0;
    for (const GroupSpec& spec : specs) one += GroupLayout(spec, page_tokens).page_bytes;
    if (*pages == 0 || *pages > UINT64_MAX / std::max<uint64_t>(one, 1))
      throw nb::value_error("pages is out of range");
    budget = *pages * one;
  }
  PoolOptions options{*budget, nullptr, spill_bytes, to_allocator(allocator),
                      checkpoint_bytes.value_or(UINT64_MAX)};
  if (!spill.is_none()) options.spill = std::make_shared<PySpillStore>(spill);
  return std::make_shared<Pool>(std::move(specs), page_tokens, std::move(options));
}

nb::dict spill_counters(const PyPool& p) {
  nb::dict d;
  if (!p.core->spill()) return d;
  const auto s = p.core->spill()->stats();
  d["budget_bytes"] = s.budget_bytes;
  d["file_bytes"] = s.file_bytes;
  d["spilled_bytes"] = s.spilled_bytes;
  d["spilled_pages"] = s.spilled_pages;
  d["written_pages"] = s.written_pages;
  d["read_pages"] = s.read_pages;
  d["failed_writes"] = s.failed_writes;
  d["failed_reads"] = s.failed_reads;
  d["no_room"] = s.no_room;
  return d;
}

}  // namespace

void bind_pool(nb::module_& m) {
  nb::class_<PyPool>(m, "Pool", "Pages for many contexts. Use llamay_kv.Pool.")
      .def(
          "__init__",
          [](PyPool* self, const std::vector<GroupTuple>& groups, Arg<"page_tokens"> page_tokens,
             Count64<"budget_bytes"> budget_bytes, Count64<"pages"> pages, nb::handle spill,
             Arg<"spill_bytes", uint64_t> spill_bytes, nb::handle allocator,
             Count64<"checkpoint_bytes"> checkpoint_bytes) {
            new (self) PyPool{make_pool(groups, page_tokens, budget_bytes, pages, spill, spill_bytes,
                                        allocator, checkpoint_bytes)};
          },
          "groups"_a, "page_tokens"_a, "budget_bytes"_a.none(), "pages"_a.none(),
          "spill"_a.none() = nb::none(), "spill_bytes"_a = 0, "allocator"_a.none() = nb::none(),
          "checkpoint_bytes"_a.none() = nb::none(),
          nb::sig(
              "def __init__(self, groups: collections.abc.Sequence[tuple[int, int, int, int, "
              "collections.abc.Sequence[tuple[int, int, int, int]]]], page_tokens: int, budget_bytes: int | "
              "None, pages: int | None, spill: object = None, spill_bytes: int = 0, allocator: object = "
              "None, checkpoint_bytes: int | None = None) -> None"))
      .def_prop_ro(
          "page_tokens", [](const PyPool& p) { return p.core->page_tokens(); }, "Positions in a page.")
      .def_prop_ro(
          "budget_bytes", [](const PyPool& p) { return p.core->budget_bytes(); },
          "The most bytes that the pages of all groups together take.")
      .def_prop_ro(
          "used_bytes", [](const PyPool& p) { return p.core->used_bytes(); },
          "Bytes of all pages with a holder, exactly.")
      .def_prop_ro(
          "peak_bytes", [](const PyPool& p) { return p.core->peak_bytes(); },
          "The highest used_bytes so far.")
      .def_prop_ro(
          "page_bytes",
          [](const PyPool& p) {
            std::vector<uint64_t> bytes;
            for (size_t g = 0; g < p.core->n_groups(); ++g) bytes.push_back(p.core->layout(g).page_bytes);
            return nb::tuple(nb::cast(bytes));
          },
          nb::sig("def page_bytes(self) -> tuple[int, ...]"), "The size of a page, for each group.")
      .def_prop_ro(
          "live_pages",
          [](const PyPool& p) {
            std::vector<uint32_t> pages;
            for (size_t g = 0; g < p.core->n_groups(); ++g) pages.push_back(p.core->live_pages(g));
            return nb::tuple(nb::cast(pages));
          },
          nb::sig("def live_pages(self) -> tuple[int, ...]"), "Pages with a holder, for each group.")
      .def(
          "packed_bytes",
          [](const PyPool& p, Arg<"group"> group, Arg<"positions"> positions) {
            check_group(*p.core, group);
            return p.core->layout(group).packed_bytes(positions);
          },
          "group"_a, "positions"_a, nb::sig("def packed_bytes(self, group: int, positions: int) -> int"),
          "Bytes of payload in so many positions of a group.")
      .def(
          "trim", [](const PyPool& p) { return p.core->trim(); },
          "Give the memory of free pages back to the system; returns their bytes.")
      .def(
          "holders",
          [](const PyPool& p, Arg<"group"> group, Arg<"page", int32_t> page) {
            check_group(*p.core, group);
            if (page < 0 || uint32_t(page) >= p.core->capacity(group))
              throw nb::index_error(("page: group " + std::to_string(group.value) + " has " +
                                     std::to_string(p.core->capacity(group)) + " pages at most")
                                        .c_str());
            return p.core->holders(group, page);
          },
          "group"_a, "page"_a, nb::sig("def holders(self, group: int, page: int) -> int"),
          "How many blocks of page tables list the page.")
      .def(
          "audit", [](const PyPool& p) { p.core->audit(); },
          "Recount every page, block and byte from the live tables; raises RuntimeError at the first "
          "difference.\n\n"
          "For quiet moments: no other thread may use the pool meanwhile.")
      .def(
          "spill_out",
          [](const PyPool& p, Arg<"bytes", uint64_t> bytes) -> uint64_t {
            if (!p.core->spill()) return 0;
            nb::gil_scoped_release nogil;
            return p.core->spill()->spill(bytes);
          },
          "bytes"_a, nb::sig("def spill_out(self, bytes: int) -> int"),
          "Write idle pages to the spill file until so many bytes are free; returns the bytes that were "
          "freed.\n\n"
          "A pool that runs out of pages does this by itself. Without a spill file it does nothing.")
      .def("spill_counters", &spill_counters, nb::sig("def spill_counters(self) -> dict[str, int]"),
           "Sizes of the spill file, and sums since the pool was made; empty without a spill file.");
}
