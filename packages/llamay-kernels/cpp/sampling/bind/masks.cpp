#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>

#include "sampling/bind/bindings.hpp"
#include "sampling/masks.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using Mask = nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ends = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Row = std::tuple<nb::object, Mask>;

const llamay_token_constraint* constraint_of(nb::handle capsule) {
  if (!PyCapsule_IsValid(capsule.ptr(), LLAMAY_TOKEN_CONSTRAINT_CAPSULE))
    throw nb::type_error("expected a capsule named " LLAMAY_TOKEN_CONSTRAINT_CAPSULE);
  const auto* found = static_cast<const llamay_token_constraint*>(
      PyCapsule_GetPointer(capsule.ptr(), LLAMAY_TOKEN_CONSTRAINT_CAPSULE));
  if (!LLAMAY_TC_HAS(found, fill_mask)) throw nb::type_error("the constraint's struct is cut short");
  return found;
}

std::vector<std::tuple<int64_t, int64_t, double>> fill(const std::vector<Row>& rows, const Ends& ends,
                                                       std::optional<Threads*> threads) {
  std::vector<MaskRow> work;
  work.reserve(rows.size());
  for (const auto& [capsule, mask] : rows) {
    const llamay_token_constraint* constraint = constraint_of(capsule);
    if (mask.shape(0) < constraint->mask_words)
      throw nb::value_error(("the mask has " + std::to_string(mask.shape(0)) +
                             " words but the constraint's " + std::to_string(constraint->vocab_size) +
                             " tokens need " + std::to_string(constraint->mask_words))
                                .c_str());
    work.push_back({constraint, mask.data(), static_cast<uint32_t>(mask.shape(0))});
  }
  {
    nb::gil_scoped_release nogil;
    fill_masks(work, ends.data(), ends.shape(0), threads.value_or(nullptr));
  }
  std::vector<std::tuple<int64_t, int64_t, double>> out;
  out.reserve(work.size());
  for (const MaskRow& row : work)
    out.emplace_back(row.status == LLAMAY_TC_OK ? int64_t{row.allowed} : -int64_t{row.status}, row.going,
                     row.seconds);
  return out;
}

}  // namespace
}  // namespace llamay

void bind_masks(nb::module_& m) {
  m.def("fill_masks", &llamay::fill, "rows"_a.noconvert(), "ends"_a.noconvert(), "threads"_a = nb::none(),
        "The masks of several constraints in one call without the GIL, with the help of threads where they "
        "are given.\n\n"
        "rows: (capsule of abi/llamay/token_constraint.h, uint32 mask to fill), the constraints all "
        "different. ends: uint32,\n"
        "the bits of the tokens that end a text. Returns for each row how many tokens its mask allows "
        "(negative where the\n"
        "constraint failed: minus its status), how many of these do not end the text, and the seconds that "
        "filling it took. Raises\n"
        "TypeError for another object than such a capsule, ValueError for a mask that is too short.");
}
