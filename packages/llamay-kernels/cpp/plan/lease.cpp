#include "plan/lease.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <stdexcept>

namespace llamay {
namespace {

/// The owner's structs may be longer than ours: arrays are walked by the size it states.
template <class T>
const T& element(const T* first, uint32_t stride, uint32_t i) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + std::size_t{stride} * i);
}

/// What kv_view 1.0 has of a group; what later minor versions added is for kinds that no plan asks for.
constexpr std::size_t kGroupBytes = offsetof(llamay_kv_group, dtype) + sizeof(uint32_t);

class Binder {
 public:
  Binder(const KvNeeds& needs, const llamay_kv_view& view, uint32_t count, std::size_t index, KvPages* pages)
      : needs_(needs), view_(view), count_(count), index_(index), pages_(pages) {}

  void run() {
    if (view_.group_stride < kGroupBytes || (view_.n_groups && !view_.groups))
      fail("its groups are shorter than kv_view " + std::to_string(LLAMAY_KV_VIEW_MAJOR) + " says");
    if (view_.n_reserved < count_)
      fail("it has " + std::to_string(view_.n_reserved) + " reserved positions for " +
           std::to_string(count_) + " rows; reserve them before the run");
    if (uint64_t{view_.n_tokens} + count_ > 0x7fffffff) fail("it is longer than 2^31 positions");
    for (std::size_t i = 0; i < needs_.layers.size(); ++i) pages_[i].arena = nullptr;
    for (uint32_t g = 0; g < view_.n_groups; ++g) group(element(view_.groups, view_.group_stride, g));
    for (std::size_t i = 0; i < needs_.layers.size(); ++i)
      if (!pages_[i].arena) fail("it has no layer " + std::to_string(needs_.layers[i].layer));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("lease " + std::to_string(index_) + ": " + what);
  }
  [[noreturn]] void fail(uint32_t layer, const std::string& what) const {
    fail("layer " + std::to_string(layer) + ": " + what);
  }

  void group(const llamay_kv_group& g) {
    if (g.layer_stride < sizeof(llamay_kv_layer) || (g.n_layers && !g.layers))
      fail("its layers are shorter than kv_view says");
    if (!wanted(g)) return;
    if (g.page_tokens < 16 || !std::has_single_bit(g.page_tokens) || !std::has_single_bit(g.block_pages))
      fail("its pages have " + std::to_string(g.page_tokens) + " positions in blocks of " +
           std::to_string(g.block_pages) + " pages; both must be powers of two, and a page 16 or more");
    if (g.dtype > LLAMAY_KV_Q8)
      fail("its precision has the number " + std::to_string(g.dtype) +
           "; this version knows f32 (0), f16 (1), vq8 (2) and q8 (3)");
    if (scaled_v(g) && g.layer_stride < sizeof(llamay_kv_layer_int8))
      fail("its layers have no scales, which precision " + std::to_string(g.dtype) + " needs");
    if (g.kind != LLAMAY_KV_FULL && g.kind != LLAMAY_KV_WINDOW)
      fail("a group's kind has the number " + std::to_string(g.kind) +
           "; this version knows full (0) and window (1)");
    uint32_t first = view_.n_tokens;
    bool used = false;
    for (uint32_t l = 0; l < g.n_layers; ++l) {
      const llamay_kv_layer& layer = element(g.layers, g.layer_stride, l);
      if (layer.layer >= needs_.of_layer.size() || needs_.of_layer[layer.layer] < 0) continue;
      const auto i = static_cast<std::size_t>(needs_.of_layer[layer.layer]);
      const AttentionShape& shape = needs_.layers[i].shape;
      if (pages_[i].arena) fail(layer.layer, "it is there twice");
      if (layer.kv_heads != shape.kv_heads || layer.k_dim != shape.k_dim || layer.v_dim != shape.v_dim)
        fail(layer.layer, "it holds " + dims(layer.kv_heads, layer.k_dim, layer.v_dim) +
                              " but the plan has " + dims(shape.kv_heads, shape.k_dim, shape.v_dim));
      if (g.kind == LLAMAY_KV_WINDOW && (shape.window == 0 || shape.window > g.window))
        fail(layer.layer, "it keeps " + std::to_string(g.window) + " positions but the plan looks back " +
                              (shape.window ? std::to_string(shape.window) : "at all of them"));
      place(g, layer, pages_[i]);
      first = std::min(first, shape.first_visible(view_.n_tokens));
      used = true;
    }
    if (used) check_pages(g, first);
  }

