#pragma once
// Shared declarations of the bindings.
#include <optional>

#include "bind/arguments.hpp"
#include "contexts/context.hpp"

using namespace nb::literals;
using namespace llamay::kv;

struct PyPool {
  std::shared_ptr<Pool> core;
};

struct PyContext {
  std::shared_ptr<Context> core;
  nb::object pool;  // the object the user made, so that context.pool is that one
};

struct PyLease {
  std::optional<Lease> core;
  nb::object context;
};

template <>
constexpr const char* kWanted<const PyPool*> = "a llamay_kv.Pool";
template <>
constexpr const char* kWanted<const PyContext*> = "a llamay_kv.Context";

using ConstBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <>
constexpr const char* kWanted<ConstBytes> = "bytes, or a contiguous array of uint8 with one dimension";

/// Token ids, or ids of rows.
template <ArgName name>
using IdsArg = Arg<name, std::vector<int32_t>>;

/// Lets other threads run while pages may have to come back from a file: writing and reading it needs the
/// interpreter. Nothing where the pool does not spill, for it costs more than a fork does.
class MayWait {
 public:
  explicit MayWait(const Pool& pool) {
    if (pool.spill()) nogil_.emplace();
  }

 private:
  std::optional<nb::gil_scoped_release> nogil_;
};

/// A view for reading, with all pages in memory.
inline std::unique_ptr<Export> view_of(const PyContext& context) {
  const MayWait wait(*context.core->pool());
  return context.core->view();
}

/// A Python object of a class that derives from _kv.Context.
nb::object wrap_context(nb::handle type, nb::object pool, std::shared_ptr<Context> core);

/// The core of a pool. TypeError for anything else.
const std::shared_ptr<Pool>& core_of(nb::handle pool);

void check_group(const Pool& pool, uint32_t g);

// ValueError unless positions are where they should be, and still there.
void check_range(uint32_t begin, uint32_t end, uint32_t first, uint32_t last);
void check_present(const Table& table, size_t g, uint32_t begin, uint32_t end);

/// The page with the state after `at` tokens, which is the present one or a checkpoint. ValueError if there
/// is none.
std::byte* state_page(const Table& table, size_t g, uint32_t at);
/// The position of the state that so many of the reserved tokens leave, all without a number.
uint32_t reserved_state(const Lease& lease, std::optional<uint32_t> after);

/// The functions of contexts and leases that move arrays, and the functions that move the bytes of snapshots.
void bind_reading(nb::class_<PyContext>& c);
void bind_writing(nb::class_<PyLease>& c);
void bind_packing(nb::class_<PyContext>& c);
void bind_unpacking(nb::class_<PyLease>& c);

void bind_pool(nb::module_& m);
void bind_context(nb::module_& m);
void bind_lease(nb::module_& m);
void bind_prefix_tree(nb::module_& m);
void bind_rows(nb::module_& m);
