#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/bindings.hpp"
#include "tree/prefix_tree.hpp"

namespace {

struct PyTree {
  std::shared_ptr<PrefixTree> core;
  nb::object pool, context_class;
};

std::string text(nb::bytes b) { return {b.c_str(), b.size()}; }

}  // namespace

void bind_prefix_tree(nb::module_& m) {
  nb::class_<PyTree>(m, "PrefixTree", "Computed prefixes. Use llamay_kv.PrefixTree.")
      .def(
          "__init__",
          [](PyTree* self, nb::handle pool, nb::handle context_class, uint64_t budget_bytes, double per_token,
             double per_token_and_position) {
            const auto& core = nb::cast<const PyPool&>(pool).core;
            new (self) PyTree{PrefixTree::make(core, budget_bytes, {per_token, per_token_and_position}),
                              nb::borrow(pool), nb::borrow(context_class)};
          },
          "pool"_a, "context_class"_a, "budget_bytes"_a, "per_token"_a, "per_token_and_position"_a)
      .def(
          "insert_in",
          [](const PyTree& self, const PyContext& context, nb::bytes space, nb::bytes tenant,
             uint32_t shared) {
            const auto core = context.core;
            const std::string s = text(space), t = text(tenant);
            nb::gil_scoped_release nogil;
            return self.core->insert(*core, s, t, shared);
          },
          "context"_a, "space"_a, "tenant"_a, "shared"_a)
      .def(
          "match_in",
          [](const PyTree& self, nb::handle tokens, nb::bytes space, nb::bytes tenant) {
            const auto ids = to_ids(tokens);
            return wrap_context(self.context_class, self.pool,
                                self.core->match(ids, text(space), text(tenant)));
          },
          "tokens"_a, "space"_a, "tenant"_a,
          nb::sig("def match_in(self, tokens: collections.abc.Sequence[int] | "
                  "numpy.ndarray, space: bytes, tenant: bytes) -> Context"))
      .def(
          "trace_in",
          [](const PyTree& self, nb::handle tokens, nb::bytes space, nb::bytes tenant) {
            const auto t = self.core->trace(to_ids(tokens), text(space), text(tenant));
            return std::make_tuple(t.equal, t.usable, t.ends, t.stored);
          },
          "tokens"_a, "space"_a, "tenant"_a,
          nb::sig("def trace_in(self, tokens: collections.abc.Sequence[int] | numpy.ndarray, space: bytes, "
                  "tenant: bytes) -> tuple[int, int, bool, int]"))
      .def(
          "pin_in",
          [](const PyTree& self, nb::handle tokens, nb::bytes space, nb::bytes tenant) {
            const auto [number, kept] = self.core->pin(to_ids(tokens), text(space), text(tenant));
            return std::make_tuple(number, kept);
          },
          "tokens"_a, "space"_a, "tenant"_a,
          nb::sig("def pin_in(self, tokens: collections.abc.Sequence[int] | numpy.ndarray, space: bytes, "
                  "tenant: bytes) -> tuple[int, int]"))
      .def(
          "entries_in",
          [](const PyTree& self, nb::bytes space) {
            nb::list all;
            for (const auto& e : self.core->entries(text(space)))
              all.append(nb::make_tuple(e.begin, e.owner, e.pins, e.tokens, e.pages, e.states));
            return all;
          },
          "space"_a,
          nb::sig("def entries_in(self, space: bytes) -> list[tuple[int, int, int, list[int], list[int], "
                  "list[int]]]"),
          "The stored nodes, depth first: (begin, owner, pins, tokens, page of each group, lengths with a "
          "state).\n\n"
          "Owner 0 stands for all tenants; children come by owner and then by tokens.")
      .def(
          "unpin", [](const PyTree& self, uint64_t number) { self.core->unpin(number); }, "number"_a)
      .def(
          "reclaim", [](const PyTree& self, uint64_t bytes) { return self.core->reclaim(bytes, true).freed; },
          "bytes"_a,
          "Evict leaves until so many bytes are free in the pool; returns the bytes that were freed.\n\n"
          "Pages that a context uses stay. Those that other trees hold too are given up after all others, "
          "and "
          "become free\nwith the last of these trees. A pool that runs out of pages asks all of its trees by "
          "itself.")
      .def(
          "clear", [](const PyTree& self) { self.core->clear(); }, "Evict everything, pins included.")
      .def(
          "counters",
          [](const PyTree& self) {
            const auto s = self.core->stats();
            nb::dict d;
            d["used_bytes"] = s.used_bytes;
            d["budget_bytes"] = s.budget_bytes;
            d["nodes"] = s.nodes;
            d["pins"] = s.pins;
            d["lookups"] = s.lookups;
            d["hits"] = s.hits;
            d["matched_tokens"] = s.matched_tokens;
            d["evicted_pages"] = s.evicted_pages;
            return d;
          },
          nb::sig("def counters(self) -> dict[str, int]"), "Sizes, and sums since the tree was made.");
}
