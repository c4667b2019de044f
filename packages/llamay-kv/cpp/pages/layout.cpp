#include "pages/layout.hpp"

#include <set>
#include <stdexcept>

namespace llamay::kv {
namespace {

constexpr size_t kAlign = 64;
// Far above any model, and small enough that no product of sizes below can overflow 64 bits.
constexpr uint32_t kMaxDimension = 1u << 20;
constexpr size_t kMaxPageBytes = size_t(1) << 36;

size_t align(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

Stored stored_k(Precision precision) {
  switch (precision) {
    case Precision::f32:
      return Stored::f32;
    case Precision::f16:
    case Precision::vq8:
      return Stored::f16;
    case Precision::q8:
      return Stored::int8;
  }
  throw std::invalid_argument("unknown precision " + std::to_string(uint32_t(precision)));
}

Stored stored_v(Precision precision) {
  return precision == Precision::vq8 ? Stored::int8 : stored_k(precision);
}

size_t bytes_of(Stored stored) { return stored == Stored::f32 ? 4 : stored == Stored::f16 ? 2 : 1; }

}  // namespace

GroupLayout::GroupLayout(GroupSpec s, uint32_t tokens)
    : spec(std::move(s)),
      page_tokens(spec.kind == Kind::state ? 1 : tokens),
      k(stored_k(spec.precision)),
      v(stored_v(spec.precision)),
      position_bytes(0),
      state_bytes(0),
      page_bytes(0) {
  const auto place = [&](size_t rows, size_t unit) {
    const size_t offset = page_bytes;
    if (rows * unit == 0) return offset;
    planes.push_back({offset, rows, unit});
    (recurrent() ? state_bytes : position_bytes) += rows * unit;
    page_bytes = align(offset + rows * unit * page_tokens);
    return offset;
  };
  for (const LayerSpec& l : spec.layers) {
    PlacedLayer placed{};
    placed.layer = {.k_offset = 0,
                    .v_offset = 0,
                    .layer = l.layer,
                    .kv_heads = l.kv_heads,
                    .k_dim = l.k_dim,
                    .v_dim = l.v_dim};
    placed.layer.k_offset = place(size_t(l.kv_heads) * l.k_dim, bytes_of(k));
    if (k == Stored::int8) placed.k_scale_offset = place(l.kv_heads, sizeof(float));
    placed.layer.v_offset = place(l.kv_heads, l.v_dim * bytes_of(v));
    if (v == Stored::int8 && l.v_dim) placed.v_scale_offset = place(l.kv_heads, sizeof(float));
    if (page_bytes > kMaxPageBytes)
      throw std::invalid_argument("a page would take more than " + std::to_string(kMaxPageBytes) +
                                  " bytes at layer " + std::to_string(l.layer));
    layers.push_back(placed);
  }
}

void validate(const std::vector<GroupSpec>& groups, uint32_t page_tokens) {
  if (page_tokens < 16 || page_tokens > 1024 || (page_tokens & (page_tokens - 1)))
    throw std::invalid_argument("page_tokens must be a power of two from 16 to 1024, not " +
                                std::to_string(page_tokens));
  std::set<uint32_t> seen;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupSpec& group = groups[g];
    const std::string name = "group " + std::to_string(g);
    if (group.layers.empty()) throw std::invalid_argument(name + " has no layers");
    if (group.kind == Kind::window && group.window == 0)
      throw std::invalid_argument(name + " is a window group, so its window must be at least 1");
    if (group.kind != Kind::window && group.window != 0)
      throw std::invalid_argument(name + " has no window, so its window must be 0");
    if (group.kind != Kind::state && group.stride != 0)
      throw std::invalid_argument(name + " has no recurrent states, so its stride must be 0");
    if (group.kind == Kind::latent && group.precision == Precision::vq8)
      throw std::invalid_argument(name + " is latent: it has no values apart from its keys; use f16 or q8");
    if (group.kind == Kind::state && group.precision != Precision::f32 && group.precision != Precision::f16)
      throw std::invalid_argument(name + " holds recurrent states, which are kept in f32 or f16");
    for (const LayerSpec& l : group.layers) {
      const std::string layer = "layer " + std::to_string(l.layer);
      if (!seen.insert(l.layer).second) throw std::invalid_argument(layer + " is listed twice");
      const bool k_may_miss = group.kind == Kind::state && l.v_dim;
      const bool v_may_miss = group.kind == Kind::latent || (group.kind == Kind::state && l.k_dim);
      if (group.kind == Kind::latent && l.v_dim)
        throw std::invalid_argument(layer + " is latent, so its v_dim must be 0: values are a part of K");
      const auto wrong = [](uint32_t n, bool may_miss) { return (n == 0 && !may_miss) || n > kMaxDimension; };
      if (wrong(l.kv_heads, false) || wrong(l.k_dim, k_may_miss) || wrong(l.v_dim, v_may_miss))
        throw std::invalid_argument(layer + ": kv_heads, k_dim and v_dim must be from 1 to " +
                                    std::to_string(kMaxDimension));
    }
  }
}

}  // namespace llamay::kv
