#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "dispatch.hpp"
#include "llamay/kv_view.h"
#include "ops/attention/paged_trial.hpp"
#include "ops/bind/arrays.hpp"
#include "ops/bind/bindings.hpp"
#include "threads/float_environment.hpp"

LLAMAY_DECLARE_TABLES(llamay::AttentionTable, attention);

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

constexpr Tables<AttentionTable> tables = LLAMAY_TABLES(attention);

nb::ndarray<nb::numpy, float> paged_attention(FloatRows q, FloatRows k, std::optional<FloatRows> v,
                                              const std::vector<uint32_t>& rows, uint32_t heads,
                                              uint32_t kv_heads, uint32_t v_dim, float scale, uint32_t window,
                                              float softcap, uint32_t precision, uint32_t page_tokens,
                                              uint32_t pieces, bool copied) {
  expect(kv_heads && heads && heads % kv_heads == 0 && v_dim && q.shape(1) && q.shape(1) % heads == 0,
         "heads do not divide");
  const std::size_t k_dim = q.shape(1) / heads, positions = k.shape(0);
  expect(k.shape(1) == kv_heads * k_dim, "k is not (positions, kv_heads * k_dim)");
  expect(v ? v->shape(0) == positions && v->shape(1) == std::size_t{kv_heads} * v_dim : v_dim <= k_dim,
         "v is not (positions, kv_heads * v_dim), or keys have fewer numbers than v_dim");
  expect(rows.size() == q.shape(0), "rows is not a position for each row of q");
  for (std::size_t i = 0; i < rows.size(); ++i)
    expect(rows[i] < positions && (i == 0 || rows[i - 1] < rows[i]),
           "rows do not increase below the positions");
  expect(page_tokens >= 16 && (page_tokens & (page_tokens - 1)) == 0 && page_tokens <= 4096 && pieces &&
             precision <= LLAMAY_KV_Q8 && (!copied || (!v && precision != LLAMAY_KV_VQ8)),
         "there are no such pages");
  const bool latent = !v && !copied;
  const PagedTrial trial{
      {heads, kv_heads, static_cast<uint32_t>(k_dim), v_dim, window, scale, softcap, latent ? v_dim : 0},
      v        ? PagedTrial::Values::given
      : latent ? PagedTrial::Values::latent
               : PagedTrial::Values::copied,
      precision,
      static_cast<uint32_t>(__builtin_ctz(page_tokens)),
      pieces,
      q.data(),
      k.data(),
      v ? v->data() : nullptr,
      static_cast<uint32_t>(positions),
      rows};
  auto out = make_array<float>({rows.size(), std::size_t{heads} * v_dim});
  const FloatEnvironment environment;
  trial.run(tables[active_isa()], out.data());
  return out;
}

}  // namespace
}  // namespace llamay

void bind_attention(nb::module_& m) {
  m.def("paged_attention", &llamay::paged_attention, "q"_a, "k"_a, "v"_a.none(), "rows"_a, "heads"_a,
        "kv_heads"_a, "v_dim"_a, "scale"_a, "window"_a = 0, "softcap"_a = 0.0f, "precision"_a = 0,
        "page_tokens"_a = 64, "pieces"_a = 1, "copied"_a = false,
        "Attention of rows q (rows, heads * k_dim) at increasing positions to k (positions, kv_heads * "
        "k_dim) and v, "
        "written to pages of a precision (enum llamay_kv_dtype). Without v, the values are the first v_dim "
        "numbers of "
        "the keys: read from them, or, if copied, from pages of values into which the stored numbers were "
        "copied. "
        "pieces: into which the blocks are cut, then merged.");
}
