// The Python face of the core. Shapes and types are checked here; what they mean is decided in the core.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bindings.hpp"
#include "copy.hpp"
#include "crc64.hpp"

namespace {

struct PyLease {
  std::optional<Lease> core;
  nb::object context;
};

using LayerTuple = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;
using GroupTuple = std::tuple<uint32_t, uint32_t, uint32_t, std::vector<LayerTuple>>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr nb::dlpack::dtype kHalf{uint8_t(nb::dlpack::dtype_code::Float), 16, 1};

nb::capsule to_capsule(std::unique_ptr<Export> e, uint32_t major) {
  if (major != LLAMAY_KV_VIEW_MAJOR) {
    PyErr_Format(PyExc_BufferError,
                 "llamay-kv offers kv_view %d.%d, but major version %u was asked for; run: "
                 "pip install --upgrade llamay-kv llamay-kernels",
                 LLAMAY_KV_VIEW_MAJOR, LLAMAY_KV_VIEW_MINOR, major);
    throw nb::python_error();
  }
  // A capsule holds one pointer, the struct's; what owns it is found through the context of the capsule.
  PyObject* capsule =
      PyCapsule_New(const_cast<llamay_kv_view*>(e->view()), LLAMAY_KV_VIEW_CAPSULE,
                    [](PyObject* o) { delete static_cast<Export*>(PyCapsule_GetContext(o)); });
  if (!capsule) throw nb::python_error();
  if (PyCapsule_SetContext(capsule, e.get())) {
    Py_DECREF(capsule);
    throw nb::python_error();
  }
  e.release();
  return nb::steal<nb::capsule>(capsule);
}

void check_range(uint32_t begin, uint32_t end, uint32_t first, uint32_t last) {
  if (begin > end || begin < first || end > last)
    throw nb::value_error(("positions [" + std::to_string(begin) + ", " + std::to_string(end) +
                           ") are not within [" + std::to_string(first) + ", " + std::to_string(last) + ")")
                              .c_str());
}

void check_present(const Table& table, size_t g, uint32_t begin, uint32_t end) {
  const uint32_t first = table.group(g).first;
  if (begin < end && begin < first)
    throw nb::value_error(("positions before " + std::to_string(first) +
                           " were dropped: they lie behind the window of group " + std::to_string(g))
                              .c_str());
}

/// The arrays of a write: [n, kv_heads, k_dim] and [n, kv_heads, v_dim], float32 or float16, both alike.
struct Written {
  Written(const Pool& pool, uint32_t layer, const Rows& k, const Rows& v)
      : place(pool.find(layer)), k(k), v(v) {
    const llamay_kv_layer& l = pool.layout(place.group).layers[place.index].layer;
    const bool f32 = k.dtype() == nb::dtype<float>();
    if ((!f32 && k.dtype() != kHalf) || v.dtype() != k.dtype())
      throw nb::type_error("k and v must both be float32 or both be float16");
    element = f32 ? Element::f32 : Element::f16;
    check("k", k, l.k_dim, l);
    check("v", v, l.v_dim, l);
    if (k.shape(0) != v.shape(0)) throw nb::value_error("k and v must have the same number of positions");
    if (k.shape(0) > INT32_MAX) throw nb::value_error("too many positions");
    n = uint32_t(k.shape(0));
  }
  static void check(const char* name, const Rows& a, uint32_t dim, const llamay_kv_layer& l) {
    if (a.shape(1) == l.kv_heads && a.shape(2) == dim) return;
    throw nb::value_error((std::string(name) + " has the shape (" + std::to_string(a.shape(0)) + ", " +
                           std::to_string(a.shape(1)) + ", " + std::to_string(a.shape(2)) + "), but layer " +
                           std::to_string(l.layer) + " takes (n, " + std::to_string(l.kv_heads) + ", " +
                           std::to_string(dim) + ")")
                              .c_str());
  }
  Pool::Place place;
  const Rows &k, &v;
  Element element;
  uint32_t n;
};

nb::object new_array(size_t n, uint32_t heads, uint32_t dim, Element element, void*& data) {
  const size_t size = n * heads * dim * (element == Element::f32 ? 4 : 2);
  auto* memory = new std::byte[std::max<size_t>(size, 1)];
  data = memory;
  nb::capsule owner(memory, [](void* p) noexcept { delete[] static_cast<std::byte*>(p); });
  return nb::cast(nb::ndarray<nb::numpy>(memory, {n, heads, dim}, owner, {},
                                         element == Element::f32 ? nb::dtype<float>() : kHalf));
}

nb::object read_positions(const PyContext& self, uint32_t layer, uint32_t begin, std::optional<uint32_t> to,
                          bool raw) {
  const auto e = self.core->view();
  const Pool& pool = *self.core->pool();
  const uint32_t end = to.value_or(e->view()->n_tokens);
  const Pool::Place place = pool.find(layer);
  check_range(begin, end, 0, e->view()->n_tokens);
  check_present(e->table(), place.group, begin, end);
  const GroupLayout& layout = pool.layout(place.group);
  const llamay_kv_layer& l = layout.layers[place.index].layer;
  if (raw && (layout.k == Stored::int8 || layout.v == Stored::int8))
    throw nb::type_error(
        "int8 elements mean nothing without their scales; read them as float32, or see page() and scales()");
  const Element element = raw && layout.k == Stored::f16 ? Element::f16 : Element::f32;
  void *k = nullptr, *v = nullptr;
  nb::object k_array = new_array(end - begin, l.kv_heads, l.k_dim, element, k);
  nb::object v_array = new_array(end - begin, l.kv_heads, l.v_dim, element, v);
  {
    nb::gil_scoped_release nogil;
    gather(e->table(), place, begin, end, element, k, v);
  }
  return nb::make_tuple(k_array, v_array);
}

/// A page that somebody looks into.
struct OpenPage {
  OpenPage(const PyContext& self, uint32_t layer, uint32_t index) {
    auto e = self.core->view();
    const Pool& pool = *self.core->pool();
    const uint32_t P = pool.page_tokens(), n_tokens = e->view()->n_tokens;
    if (index >= (n_tokens + P - 1) / P)
      throw nb::index_error(("the context has " + std::to_string((n_tokens + P - 1) / P) + " pages").c_str());
    const Pool::Place place = pool.find(layer);
    check_present(e->table(), place.group, index * P, index * P + 1);
    layout = &pool.layout(place.group);
    placed = &layout->layers[place.index];
    n = std::min(P, n_tokens - index * P);
    base = pool.page(place.group, e->table().page(place.group, index));
    owner = nb::capsule(e.release(), [](void* p) noexcept { delete static_cast<Export*>(p); });
  }
  const GroupLayout* layout;
  const PlacedLayer* placed;
  size_t n;
  std::byte* base;
  nb::capsule owner;
};

nb::dlpack::dtype type_of(Stored stored) {
  return stored == Stored::f32 ? nb::dtype<float>() : stored == Stored::f16 ? kHalf : nb::dtype<int8_t>();
}

using PageArray = nb::ndarray<nb::numpy, nb::ro>;

/// Read-only arrays over the page itself, as (tokens, heads, dimension) with strides; they keep it alive.
nb::object page(const PyContext& self, uint32_t layer, uint32_t index) {
  const OpenPage p(self, layer, index);
  const llamay_kv_layer& l = p.placed->layer;
  const int64_t P = p.layout->page_tokens, K = l.k_dim, V = l.v_dim;
  return nb::make_tuple(PageArray(p.base + l.k_offset, {p.n, l.kv_heads, l.k_dim}, p.owner, {1, K * P, P},
                                  type_of(p.layout->k)),
                        PageArray(p.base + l.v_offset, {p.n, l.kv_heads, l.v_dim}, p.owner, {V, P * V, 1},
                                  type_of(p.layout->v)));
}

/// What int8 elements of a page are multiplied with, as (tokens, heads).
nb::object scales(const PyContext& self, uint32_t layer, uint32_t index) {
  const OpenPage p(self, layer, index);
  const auto over = [&](Stored stored, uint64_t offset) -> nb::object {
    if (stored != Stored::int8) return nb::none();
    return nb::cast(PageArray(p.base + offset, {p.n, p.placed->layer.kv_heads}, p.owner,
                              {1, int64_t(p.layout->page_tokens)}, nb::dtype<float>()));
  };
  return nb::make_tuple(over(p.layout->k, p.placed->k_scale_offset),
                        over(p.layout->v, p.placed->v_scale_offset));
}

void overwrite(const PyContext& self, uint32_t layer, uint32_t begin, const Rows& k, const Rows& v) {
  const Written w(*self.core->pool(), layer, k, v);
  const uint32_t n = self.core->size();
  check_range(begin, begin + w.n, 0, n);
  nb::gil_scoped_release nogil;
  self.core->overwrite(
      begin, begin + w.n,
      [&](const Table& table) { scatter(table, w.place, begin, begin + w.n, w.element, k.data(), v.data()); },
      w.place.group);
}

void write_positions(const PyLease& self, uint32_t layer, const Rows& k, const Rows& v, uint32_t offset) {
  const auto e = self.core->view();
  const Written w(*e->table().pool(), layer, k, v);
  check_range(offset, offset + w.n, 0, self.core->size());
  const uint32_t begin = self.core->begin() + offset;
  nb::gil_scoped_release nogil;
  scatter(e->table(), w.place, begin, begin + w.n, w.element, k.data(), v.data());
}

/// A fork has the class of its parent: llamay_kv.Context derives from this one.
nb::object wrap(nb::handle like, std::shared_ptr<Context> core) {
  return wrap_context(like.type(), nb::inst_ptr<PyContext>(like)->pool, std::move(core));
}

nb::object fork_one(nb::handle self) { return wrap(self, nb::inst_ptr<PyContext>(self)->core->fork()); }

nb::list fork_many(nb::handle self, uint32_t n) {
  nb::list forks;
  for (uint32_t i = 0; i < n; ++i) forks.append(fork_one(self));
  return forks;
}

nb::dict side(const PyContext& self) {
  nb::dict d;
  if (const auto states = self.core->side())
    for (const auto& [name, state] : *states)
      d[name.c_str()] = nb::make_tuple(state.version, nb::bytes(state.data.data(), state.data.size()));
  return d;
}

void set_side(const PyContext& self, nb::dict d) {
  auto states = std::make_shared<SideStates>();
  for (auto [name, value] : d) {
    const auto [version, data] = nb::cast<std::tuple<uint32_t, nb::bytes>>(value);
    (*states)[nb::cast<std::string>(name)] = {version, std::string(data.c_str(), data.size())};
  }
  self.core->set_side(states->empty() ? nullptr : std::move(states));
}

nb::object label(const PyContext& self, std::string Labels::* which) {
  const auto labels = self.core->labels();
  return labels && !(*labels.*which).empty() ? nb::cast(*labels.*which) : nb::none();
}

void set_label(const PyContext& self, std::string Labels::* which, std::optional<std::string> value) {
  const auto now = self.core->labels();
  auto labels = std::make_shared<Labels>(now ? *now : Labels{});
  *labels.*which = value.value_or("");
  self.core->set_labels(std::move(labels));
}

void check_group(const Pool& pool, uint32_t g) {
  if (g >= pool.n_groups())
    throw nb::index_error(("the layout has " + std::to_string(pool.n_groups()) + " groups").c_str());
}

void pack_into(const PyContext& self, uint32_t g, uint32_t begin, uint32_t end, Bytes out) {
  const auto e = self.core->view();
  const Pool& pool = *self.core->pool();
  check_group(pool, g);
  check_range(begin, end, 0, e->view()->n_tokens);
  check_present(e->table(), g, begin, end);
  if (out.shape(0) != pool.layout(g).packed_bytes(end - begin))
    throw nb::value_error("out has the wrong size");
  nb::gil_scoped_release nogil;
  pack(e->table(), g, begin, end, reinterpret_cast<std::byte*>(out.data()));
}

void unpack_from(const PyLease& self, uint32_t g, uint32_t begin, uint32_t end, ConstBytes in) {
  const auto e = self.core->view();
  const Pool& pool = *e->table().pool();
  check_group(pool, g);
  check_range(begin, end, self.core->begin(), self.core->begin() + self.core->size());
  if (in.shape(0) != pool.layout(g).packed_bytes(end - begin))
    throw nb::value_error("data has the wrong size");
  nb::gil_scoped_release nogil;
  unpack(e->table(), g, begin, end, reinterpret_cast<const std::byte*>(in.data()));
}

/// The bytes of a chunk without a copy, where a page holds exactly that; None otherwise.
template <class Array>
nb::object in_place(std::unique_ptr<Export> e, uint32_t g, uint32_t begin, uint32_t end) {
  const std::byte* data = packed_in_place(e->table(), g, begin, end);
  if (!data) return nb::none();
  const size_t size = e->table().pool()->layout(g).page_bytes;
  nb::capsule owner(e.release(), [](void* p) noexcept { delete static_cast<Export*>(p); });
  return nb::cast(Array(const_cast<std::byte*>(data), {size}, owner, {}, nb::dtype<uint8_t>()));
}

nb::object packed_view(const PyContext& self, uint32_t g, uint32_t begin, uint32_t end) {
  auto e = self.core->view();
  check_group(*self.core->pool(), g);
  check_range(begin, end, 0, e->view()->n_tokens);
  check_present(e->table(), g, begin, end);
  return in_place<nb::ndarray<nb::numpy, nb::ro>>(std::move(e), g, begin, end);
}

nb::object packed_target(const PyLease& self, uint32_t g, uint32_t begin, uint32_t end) {
  check_group(*self.core->context()->pool(), g);
  check_range(begin, end, self.core->begin(), self.core->begin() + self.core->size());
  return in_place<nb::ndarray<nb::numpy>>(self.core->view(), g, begin, end);
}

std::vector<uint32_t> first_positions(const PyContext& self) {
  const auto e = self.core->view();
  std::vector<uint32_t> first;
  for (size_t g = 0; g < self.core->pool()->n_groups(); ++g) first.push_back(e->table().group(g).first);
  return first;
}

std::vector<int32_t> page_numbers(const PyContext& self, uint32_t g) {
  const auto e = self.core->view();
  check_group(*self.core->pool(), g);
  std::vector<int32_t> numbers(e->table().n_pages());
  for (uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = e->table().page(g, i);
  return numbers;
}

std::shared_ptr<Pool> make_pool(const std::vector<GroupTuple>& groups, uint32_t page_tokens,
                                std::optional<uint64_t> budget, std::optional<uint64_t> pages) {
  std::vector<GroupSpec> specs;
  for (const auto& [kind, window, precision, layers] : groups) {
    GroupSpec spec{Kind(kind), window, Precision(precision), {}};
    for (const auto& [layer, heads, k, v] : layers) spec.layers.push_back({layer, heads, k, v});
    specs.push_back(std::move(spec));
  }
  if (budget.has_value() == pages.has_value()) throw nb::type_error("give either budget_bytes or pages");
  if (pages) {
    validate(specs, page_tokens);
    uint64_t one = 0;
    for (const GroupSpec& spec : specs) one += GroupLayout(spec, page_tokens).page_bytes;
    if (*pages == 0 || *pages > UINT64_MAX / one) throw nb::value_error("pages is out of range");
    budget = *pages * one;
  }
  return std::make_shared<Pool>(std::move(specs), page_tokens, *budget);
}

}  // namespace

nb::object wrap_context(nb::handle type, nb::object pool, std::shared_ptr<Context> core) {
  nb::object o = nb::inst_alloc(type);
  new (nb::inst_ptr<PyContext>(o)) PyContext{std::move(core), std::move(pool)};
  nb::inst_mark_ready(o);
  return o;
}

std::vector<int32_t> to_ids(nb::handle tokens) {
  Ids array;
  if (nb::try_cast(tokens, array, false)) return {array.data(), array.data() + array.shape(0)};
  return nb::cast<std::vector<int32_t>>(tokens);
}

NB_MODULE(_kv, m) {
  m.def(
      "kv_view_version", [] { return std::make_tuple(LLAMAY_KV_VIEW_MAJOR, LLAMAY_KV_VIEW_MINOR); },
      "Major and minor version of abi/llamay/kv_view.h as this module was compiled with it.");
  nb::exception<OutOfPages>(m, "OutOfPages", PyExc_MemoryError);
  nb::exception<ContextBusy>(m, "ContextBusy", PyExc_RuntimeError);
  nb::exception<Closed>(m, "Closed", PyExc_ValueError);

  m.def(
      "crc64",
      [](ConstBytes data, uint64_t previous) {
        const size_t n = data.shape(0);
        if (n < 4096) return crc64(data.data(), n, previous);
        nb::gil_scoped_release nogil;
        return crc64(data.data(), n, previous);
      },
      "data"_a, "previous"_a = 0,
      nb::sig("def crc64(data: bytes | bytearray | memoryview | numpy.ndarray, previous: int = 0) -> int"),
      "CRC-64/NVME of a buffer, continuing from the CRC of what came before it.");

  nb::class_<PyPool>(m, "Pool", "Pages for many contexts. llamay_kv.Pool is what to use.")
      .def(
          "__init__",
          [](PyPool* self, const std::vector<GroupTuple>& groups, uint32_t page_tokens,
             std::optional<uint64_t> budget_bytes, std::optional<uint64_t> pages) {
            new (self) PyPool{make_pool(groups, page_tokens, budget_bytes, pages)};
          },
          "groups"_a, "page_tokens"_a, "budget_bytes"_a.none(), "pages"_a.none())
      .def_prop_ro(
          "page_tokens", [](const PyPool& p) { return p.core->page_tokens(); }, "Positions in a page.")
      .def_prop_ro(
          "budget_bytes", [](const PyPool& p) { return p.core->budget_bytes(); },
          "What the pages of all groups together may take.")
      .def_prop_ro(
          "used_bytes", [](const PyPool& p) { return p.core->used_bytes(); },
          "What the pages that somebody holds take, exactly.")
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
          nb::sig("def live_pages(self) -> tuple[int, ...]"), "Pages that somebody holds, for each group.")
      .def(
          "packed_bytes",
          [](const PyPool& p, uint32_t group, uint32_t positions) {
            check_group(*p.core, group);
            return p.core->layout(group).packed_bytes(positions);
          },
          "group"_a, "positions"_a, "Bytes of payload in so many positions of a group.")
      .def(
          "trim", [](const PyPool& p) { return p.core->trim(); },
          "Give the memory of free pages back to the system; returns their bytes.")
      .def(
          "holders",
          [](const PyPool& p, uint32_t group, int32_t page) {
            check_group(*p.core, group);
            if (page < 0 || uint64_t(page) >= p.core->budget_bytes() / p.core->layout(group).page_bytes)
              throw nb::index_error("no such page");
            return p.core->holders(group, page);
          },
          "group"_a, "page"_a, "How many blocks of page tables list the page.")
      .def(
          "audit", [](const PyPool& p) { p.core->audit(); },
          "Recount every page, block and byte from the live tables; raises RuntimeError at the first "
          "difference.\n\n"
          "For quiet moments: no other thread may use the pool meanwhile.");

