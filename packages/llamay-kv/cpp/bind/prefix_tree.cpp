#include <nanobind/stl/tuple.h>

#include "bind/bindings.hpp"
#include "tree/prefix_tree.hpp"

namespace {

struct PyTree {
  std::shared_ptr<PrefixTree> core;
  nb::object pool, context_class;
};

template <ArgName name>
using BytesArg = Arg<name, nb::bytes>;

std::string text(const nb::bytes& b) { return {b.c_str(), b.size()}; }

}  // namespace

void bind_prefix_tree(nb::module_& m) {
  nb::class_<PyTree>(m, "PrefixTree", "Computed prefixes. Use llamay_kv.PrefixTree.")
      .def(
          "__init__",
          [](PyTree* self, nb::handle pool, nb::handle context_class,
             Arg<"budget_bytes", uint64_t> budget_bytes, Arg<"per_token", double> per_token,
             Arg<"per_token_and_position", double> per_token_and_position) {
            new (self) PyTree{PrefixTree::make(core_of(pool), budget_bytes,
                                               {per_token.value, per_token_and_position.value}),
                              nb::borrow(pool), nb::borrow(context_class)};
          },
          "pool"_a.none(), "context_class"_a, "budget_bytes"_a, "per_token"_a, "per_token_and_position"_a,
          nb::sig("def __init__(self, pool: Pool, context_class: type, budget_bytes: int, per_token: float, "
                  "per_token_and_position: float) -> None"))
      .def(
          "insert_in",
          [](const PyTree& self, Arg<"context", const PyContext*> context, BytesArg<"space"> space,
             BytesArg<"tenant"> tenant, Arg<"shared"> shared) {
            const auto core = context.value->core;
            const std::string s = text(space), t = text(tenant);
            nb::gil_scoped_release nogil;
            return self.core->insert(*core, s, t, shared);
          },
          "context"_a, "space"_a, "tenant"_a, "shared"_a,
          nb::sig("def insert_in(self, context: Context, space: bytes, tenant: bytes, shared: int) -> int"))
      .def(
          "match_in",
          [](const PyTree& self, IdsArg<"tokens"> tokens, BytesArg<"space"> space,
             BytesArg<"tenant"> tenant) {
            return wrap_context(self.context_class, self.pool,
                                self.core->match(tokens.value, text(space), text(tenant)));
          },
          "tokens"_a, "space"_a, "tenant"_a,
          nb::sig("def match_in(self, tokens: collections.abc.Sequence[int] | "
                  "numpy.ndarray, space: bytes, tenant: bytes) -> Context"))
      .def(
          "trace_in",
          [](const PyTree& self, IdsArg<"tokens"> tokens, BytesArg<"space"> space,
             BytesArg<"tenant"> tenant) {
            const auto t = self.core->trace(tokens.value, text(space), text(tenant));
            return std::make_tuple(t.equal, t.usable, t.ends, t.stored);
          },
          "tokens"_a, "space"_a, "tenant"_a,
          nb::sig("def trace_in(self, tokens: collections.abc.Sequence[int] | numpy.ndarray, space: bytes, "
                  "tenant: bytes) -> tuple[int, int, bool, int]"))
      .def(
          "pin_in",
          [](const PyTree& self, IdsArg<"tokens"> tokens, BytesArg<"space"> space,
             BytesArg<"tenant"> tenant) {
            const auto [number, kept] = self.core->pin(tokens.value, text(space), text(tenant));
            return std::make_tuple(number, kept);
          },
          "tokens"_a, "space"_a, "tenant"_a,
          nb::sig("def pin_in(self, tokens: collections.abc.Sequence[int] | numpy.ndarray, space: bytes, "
                  "tenant: bytes) -> tuple[int, int]"))
      .def(
          "entries_in",
          [](const PyTree& self, BytesArg<"space"> space) {
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
          "spaces",
          [](const PyTree& self) {
            nb::list all;
            for (const std::string& space : self.core->spaces())
              all.append(nb::bytes(space.data(), space.size()));
            return all;
          },
          nb::sig("def spaces(self) -> list[bytes]"), "The spaces that have entries.")
      .def(
          "unpin", [](const PyTree& self, Arg<"number", uint64_t> number) { self.core->unpin(number); },
          "number"_a, nb::sig("def unpin(self, number: int) -> None"))
      .def(
          "reclaim",
          [](const PyTree& self, Arg<"bytes", uint64_t> bytes) {
            return self.core->reclaim(bytes, true).freed;
          },
          "bytes"_a, nb::sig("def reclaim(self, bytes: int) -> int"),
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
            d["identities"] = s.spaces;
            d["tenants"] = s.tenants;
            return d;
          },
          nb::sig("def counters(self) -> dict[str, int]"), "Sizes, and sums since the tree was made.");
}
