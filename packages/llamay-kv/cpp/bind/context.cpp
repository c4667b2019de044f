// Contexts and leases, without the functions that move arrays.
#include "bind/bindings.hpp"

namespace {

using Positions = std::optional<std::vector<uint32_t>>;

nb::capsule to_capsule(std::unique_ptr<Export> e, uint32_t major) {
  if (major != LLAMAY_KV_VIEW_MAJOR) {
    PyErr_Format(PyExc_BufferError,
                 "llamay-kv offers kv_view %d.%d, but major version %u was asked for; run: "
                 "pip install --upgrade llamay-kv llamay-kernels",
                 LLAMAY_KV_VIEW_MAJOR, LLAMAY_KV_VIEW_MINOR, major);
    throw nb::python_error();
  }
  // A capsule holds one pointer, the struct's; the context of the capsule is the owner of the struct.
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

/// A fork has the class of its parent: llamay_kv.Context derives from this one.
nb::object wrap(nb::handle like, std::shared_ptr<Context> core) {
  return wrap_context(like.type(), nb::inst_ptr<PyContext>(like)->pool, std::move(core));
}

nb::object fork_one(nb::handle self) { return wrap(self, nb::inst_ptr<PyContext>(self)->core->fork()); }

nb::list fork_many(nb::handle self, Arg<"n"> n) {
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

void set_side(const PyContext& self, Arg<"side", nb::dict> given) {
  auto states = std::make_shared<SideStates>();
  for (auto [key, value] : given.value) {
    std::string name;
    take("side: a name", key, name);
    const std::string at = "side[" + std::string(nb::repr(key).c_str()) + "]";
    if (!PyTuple_Check(value.ptr()) || PyTuple_Size(value.ptr()) != 2)
      refuse(PyExc_TypeError, at, "a tuple of a version and bytes", value);
    uint32_t version;
    nb::bytes data;
    take(at + "[0]", value[0], version);
    take((at + "[1]").c_str(), value[1], data);
    (*states)[name] = {version, std::string(data.c_str(), data.size())};
  }
  self.core->set_side(states->empty() ? nullptr : std::move(states));
}

nb::object label(const PyContext& self, std::string Labels::* which) {
  const auto labels = self.core->labels();
  return labels && !(*labels.*which).empty() ? nb::cast(*labels.*which) : nb::none();
}

void set_label(const PyContext& self, std::string Labels::* which, const std::optional<std::string>& value) {
  const auto now = self.core->labels();
  auto labels = std::make_shared<Labels>(now ? *now : Labels{});
  *labels.*which = value.value_or("");
  self.core->set_labels(std::move(labels));
}

std::vector<uint32_t> first_positions(const PyContext& self) {
  const auto [table, n_tokens] = self.core->peek();
  std::vector<uint32_t> first;
  for (size_t g = 0; g < self.core->pool()->n_groups(); ++g) first.push_back(table->group(g).first);
  return first;
}

std::vector<int32_t> page_numbers(const PyContext& self, Arg<"group"> g) {
  const auto [table, n_tokens] = self.core->peek();
  check_group(*self.core->pool(), g);
  if (self.core->pool()->layout(g).recurrent()) {
    std::map<uint32_t, int32_t> by_length;
    const auto add = [&](const States& states) {
      for (size_t i = 0; i < states.size() && states.at[i] <= n_tokens; ++i)
        by_length[states.at[i]] = states.pages[g][i];
    };
    add(table->states().live());
    if (const Checkpoints* list = table->states().checkpoints()) add(list->states);
    std::vector<int32_t> numbers;
    for (const auto& [at, page] : by_length) numbers.push_back(page);
    return numbers;
  }
  std::vector<int32_t> numbers(table->n_pages());
  for (uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = table->page(g, i);
  return numbers;
}

}  // namespace

nb::object wrap_context(nb::handle type, nb::object pool, std::shared_ptr<Context> core) {
  nb::object o = nb::inst_alloc(type);
  new (nb::inst_ptr<PyContext>(o)) PyContext{std::move(core), std::move(pool)};
  nb::inst_mark_ready(o);
  return o;
}

void bind_context(nb::module_& m) {
  nb::class_<PyContext> c(m, "Context", "Token ids and the pages of their K/V. Use llamay_kv.Context.");
  c.def(
       "__init__",
       [](PyContext* self, nb::handle pool) {
         new (self) PyContext{std::make_shared<Context>(core_of(pool)), nb::borrow(pool)};
       },
       "pool"_a.none(), nb::sig("def __init__(self, pool: Pool) -> None"))
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
          "truncate", [](const PyContext& c, Arg<"n"> n) { c.core->truncate(n); }, "n"_a,
          nb::sig("def truncate(self, n: int) -> None"),
          "Keep the first n tokens. ValueError if a page that n tokens need was dropped behind a window, or "
          "if a\n"
          "recurrent group has no state there: then it names the nearest checkpoints.")
      .def(
          "nearest", [](const PyContext& c, Arg<"n"> n) { return c.core->nearest(n); }, "n"_a,
          nb::sig("def nearest(self, n: int) -> int"),
          "The largest length up to n that truncate can go to now: n itself, or a checkpoint, or 0.")
      .def_prop_ro(
          "checkpoints", [](const PyContext& c) { return c.core->checkpoints(); },
          "Lengths whose recurrent states are kept, so that they can be truncated to.")
      .def(
          "checkpoint", [](const PyContext& c) { c.core->checkpoint(); },
          "Keep the present recurrent state as a checkpoint. Nothing without recurrent groups.")
      .def(
          "forget_checkpoint", [](const PyContext& c, Arg<"at"> at) { c.core->forget_checkpoint(at); },
          "at"_a, nb::sig("def forget_checkpoint(self, at: int) -> None"),
          "Give up the checkpoint at so many tokens. ValueError if there is none.")
      .def(
          "forget_checkpoints",
          [](const PyContext& c, Arg<"before"> before) { c.core->forget_checkpoints(before); }, "before"_a,
          nb::sig("def forget_checkpoints(self, before: int) -> None"),
          "Give up the checkpoints of fewer tokens than this.")
      .def(
          "retain",
          [](nb::handle self) {
            nb::inst_ptr<PyContext>(self)->core->retain();
            return nb::borrow(self);
          },
          nb::sig("def retain(self) -> typing.Self"),
          "Count one more owner, and return the context: its pages are released when every owner has closed "
          "it.")
      .def(
          "close", [](const PyContext& c) { c.core->close(); },
          "Give up all pages, once every owner has closed the context. Views stay valid until they are "
          "released. Closing\n"
          "twice does nothing.")
      .def_prop_ro(
          "tokens", [](const PyContext& c) { return c.core->tokens(0, c.core->size()); },
          "The token ids, as a list.")
      .def(
          "token_slice",
          [](const PyContext& c, Arg<"begin"> begin, Arg<"end"> end) { return c.core->tokens(begin, end); },
          "begin"_a, "end"_a, nb::sig("def token_slice(self, begin: int, end: int) -> list[int]"),
          "Some of the token ids.")
      .def(
          "reserve",
          [](nb::handle self, Arg<"n"> n, Arg<"first", Positions> first, Arg<"states", Positions> states) {
            std::span<const uint32_t> from;
            std::optional<std::span<const uint32_t>> after;
            if (first.value) from = *first.value;
            if (states.value) after = *states.value;
            const auto core = nb::inst_ptr<PyContext>(self)->core;
            const auto lease = [&] {
              const MayWait wait(*core->pool());
              return reserve(core, n, from, after);
            };
            return PyLease{lease(), nb::borrow(self)};
          },
          "n"_a, "first"_a.none() = nb::none(), nb::kw_only(), "states"_a.none() = nb::none(),
          nb::sig("def reserve(self, n: int, first: collections.abc.Sequence[int] | None = None, *, states: "
                  "collections.abc.Sequence[int] | None = None) -> Lease"),
          "Make the next n positions writable and return the lease on them.\n\n"
          "Takes pages and clones a shared last page; raises OutOfPagesError, having changed nothing, if the "
          "budget does\n"
          "not reach, and ContextBusyError while another lease is open. For a context without tokens, first "
          "may "
          "say for\n"
          "each group which position will be the first to be filled: no page before it is taken. In "
          "recurrent groups\n"
          "there is room for the state after all n, and after each of states (numbers of new tokens) "
          "besides: "
          "a commit\n"
          "can end at these.")
      .def("first_positions", &first_positions, "The first position that is still there, for each group.")
      .def("page_numbers", &page_numbers, "group"_a,
           nb::sig("def page_numbers(self, group: int) -> list[int]"),
           "The pages of a group in position order, -1 for a dropped one; in a recurrent group the pages of "
           "the checkpoints and of\nthe present state.")
      .def_prop_rw(
          "side", &side, &set_side, nb::for_getter(nb::sig("def side(self) -> dict[str, tuple[int, bytes]]")),
          nb::for_setter(nb::sig("def side(self, value: dict[str, tuple[int, bytes]], /) -> None")),
          "Opaque states of this very length, by name: (version, data). Forks carry them; every change "
          "of tokens or\n"
          "pages clears them.")
      .def_prop_rw(
          "owner", [](const PyContext& c) { return label(c, &Labels::owner); },
          [](const PyContext& c, Arg<"owner", std::optional<std::string>> v) {
            set_label(c, &Labels::owner, v);
          },
          nb::for_getter(nb::sig("def owner(self) -> str | None")),
          nb::for_setter(nb::sig("def owner(self, value: str | None, /) -> None")),
          nb::for_setter(nb::arg().none()), "The owner, or None. Forks and snapshots inherit it.")
      .def_prop_rw(
          "marking", [](const PyContext& c) { return label(c, &Labels::marking); },
          [](const PyContext& c, Arg<"marking", std::optional<std::string>> v) {
            set_label(c, &Labels::marking, v);
          },
          nb::for_getter(nb::sig("def marking(self) -> str | None")),
          nb::for_setter(nb::sig("def marking(self, value: str | None, /) -> None")),
          nb::for_setter(nb::arg().none()),
          "The confidentiality, in words of the caller, or None. Forks and snapshots inherit it, and it "
          "cannot "
          "be removed.")
      .def(
          LLAMAY_KV_VIEW_METHOD,
          [](const PyContext& c, Arg<"major"> major) { return to_capsule(view_of(c), major); },
          "major"_a = LLAMAY_KV_VIEW_MAJOR,
          nb::sig("def " LLAMAY_KV_VIEW_METHOD "(self, major: int = 1) -> typing_extensions.CapsuleType"),
          "A view for reading, as abi/llamay/kv_view.h describes it.");
  bind_reading(c);
  bind_packing(c);
}

void bind_lease(nb::module_& m) {
  nb::class_<PyLease> c(m, "Lease",
                        "The right to write the next positions of a context, until commit or release.");
  c.def_prop_ro(
       "context", [](const PyLease& l) { return l.context; }, nb::sig("def context(self) -> Context"),
       "The context it is a lease on.")
      .def_prop_ro(
          "begin", [](const PyLease& l) { return l.core->begin(); },
          "The first position that may be written.")
      .def("__len__", [](const PyLease& l) { return l.core->size(); })
      .def_prop_ro(
          "open", [](const PyLease& l) { return l.core->open(); }, "Whether it has not ended.")
      .def_prop_ro(
          "states", [](const PyLease& l) { return l.core->states(); },
          "The numbers of reserved tokens after which a recurrent state is to be written, increasing. The "
          "last is that "
          "of all.")
      .def(
          "commit",
          [](PyLease& l, IdsArg<"tokens"> tokens, Arg<"checkpoints", bool> checkpoints) {
            l.core->commit(std::move(tokens.value), checkpoints);
          },
          "tokens"_a, nb::kw_only(), "checkpoints"_a = false,
          nb::sig(
              "def commit(self, tokens: collections.abc.Sequence[int] | numpy.ndarray, *, checkpoints: bool "
              "= False) -> None"),
          "Keep the first len(tokens) reserved positions, under these ids, and give up the others. Ends the "
          "lease.\n\n"
          "Recurrent groups need a state after the last one, see reserve; with checkpoints the reserved "
          "states "
          "before it\n"
          "are kept too.")
      .def(
          "release", [](PyLease& l) { l.core->release(); }, "End the lease and keep nothing.")
      .def(
          "__enter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> typing.Self"))
      .def(
          "__exit__", [](PyLease& l, nb::args) { l.core->release(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def(
          LLAMAY_KV_VIEW_METHOD,
          [](PyLease& l, Arg<"major"> major) {
            l.core->states_written();  // a kernel with this view writes all states that it lists
            return to_capsule(l.core->view(), major);
          },
          "major"_a = LLAMAY_KV_VIEW_MAJOR,
          nb::sig("def " LLAMAY_KV_VIEW_METHOD "(self, major: int = 1) -> typing_extensions.CapsuleType"),
          "A view for one step, as abi/llamay/kv_view.h describes it.");
  bind_writing(c);
  bind_unpacking(c);
}
