// The functions of contexts and leases that move arrays. Shapes and types are checked here.
#include "bind/bindings.hpp"
#include "numbers/crc64.hpp"
#include "pages/copy.hpp"

using Rows = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using StateRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <>
constexpr const char* kWanted<Rows> = "an array (n, kv_heads, dim) of float32 or float16 in main memory";
template <>
constexpr const char* kWanted<StateRows> = "an array (heads, dim) of float32 or float16 in main memory";

namespace {

using To = Arg<"end", std::optional<uint32_t>>;

constexpr nb::dlpack::dtype kHalf{uint8_t(nb::dlpack::dtype_code::Float), 16, 1};

Pool::Place find_positions(const Pool& pool, uint32_t layer) {
  const Pool::Place place = pool.find(layer);
  if (pool.layout(place.group).recurrent())
    throw nb::value_error(("layer " + std::to_string(uint32_t(layer)) +
                           " is recurrent: it has states and no positions; see state() and write_state()")
                              .c_str());
  return place;
}

/// The arrays of a write: [n, kv_heads, k_dim] and [n, kv_heads, v_dim], float32 or float16, both alike.
struct Written {
  Written(const Pool& pool, uint32_t layer, const Rows& k, const Rows& v)
      : place(find_positions(pool, layer)), k(k), v(v) {
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

/// The memory of an array to read into, which must be as it would be made.
void* given_array(const char* name, nb::handle array, size_t n, uint32_t heads, uint32_t dim,
                  Element element) {
  nb::ndarray<nb::ndim<3>, nb::c_contig, nb::device::cpu> a;
  const auto type = element == Element::f32 ? nb::dtype<float>() : kHalf;
  if (nb::try_cast(array, a, false) && a.dtype() == type && a.shape(0) == n && a.shape(1) == heads &&
      a.shape(2) == dim)
    return a.data();
  throw nb::value_error(("out: " + std::string(name) + " must be a writable, contiguous array of " +
                         (element == Element::f32 ? "float32" : "float16") + " with the shape (" +
                         std::to_string(n) + ", " + std::to_string(heads) + ", " + std::to_string(dim) + ")")
                            .c_str());
}

/// Positions of a layer among the positions of the view: the committed ones, and the reserved ones of a
/// lease.
nb::object read_positions(const Export& e, uint32_t layer, uint32_t begin, std::optional<uint32_t> to,
                          bool raw, nb::handle out) {
  const Pool& pool = *e.table().pool();
  const uint32_t last = e.view()->n_tokens + e.view()->n_reserved, end = to.value_or(last);
  const Pool::Place place = find_positions(pool, layer);
  check_range(begin, end, 0, last);
  check_present(e.table(), place.group, begin, end);
  const GroupLayout& layout = pool.layout(place.group);
  const llamay_kv_layer& l = layout.layers[place.index].layer;
  if (raw && (layout.k == Stored::int8 || layout.v == Stored::int8))
    throw nb::type_error(
        "int8 elements mean nothing without their scales; read them as float32, or see page() and scales()");
  const Element element = raw && layout.k == Stored::f16 ? Element::f16 : Element::f32;
  void *k = nullptr, *v = nullptr;
  nb::object k_array, v_array;
  if (out.is_none()) {
    k_array = new_array(end - begin, l.kv_heads, l.k_dim, element, k);
    v_array = new_array(end - begin, l.kv_heads, l.v_dim, element, v);
  } else {
    if (!PySequence_Check(out.ptr()) || PySequence_Size(out.ptr()) != 2) {
      PyErr_Clear();
      refuse(PyExc_TypeError, "out", "a pair of arrays, or None", out);
    }
    k_array = nb::borrow(out[0]);
    v_array = nb::borrow(out[1]);
    k = given_array("k", k_array, end - begin, l.kv_heads, l.k_dim, element);
    v = given_array("v", v_array, end - begin, l.kv_heads, l.v_dim, element);
  }
  {
    nb::gil_scoped_release nogil;
    gather(e.table(), place, begin, end, element, k, v);
  }
  return nb::make_tuple(k_array, v_array);
}

nb::object read_committed(const PyContext& self, Arg<"layer"> layer, Arg<"begin"> begin, To to,
                          Arg<"raw", bool> raw, nb::handle out) {
  return read_positions(*view_of(self), layer, begin, to, raw, out);
}

nb::object read_leased(const PyLease& self, Arg<"layer"> layer, Arg<"begin"> begin, To to,
                       Arg<"raw", bool> raw, nb::handle out) {
  return read_positions(*self.core->view(), layer, begin, to, raw, out);
}

/// A page with a view that keeps it alive.
struct OpenPage {
  OpenPage(const PyContext& self, uint32_t layer, uint32_t index) {
    auto e = view_of(self);
    const Pool& pool = *self.core->pool();
    const uint32_t P = pool.page_tokens(), n_tokens = e->view()->n_tokens;
    if (index >= (n_tokens + P - 1) / P)
      throw nb::index_error(("index " + std::to_string(index) + ": the context has " +
                             std::to_string((n_tokens + P - 1) / P) + " pages")
                                .c_str());
    const Pool::Place place = find_positions(pool, layer);
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
nb::object page(const PyContext& self, Arg<"layer"> layer, Arg<"index"> index) {
  const OpenPage p(self, layer, index);
  const llamay_kv_layer& l = p.placed->layer;
  const int64_t P = p.layout->page_tokens, K = l.k_dim, V = l.v_dim;
  return nb::make_tuple(PageArray(p.base + l.k_offset, {p.n, l.kv_heads, l.k_dim}, p.owner, {1, K * P, P},
                                  type_of(p.layout->k)),
                        PageArray(p.base + l.v_offset, {p.n, l.kv_heads, l.v_dim}, p.owner, {V, P * V, 1},
                                  type_of(p.layout->v)));
}

/// The factors of a page's int8 elements, as (tokens, heads).
nb::object scales(const PyContext& self, Arg<"layer"> layer, Arg<"index"> index) {
  const OpenPage p(self, layer, index);
  const auto over = [&](Stored stored, uint64_t offset) -> nb::object {
    if (stored != Stored::int8) return nb::none();
    return nb::cast(PageArray(p.base + offset, {p.n, p.placed->layer.kv_heads}, p.owner,
                              {1, int64_t(p.layout->page_tokens)}, nb::dtype<float>()));
  };
  return nb::make_tuple(over(p.layout->k, p.placed->k_scale_offset),
                        over(p.layout->v, p.placed->v_scale_offset));
}

void overwrite(const PyContext& self, Arg<"layer"> layer, Arg<"begin"> from, Arg<"k", Rows> k,
               Arg<"v", Rows> v) {
  const Written w(*self.core->pool(), layer, k, v);
  const uint32_t begin = from;
  const uint32_t n = self.core->size();
  check_range(begin, begin + w.n, 0, n);
  nb::gil_scoped_release nogil;
  self.core->overwrite(
      begin, begin + w.n,
      [&](const Table& table) {
        scatter(table, w.place, begin, begin + w.n, w.element, w.k.data(), w.v.data());
      },
      w.place.group);
}

void write_positions(const PyLease& self, Arg<"layer"> layer, Arg<"k", Rows> k, Arg<"v", Rows> v,
                     Arg<"offset"> from) {
  const uint32_t offset = from;
  const auto e = self.core->view();
  const Written w(*e->table().pool(), layer, k, v);
  check_range(offset, offset + w.n, 0, self.core->size());
  const uint32_t begin = self.core->begin() + offset;
  nb::gil_scoped_release nogil;
  scatter(e->table(), w.place, begin, begin + w.n, w.element, w.k.data(), w.v.data());
}

Pool::Place find_state(const Pool& pool, uint32_t layer) {
  const Pool::Place place = pool.find(layer);
  if (!pool.layout(place.group).recurrent())
    throw nb::value_error(
        ("layer " + std::to_string(uint32_t(layer)) + " is not recurrent: it has positions and no states")
            .c_str());
  return place;
}

/// Read-only arrays over a state, as (heads, dimension); they keep it alive.
nb::object state(const PyContext& self, Arg<"layer"> layer, Arg<"at", std::optional<uint32_t>> at) {
  auto e = view_of(self);
  const Pool& pool = *self.core->pool();
  const Pool::Place place = find_state(pool, layer);
  const GroupLayout& layout = pool.layout(place.group);
  const llamay_kv_layer l = layout.layers[place.index].layer;
  std::byte* base = state_page(e->table(), place.group, at.value.value_or(e->view()->n_tokens));
  nb::capsule owner(e.release(), [](void* p) noexcept { delete static_cast<Export*>(p); });
  const auto over = [&](uint64_t offset, size_t dim) {
    return PageArray(base + offset, {l.kv_heads, dim}, owner, {}, type_of(layout.k));
  };
  return nb::make_tuple(over(l.k_offset, l.k_dim), over(l.v_offset, l.v_dim));
}

/// A copy of the state that a step begins with, or that was written after some of its tokens, as float32.
nb::object read_state(const PyLease& self, Arg<"layer"> layer, Arg<"after"> given) {
  const uint32_t after = given;
  const auto e = self.core->view();
  const Pool& pool = *e->table().pool();
  const Pool::Place place = find_state(pool, layer);
  const GroupLayout& layout = pool.layout(place.group);
  const llamay_kv_layer& l = layout.layers[place.index].layer;
  const uint32_t at = after ? reserved_state(*self.core, after) : self.core->begin();
  if (after && !self.core->written(at))
    throw nb::value_error(
        ("the state after " + std::to_string(after) + " of the reserved tokens was not written").c_str());
  const std::byte* base = at ? state_page(e->table(), place.group, at) : nullptr;
  const auto copy = [&](uint64_t offset, size_t dim) {
    const size_t n = l.kv_heads * dim;
    auto* memory = new float[std::max<size_t>(n, 1)]();  // zeros before the first token
    nb::capsule owner(memory, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    if (base) widen(base + offset, layout.k, memory, n);
    return nb::cast(nb::ndarray<nb::numpy>(memory, {l.kv_heads, dim}, owner, {}, nb::dtype<float>()));
  };
  return nb::make_tuple(copy(l.k_offset, l.k_dim), copy(l.v_offset, l.v_dim));
}

void write_state(PyLease& self, Arg<"layer"> layer, Arg<"k", StateRows> k, Arg<"v", StateRows> v,
                 Arg<"after", std::optional<uint32_t>> after) {
  const auto e = self.core->view();
  const Pool& pool = *e->table().pool();
  const Pool::Place place = find_state(pool, layer);
  const GroupLayout& layout = pool.layout(place.group);
  const llamay_kv_layer& l = layout.layers[place.index].layer;
  const uint32_t at = reserved_state(*self.core, after);
  std::byte* base = state_page(e->table(), place.group, at);
  const auto store = [&](const char* name, const StateRows& a, size_t dim, uint64_t offset) {
    if (a.shape(0) != l.kv_heads || a.shape(1) != dim)
      throw nb::value_error((std::string(name) + " has the shape (" + std::to_string(a.shape(0)) + ", " +
                             std::to_string(a.shape(1)) + "), but layer " + std::to_string(uint32_t(layer)) +
                             " takes (" + std::to_string(l.kv_heads) + ", " + std::to_string(dim) + ")")
                                .c_str());
    const bool f32 = a.dtype() == nb::dtype<float>();
    if (!f32 && a.dtype() != kHalf) throw nb::type_error("k and v must be float32 or float16");
    convert(a.data(), f32 ? Element::f32 : Element::f16, base + offset, layout.k, l.kv_heads * dim);
  };
  store("k", k, l.k_dim, l.k_offset);
  store("v", v, l.v_dim, l.v_offset);
  self.core->state_written(at);
}

/// CRC-64 of everything that reads tell: token ids, K/V of all layers as float32, states.
uint64_t checksum(const PyContext& self) {
  const auto e = view_of(self);
  const MayWait others(*self.core->pool());
  const Pool& pool = *self.core->pool();
  const Table& table = e->table();
  const uint32_t n = e->view()->n_tokens;
  const DescribedIds tokens = describe(self.core->tokens(0, n));
  uint64_t crc = crc64(tokens.ids.data(), n * sizeof(int32_t), 0);
  crc = crc64(tokens.table.data(), tokens.table.size(), crc);
  std::vector<float> k, v;
  const auto add = [&] {
    crc = crc64(k.data(), k.size() * sizeof(float), crc);
    crc = crc64(v.data(), v.size() * sizeof(float), crc);
  };
  for (uint32_t g = 0; g < pool.n_groups(); ++g) {
    const GroupLayout& layout = pool.layout(g);
    for (uint32_t i = 0; i < layout.layers.size(); ++i) {
      const llamay_kv_layer& l = layout.layers[i].layer;
      const auto read_state = [&](const States& states) {
        for (size_t s = 0; s < states.size() && states.at[s] <= n; ++s) {
          const std::byte* page = pool.page(g, states.pages[g][s]);
          k.resize(size_t(l.kv_heads) * l.k_dim);
          v.resize(size_t(l.kv_heads) * l.v_dim);
          widen(page + l.k_offset, layout.k, k.data(), k.size());
          widen(page + l.v_offset, layout.k, v.data(), v.size());
          crc = crc64(&states.at[s], sizeof(uint32_t), crc);
          add();
        }
      };
      if (layout.recurrent()) {
        if (const Checkpoints* list = table.states().checkpoints()) read_state(list->states);
        read_state(table.states().live());
        continue;
      }
      const uint32_t first = std::min(table.group(g).first, n);
      k.resize(size_t(n - first) * l.kv_heads * l.k_dim);
      v.resize(size_t(n - first) * l.kv_heads * l.v_dim);
      gather(table, {g, i}, first, n, Element::f32, k.data(), v.data());
      add();
    }
  }
  return crc;
}

}  // namespace

void bind_reading(nb::class_<PyContext>& c) {
  c.def("read", &read_committed, "layer"_a, "begin"_a = 0, "end"_a.none() = nb::none(), nb::kw_only(),
        "raw"_a = false, "out"_a.none() = nb::none(),
        nb::sig(
            "def read(self, layer: int, begin: int = 0, end: int | None = None, *, raw: bool = False, out: "
            "tuple[numpy.ndarray, numpy.ndarray] | None = None) -> tuple[numpy.ndarray, numpy.ndarray]"),
        "Copies of K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim) of positions [begin, end).\n\n"
        "float32, or with raw the precision they are stored in; into the two arrays of out if it is given, "
        "which saves\n"
        "the system the making of fresh memory.")
      .def("overwrite", &overwrite, "layer"_a, "begin"_a, "k"_a, "v"_a,
           nb::sig("def overwrite(self, layer: int, begin: int, k: numpy.ndarray, v: numpy.ndarray) -> None"),
           "Replace K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim) from position begin on, for this "
           "context alone.\n\n"
           "float32 or float16; rounded to nearest even where the group stores less. Forks keep the old "
           "values.")
      .def("page", &page, "layer"_a, "index"_a,
           nb::sig("def page(self, layer: int, index: int) -> tuple[numpy.ndarray, numpy.ndarray]"),
           "Read-only arrays (tokens, kv_heads, dim) over the memory of a page, K dimension-major, without a "
           "copy.\n\n"
           "They keep the page alive and unchanged, even if the context goes on.")
      .def("scales", &scales, "layer"_a, "index"_a,
           nb::sig("def scales(self, layer: int, index: int) -> tuple[numpy.ndarray | None, numpy.ndarray | "
                   "None]"),
           "The float32 scales (tokens, kv_heads) of a page's K and V, without a copy; None where they are "
           "not int8.")
      .def("state", &state, "layer"_a, "at"_a.none() = nb::none(),
           nb::sig(
               "def state(self, layer: int, at: int | None = None) -> tuple[numpy.ndarray, numpy.ndarray]"),
           "Read-only arrays over a recurrent state, (heads, k_dim) and (heads, v_dim), without a copy.\n\n"
           "The present one, or that of a checkpoint. ValueError if there is none.")
      .def("checksum", &checksum,
           "CRC-64/NVME of the context: token ids as a snapshot has them, then for each layer K and V "
           "as float32 or, where it "
           "is "
           "recurrent,\n"
           "for each checkpoint and the present state its length and its two parts.");
}

void bind_writing(nb::class_<PyLease>& c) {
  c.def("read", &read_leased, "layer"_a, "begin"_a = 0, "end"_a.none() = nb::none(), nb::kw_only(),
        "raw"_a = false, "out"_a.none() = nb::none(),
        nb::sig(
            "def read(self, layer: int, begin: int = 0, end: int | None = None, *, raw: bool = False, out: "
            "tuple[numpy.ndarray, numpy.ndarray] | None = None) -> tuple[numpy.ndarray, numpy.ndarray]"),
        "Copies of K and V as Context.read gives them, of reserved positions too: values written so far, "
        "anything elsewhere.")
      .def("read_state", &read_state, "layer"_a, nb::kw_only(), "after"_a = 0,
           nb::sig("def read_state(self, layer: int, *, after: int = 0) -> tuple[numpy.ndarray, "
                   "numpy.ndarray]"),
           "Copies of a recurrent state, float32 (heads, k_dim) and (heads, v_dim).\n\n"
           "With after=0 the state that the step begins with, zeros where there are no tokens; otherwise the "
           "state that was\nwritten after that many of the reserved tokens. ValueError if none was written.");
  c.def(
       "write", &write_positions, "layer"_a, "k"_a, "v"_a, nb::kw_only(), "offset"_a = 0,
       nb::sig("def write(self, layer: int, k: numpy.ndarray, v: numpy.ndarray, *, offset: int = 0) -> None"),
       "Store K (n, kv_heads, k_dim) and V (n, kv_heads, v_dim), float32 or float16, from position begin "
       "+ offset on.")
      .def("write_state", &write_state, "layer"_a, "k"_a, "v"_a, nb::kw_only(), "after"_a.none() = nb::none(),
           nb::sig(
               "def write_state(self, layer: int, k: numpy.ndarray, v: numpy.ndarray, *, after: int | None = "
               "None) -> None"),
           "Store the recurrent state (heads, k_dim) and (heads, v_dim), float32 or float16, that all "
           "reserved "
           "tokens\n"
           "leave, or the first `after` of them.");
}