  nb::class_<PyContext>(m, "Context",
                        "Token ids and the pages of their K/V. llamay_kv.Context is what to use.")
      .def(
          "__init__",
          [](PyContext* self, nb::handle pool) {
            const auto& core = nb::cast<const PyPool&>(pool).core;
            new (self) PyContext{std::make_shared<Context>(core), nb::borrow(pool)};
          },
          "pool"_a)
      .def_prop_ro(
          "pool", [](const PyContext& c) { return c.pool; }, nb::sig("def pool(self) -> Pool"),
          "The pool its pages are in.")
      .def("__len__", [](const PyContext& c) { return c.core->size(); })
      .def_prop_ro(
          "closed", [](const PyContext& c) { return c.core->closed(); }, "Whether close() was called.")
      .def_prop_ro(
          "leased", [](const PyContext& c) { return c.core->leased(); }, "Whether a lease is open.")
      .def("fork", &fork_one, nb::sig("def fork(self) -> typing.Self"),
           "A context with the same tokens that shares every page until one of the two writes.\n\n"
           "Takes the same time at any length and allocates no page.")
      .def("fork", &fork_many, "n"_a, nb::sig("def fork(self, n: int) -> list[typing.Self]"), "n such forks.")
      .def(
          "truncate", [](const PyContext& c, uint32_t n) { c.core->truncate(n); }, "n"_a,
          "Keep the first n tokens. ValueError if a page that n tokens need was dropped behind a window.")
      .def(
          "close", [](const PyContext& c) { c.core->close(); },
          "Give all pages up. Views stay valid until they are released. Closing twice is nothing.")
      .def_prop_ro(
          "tokens", [](const PyContext& c) { return c.core->tokens(0, c.core->size()); },
          "The token ids, as a list.")
      .def(
          "token_slice",
          [](const PyContext& c, uint32_t begin, uint32_t end) { return c.core->tokens(begin, end); },
          "begin"_a, "end"_a, "Some of the token ids.")
      .def(
          "reserve",
          [](nb::handle self, uint32_t n, std::optional<std::vector<uint32_t>> first) {
            const std::span<const uint32_t> from =
                first ? std::span<const uint32_t>(*first) : std::span<const uint32_t>();
            return PyLease{reserve(nb::inst_ptr<PyContext>(self)->core, n, from), nb::borrow(self)};
          },
          "n"_a, "first"_a.none() = nb::none(),
          "Make the next n positions writable and return the lease on them.\n\n"
          "Takes pages and clones a shared last page; raises OutOfPages, having changed nothing, if the "
          "budget does\n"
          "not reach, and ContextBusy while another lease is open. For a context without tokens, first may "
          "say for\n"
          "each group which position will be the first to be filled: no page before it is taken.")
      .def("read", &read_positions, "layer"_a, "begin"_a = 0, "end"_a.none() = nb::none(), nb::kw_only(),
           "raw"_a = false,
           nb::sig(
               "def read(self, layer: int, begin: int = 0, end: int | None = None, *, raw: bool = False) -> "
               "tuple[numpy.ndarray, numpy.ndarray]"),
           "Copies of K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim) of positions [begin, end).\n\n"
           "float32, or with raw the precision they are stored in.")
      .def("overwrite", &overwrite, "layer"_a, "begin"_a, "k"_a, "v"_a,
           nb::sig("def overwrite(self, layer: int, begin: int, k: numpy.ndarray, v: numpy.ndarray) -> None"),
           "Replace K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim) from position begin on, for this "
           "context alone.\n\n"
           "float32 or float16; rounded to nearest even where the group stores less. Forks keep what they "
           "had.")
      .def("page", &page, "layer"_a, "index"_a,
           nb::sig("def page(self, layer: int, index: int) -> tuple[numpy.ndarray, numpy.ndarray]"),
           "Read-only arrays (tokens, kv_heads, dim) over the memory of a page, K dimension-major, without a "
           "copy.\n\n"
           "They keep the page alive and as it is, whatever the context does next.")
      .def("scales", &scales, "layer"_a, "index"_a,
           nb::sig("def scales(self, layer: int, index: int) -> tuple[numpy.ndarray | None, numpy.ndarray | "
                   "None]"),
           "The float32 scales (tokens, kv_heads) of a page's K and V, without a copy; None where they are "
           "not int8.")
      .def("first_positions", &first_positions, "The first position that is still there, for each group.")
      .def("page_numbers", &page_numbers, "group"_a,
           "The pages of a group in position order; -1 for a dropped one.")
      .def_prop_rw("side", &side, &set_side,
                   nb::for_getter(nb::sig("def side(self) -> dict[str, tuple[int, bytes]]")),
                   nb::for_setter(nb::sig("def side(self, value: dict[str, tuple[int, bytes]], /) -> None")),
                   "Opaque states of this very length, by name: (version, data). Forks carry them; whatever "
                   "changes the\n"
                   "tokens or the pages clears them.")
      .def_prop_rw(
          "owner", [](const PyContext& c) { return label(c, &Labels::owner); },
          [](const PyContext& c, std::optional<std::string> v) {
            set_label(c, &Labels::owner, std::move(v));
          },
          nb::for_getter(nb::sig("def owner(self) -> str | None")),
          nb::for_setter(nb::sig("def owner(self, value: str | None, /) -> None")),
          nb::for_setter(nb::arg().none()), "Whose it is. Forks and snapshots have it too.")
      .def_prop_rw(
          "marking", [](const PyContext& c) { return label(c, &Labels::marking); },
          [](const PyContext& c, std::optional<std::string> v) {
            set_label(c, &Labels::marking, std::move(v));
          },
          nb::for_getter(nb::sig("def marking(self) -> str | None")),
          nb::for_setter(nb::sig("def marking(self, value: str | None, /) -> None")),
          nb::for_setter(nb::arg().none()),
          "How confidential it is, in the words of whoever marked it. Forks and snapshots have it too, and "
          "it stays.")
      .def("pack_into", &pack_into, "group"_a, "begin"_a, "end"_a, "out"_a.noconvert(),
           "Write positions [begin, end) of a group into out, in the order of a snapshot's chunk.")
      .def("packed_view", &packed_view, "group"_a, "begin"_a, "end"_a,
           nb::sig("def packed_view(self, group: int, begin: int, end: int) -> numpy.ndarray | None"),
           "The same without a copy, where one page holds exactly that; else None.")
      .def(
          LLAMAY_KV_VIEW_METHOD,
          [](const PyContext& c, uint32_t major) { return to_capsule(c.core->view(), major); },
          "major"_a = LLAMAY_KV_VIEW_MAJOR, "A view for reading, as abi/llamay/kv_view.h describes it.");

