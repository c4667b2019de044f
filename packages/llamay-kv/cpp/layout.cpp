#include "layout.hpp"

#include <set>
#include <stdexcept>

namespace llamay::kv {
namespace {

constexpr size_t kAlign = 64;
// Far above any model, and small enough that no product of sizes below can overflow 64 bits.
constexpr uint32_t kMaxDimension = 1u << 20;
constexpr size_t kMaxPageBytes = size_t(1) << 36;

size_t align(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

size_t element_size_of(Precision precision) {
  switch (precision) {
    case Precision::f32:
      return 4;
    case Precision::f16:
      return 2;
  }
  throw std::invalid_argument("unknown precision " + std::to_string(uint32_t(precision)));
}

}  // namespace

GroupLayout::GroupLayout(GroupSpec s, uint32_t tokens)
    : spec(std::move(s)),
      page_tokens(tokens),
      element_size(element_size_of(spec.precision)),
      position_bytes(0) {
  size_t offset = 0;
  for (const LayerSpec& l : spec.layers) {
    llamay_kv_layer placed{};
    placed.layer = l.layer;
    placed.kv_heads = l.kv_heads;
    placed.k_dim = l.k_dim;
    placed.v_dim = l.v_dim;
    placed.k_offset = offset;
    offset = align(offset + size_t(l.kv_heads) * l.k_dim * page_tokens * element_size);
    placed.v_offset = offset;
    offset = align(offset + size_t(l.kv_heads) * l.v_dim * page_tokens * element_size);
    position_bytes += size_t(l.kv_heads) * (size_t(l.k_dim) + l.v_dim) * element_size;
    if (offset > kMaxPageBytes)
      throw std::invalid_argument("a page would take more than " + std::to_string(kMaxPageBytes) +
                                  " bytes at layer " + std::to_string(l.layer));
    layers.push_back(placed);
  }
  page_bytes = offset;
}

void validate(const std::vector<GroupSpec>& groups, uint32_t page_tokens) {
  if (page_tokens < 16 || page_tokens > 1024 || (page_tokens & (page_tokens - 1)))
    throw std::invalid_argument("page_tokens must be a power of two from 16 to 1024, not " +
                                std::to_string(page_tokens));
  if (groups.empty()) throw std::invalid_argument("a layout needs at least one group");
  std::set<uint32_t> seen;
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupSpec& group = groups[g];
    const std::string name = "group " + std::to_string(g);
    if (group.layers.empty()) throw std::invalid_argument(name + " has no layers");
    if (group.kind == Kind::window && group.window == 0)
      throw std::invalid_argument(name + " is a window group, so its window must be at least 1");
    if (group.kind == Kind::full && group.window != 0)
      throw std::invalid_argument(name + " keeps every position, so its window must be 0");
    for (const LayerSpec& l : group.layers) {
      const std::string layer = "layer " + std::to_string(l.layer);
      if (!seen.insert(l.layer).second) throw std::invalid_argument(layer + " is listed twice");
      for (uint32_t n : {l.kv_heads, l.k_dim, l.v_dim})
        if (n == 0 || n > kMaxDimension)
          throw std::invalid_argument(layer + ": kv_heads, k_dim and v_dim must be from 1 to " +
                                      std::to_string(kMaxDimension));
    }
  }
}

}  // namespace llamay::kv