  /// Whether int8 elements with scales are what K, and what V, is stored as.
  static bool scaled_k(const llamay_kv_group& g) { return g.dtype == LLAMAY_KV_Q8; }
  static bool scaled_v(const llamay_kv_group& g) {
    return g.dtype == LLAMAY_KV_VQ8 || g.dtype == LLAMAY_KV_Q8;
  }

  bool wanted(const llamay_kv_group& g) const {
    for (uint32_t l = 0; l < g.n_layers; ++l) {
      const uint32_t layer = element(g.layers, g.layer_stride, l).layer;
      if (layer < needs_.of_layer.size() && needs_.of_layer[layer] >= 0) return true;
    }
    return false;
  }

  static std::string dims(uint32_t heads, uint32_t k, uint32_t v) {
    return std::to_string(heads) + " heads of " + std::to_string(k) + " and " + std::to_string(v);
  }

  void place(const llamay_kv_group& g, const llamay_kv_layer& layer, KvPages& out) const {
    const uint64_t vectors = uint64_t{layer.kv_heads} * g.page_tokens;
    const uint64_t k_element = scaled_k(g)                ? 1
                               : g.dtype == LLAMAY_KV_F32 ? 4
                                                          : 2,
                   v_element = scaled_v(g)                ? 1
                               : g.dtype == LLAMAY_KV_F32 ? 4
                                                          : 2;
    uint64_t k_scale = 0, v_scale = 0;
    if (scaled_v(g)) {
      const auto& with_scales = reinterpret_cast<const llamay_kv_layer_int8&>(layer);
      k_scale = with_scales.k_scale_offset;
      v_scale = with_scales.v_scale_offset;
    }
    if (!g.arena || !g.blocks) fail(layer.layer, "its group has no pages");
    const auto fits = [&](uint64_t offset, uint64_t bytes) {
      return offset % 64 == 0 && bytes <= g.page_bytes && offset <= g.page_bytes - bytes;
    };
    if (!fits(layer.k_offset, vectors * layer.k_dim * k_element) ||
        !fits(layer.v_offset, vectors * layer.v_dim * v_element) ||
        (scaled_k(g) && !fits(k_scale, vectors * sizeof(float))) ||
        (scaled_v(g) && !fits(v_scale, vectors * sizeof(float))))
      fail(layer.layer, "it does not fit into its page of " + std::to_string(g.page_bytes) + " bytes");
    out = {static_cast<uint8_t*>(g.arena),
           g.page_bytes,
           g.blocks,
           layer.k_offset,
           layer.v_offset,
           k_scale,
           v_scale,
           static_cast<uint32_t>(std::countr_zero(g.page_tokens)),
           static_cast<uint32_t>(std::countr_zero(g.block_pages)),
           g.dtype};
  }

  void check_pages(const llamay_kv_group& g, uint32_t first) const {
    const uint32_t end = (view_.n_tokens + count_ - 1) / g.page_tokens + 1;
    for (uint32_t n = first / g.page_tokens; n < end; ++n)
      if (!g.blocks[n / g.block_pages] || g.blocks[n / g.block_pages][n % g.block_pages] < 0)
        fail("page " + std::to_string(n) + " was dropped, but a row of this step looks back at it");
  }

  const KvNeeds& needs_;
  const llamay_kv_view& view_;
  const uint32_t count_;
  const std::size_t index_;
  KvPages* const pages_;
};

}  // namespace

KvNeeds::KvNeeds(const Program& program) : of_shape(program.shapes.size()) {
  for (const Node& n : program.nodes)
    if (n.kind == Node::Kind::attention) {
      of_shape[n.shape].push_back(layers.size());
      layers.push_back({n.layer, program.shapes[n.shape]});
    }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (of_layer.size() <= layers[i].layer) of_layer.resize(layers[i].layer + 1, -1);
    of_layer[layers[i].layer] = static_cast<int32_t>(i);
  }
}

void bind_lease(const KvNeeds& needs, const llamay_kv_view& view, uint32_t count, std::size_t index,
                KvPages* pages) {
  Binder(needs, view, count, index, pages).run();
}

}  // namespace llamay