  nb::class_<PyLease>(m, "Lease",
                      "The right to write the next positions of a context, until commit or release.")
      .def_prop_ro(
          "context", [](const PyLease& l) { return l.context; }, nb::sig("def context(self) -> Context"),
          "The context it is a lease on.")
      .def_prop_ro(
          "begin", [](const PyLease& l) { return l.core->begin(); },
          "The first position that may be written.")
      .def("__len__", [](const PyLease& l) { return l.core->size(); })
      .def_prop_ro(
          "open", [](const PyLease& l) { return l.core->open(); }, "Whether it has not ended.")
      .def(
          "commit", [](PyLease& l, nb::handle tokens) { l.core->commit(to_ids(tokens)); }, "tokens"_a,
          nb::sig("def commit(self, tokens: collections.abc.Sequence[int] | numpy.ndarray) -> None"),
          "Keep the first len(tokens) reserved positions, under these ids, and give up the others. Ends the "
          "lease.")
      .def(
          "release", [](PyLease& l) { l.core->release(); }, "End the lease and keep nothing.")
      .def("write", &write_positions, "layer"_a, "k"_a, "v"_a, nb::kw_only(), "offset"_a = 0,
           nb::sig(
               "def write(self, layer: int, k: numpy.ndarray, v: numpy.ndarray, *, offset: int = 0) -> None"),
           "Store K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim), float32 or float16, from position begin "
           "+ offset on.")
      .def("unpack_from", &unpack_from, "group"_a, "begin"_a, "end"_a, "data"_a,
           "Fill positions [begin, end) of a group from a snapshot's chunk.")
      .def("packed_target", &packed_target, "group"_a, "begin"_a, "end"_a,
           nb::sig("def packed_target(self, group: int, begin: int, end: int) -> numpy.ndarray | None"),
           "The memory that unpack_from would fill, where one page is exactly that; else None.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> typing.Self"))
      .def(
          "__exit__", [](PyLease& l, nb::args) { l.core->release(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def(
          LLAMAY_KV_VIEW_METHOD,
          [](const PyLease& l, uint32_t major) { return to_capsule(l.core->view(), major); },
          "major"_a = LLAMAY_KV_VIEW_MAJOR, "A view for one step, as abi/llamay/kv_view.h describes it.");

  bind_prefix_tree(m);
}
