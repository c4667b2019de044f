#include "cpu/prepare/leases.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <stdexcept>

namespace llamay {
namespace {

/// The structs of the view's owner may be longer than those of this header, so arrays are walked by the
/// stride that the view states.
template <class T>
const T& element(const T* first, uint32_t stride, uint32_t i) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + std::size_t{stride} * i);
}

/// Size of llamay_kv_group in kv_view 1.0.
constexpr std::size_t kGroupBytes = offsetof(llamay_kv_group, dtype) + sizeof(uint32_t);
/// Size of llamay_kv_group in kv_view 1.2, which added the fields of states.
constexpr std::size_t kStateGroupBytes = offsetof(llamay_kv_group, n_states) + sizeof(uint64_t);

/// The index of a layer in one of the tables of LeaseNeeds; -1 where the plan does not use the layer.
int32_t number_of(const std::vector<int32_t>& numbers, uint32_t layer) {
  return layer < numbers.size() ? numbers[layer] : -1;
}

void enter(std::vector<int32_t>& numbers, uint32_t layer, std::size_t number) {
  if (numbers.size() <= layer) numbers.resize(layer + 1, -1);
  numbers[layer] = static_cast<int32_t>(number);
}

std::size_t index_of(std::vector<AttentionShape>& shapes, const AttentionShape& shape) {
  const auto found = std::find(shapes.begin(), shapes.end(), shape);
  const auto index = static_cast<std::size_t>(found - shapes.begin());
  if (found == shapes.end()) shapes.push_back(shape);
  return index;
}

class Binder {
 public:
  Binder(const LeaseNeeds& needs, const llamay_kv_view& view, uint32_t count, std::size_t index,
         KvPages* pages, StatePages* states)
      : needs_(needs), view_(view), count_(count), index_(index), pages_(pages), states_(states) {}

  void run() {
    if (view_.group_stride < kGroupBytes || (view_.n_groups && !view_.groups))
      fail("its groups are shorter than kv_view " + std::to_string(LLAMAY_KV_VIEW_MAJOR) + " says");
    if (view_.n_reserved < count_)
      fail("it has " + std::to_string(view_.n_reserved) + " reserved positions for " +
           std::to_string(count_) + " rows; reserve them before the run");
    if (uint64_t{view_.n_tokens} + count_ > 0x7fffffff) fail("it is longer than 2^31 positions");
    for (std::size_t i = 0; i < needs_.attentions.size(); ++i) pages_[i].arena = nullptr;
    for (std::size_t i = 0; i < needs_.states.size(); ++i) states_[i].arena = nullptr;
    for (uint32_t g = 0; g < view_.n_groups; ++g) {
      const llamay_kv_group& group = element(view_.groups, view_.group_stride, g);
      if (group.layer_stride < sizeof(llamay_kv_layer) || (group.n_layers && !group.layers))
        fail("its layers are shorter than kv_view says");
      group.kind == LLAMAY_KV_STATE ? state_group(group) : attention_group(group);
    }
    for (std::size_t i = 0; i < needs_.attentions.size(); ++i)
      if (!pages_[i].arena) fail("it has no layer " + std::to_string(needs_.attentions[i].layer));
    for (std::size_t i = 0; i < needs_.states.size(); ++i)
      if (!states_[i].arena) fail("it has no recurrent layer " + std::to_string(needs_.states[i].layer));
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("lease " + std::to_string(index_) + ": " + what);
  }
  [[noreturn]] void fail(uint32_t layer, const std::string& what) const {
    fail("layer " + std::to_string(layer) + ": " + what);
  }

  void attention_group(const llamay_kv_group& g) {
    if (!wanted(g, needs_.attention_of)) return;
    if (g.page_tokens < 16 || !std::has_single_bit(g.page_tokens) || !std::has_single_bit(g.block_pages))
      fail("its pages have " + std::to_string(g.page_tokens) + " positions in blocks of " +
           std::to_string(g.block_pages) + " pages; both must be powers of two, and a page 16 or more");
    if (g.dtype > LLAMAY_KV_Q8)
      fail("its precision has the number " + std::to_string(g.dtype) +
           "; this version knows f32 (0), f16 (1), vq8 (2) and q8 (3)");
    if (scaled_v(g) && g.layer_stride < sizeof(llamay_kv_layer_int8))
      fail("its layers have no scales, which precision " + std::to_string(g.dtype) + " needs");
    if (g.kind > LLAMAY_KV_LATENT)
      fail("a group's kind has the number " + std::to_string(g.kind) +
           "; this version knows full (0), window (1), latent (2) and state (3)");
    uint32_t first = view_.n_tokens;
    bool used = false;
    for (uint32_t l = 0; l < g.n_layers; ++l) {
      const llamay_kv_layer& layer = element(g.layers, g.layer_stride, l);
      const int32_t number = number_of(needs_.attention_of, layer.layer);
      if (number < 0) continue;
      const auto i = static_cast<std::size_t>(number);
      const AttentionShape& shape = needs_.attentions[i].shape;
      const uint32_t v_dim = shape.v_from_k ? 0 : shape.v_dim;  // a latent layer has no V of its own
      if (pages_[i].arena) fail(layer.layer, "it is there twice");
      if ((g.kind == LLAMAY_KV_LATENT) != (shape.v_from_k > 0))
        fail(layer.layer, shape.v_from_k ? "the plan keeps keys only, but its group is not latent (2)"
                                         : "the plan keeps keys and values, but its group is latent (2)");
      if (layer.kv_heads != shape.kv_heads || layer.k_dim != shape.k_dim || layer.v_dim != v_dim)
        fail(layer.layer, "it holds " + dims(layer.kv_heads, layer.k_dim, layer.v_dim) +
                              " but the plan has " + dims(shape.kv_heads, shape.k_dim, v_dim));
      if (g.kind == LLAMAY_KV_WINDOW && (shape.window == 0 || shape.window > g.window))
        fail(layer.layer, "it keeps " + std::to_string(g.window) + " positions but the plan looks back " +
                              (shape.window ? std::to_string(shape.window) : "at all of them"));
      place(g, layer, pages_[i]);
      first = std::min(first, shape.first_visible(view_.n_tokens));
      used = true;
    }
    if (used) check_pages(g, first);
  }

  /// Whether K, and whether V, is stored as int8 elements with scales.
  static bool scaled_k(const llamay_kv_group& g) { return g.dtype == LLAMAY_KV_Q8; }
  static bool scaled_v(const llamay_kv_group& g) {
    return g.dtype == LLAMAY_KV_VQ8 || g.dtype == LLAMAY_KV_Q8;
  }

  static bool wanted(const llamay_kv_group& g, const std::vector<int32_t>& numbers) {
    for (uint32_t l = 0; l < g.n_layers; ++l)
      if (number_of(numbers, element(g.layers, g.layer_stride, l).layer) >= 0) return true;
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
    if (!fits(g, layer.k_offset, vectors * layer.k_dim * k_element) ||
        (layer.v_dim && !fits(g, layer.v_offset, vectors * layer.v_dim * v_element)) ||
        (scaled_k(g) && !fits(g, k_scale, vectors * sizeof(float))) ||
        (layer.v_dim && scaled_v(g) && !fits(g, v_scale, vectors * sizeof(float))))
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

  static bool fits(const llamay_kv_group& g, uint64_t offset, uint64_t bytes) {
    return offset % 64 == 0 && bytes <= g.page_bytes && offset <= g.page_bytes - bytes;
  }

  void state_group(const llamay_kv_group& g) {
    if (!wanted(g, needs_.state_of)) return;
    if (view_.group_stride < kStateGroupBytes) fail("its groups are shorter than kv_view 1.2 says");
    if (g.dtype != LLAMAY_KV_F32)
      fail("its recurrent states have the precision " + std::to_string(g.dtype) +
           "; this version computes with f32 (0)");
    if (!g.arena || !g.blocks || !std::has_single_bit(g.block_pages) || g.n_states > g.block_pages ||
        (g.n_states && (!g.state_at || !g.blocks[0])))
      fail("its group of recurrent states has no pages");
    StatePages common{
        static_cast<const uint8_t*>(g.arena), g.page_bytes, g.blocks[0], g.state_at, -1, 0, 0, 0, 0};
    const auto states = static_cast<uint32_t>(g.n_states);
    for (uint32_t i = 0; i < states; ++i) {
      if (i && g.state_at[i] <= g.state_at[i - 1]) fail("its recurrent states are not in order");
      const bool needed = g.state_at[i] >= view_.n_tokens && g.state_at[i] <= view_.n_tokens + count_;
      if (needed && common.numbers[i] < 0)
        fail("the recurrent state after " + std::to_string(g.state_at[i]) + " tokens was dropped");
      if (g.state_at[i] == view_.n_tokens) common.read = static_cast<int32_t>(i);
      if (g.state_at[i] <= view_.n_tokens) common.first = i + 1;
      if (g.state_at[i] <= view_.n_tokens + count_) common.end = i + 1;
    }
    if (common.read < 0 && view_.n_tokens)
      fail("it has no recurrent state after its " + std::to_string(view_.n_tokens) + " tokens");
    for (uint32_t l = 0; l < g.n_layers; ++l) {
      const llamay_kv_layer& layer = element(g.layers, g.layer_stride, l);
      const int32_t number = number_of(needs_.state_of, layer.layer);
      if (number < 0) continue;
      const auto i = static_cast<std::size_t>(number);
      const LeaseNeeds::State& wanted = needs_.states[i];
      if (states_[i].arena) fail(layer.layer, "it is there twice");
      const uint64_t carried = uint64_t{layer.kv_heads} * layer.k_dim,
                     floats = uint64_t{layer.kv_heads} * layer.v_dim;
      if (carried != wanted.carried || floats != wanted.floats)
        fail(layer.layer, "its state has " + std::to_string(carried) + " and " + std::to_string(floats) +
                              " numbers but the plan has " + std::to_string(wanted.carried) + " and " +
                              std::to_string(wanted.floats));
      if ((carried && !fits(g, layer.k_offset, carried * sizeof(float))) ||
          (floats && !fits(g, layer.v_offset, floats * sizeof(float))))
        fail(layer.layer,
             "its state does not fit into its page of " + std::to_string(g.page_bytes) + " bytes");
      states_[i] = common;
      states_[i].k_offset = layer.k_offset;
      states_[i].v_offset = layer.v_offset;
    }
  }

  void check_pages(const llamay_kv_group& g, uint32_t first) const {
    const uint32_t end = (view_.n_tokens + count_ - 1) / g.page_tokens + 1;
    for (uint32_t n = first / g.page_tokens; n < end; ++n)
      if (!g.blocks[n / g.block_pages] || g.blocks[n / g.block_pages][n % g.block_pages] < 0)
        fail("page " + std::to_string(n) + " was dropped, but a row of this step looks back at it");
  }

  const LeaseNeeds& needs_;
  const llamay_kv_view& view_;
  const uint32_t count_;
  const std::size_t index_;
  KvPages* const pages_;
  StatePages* const states_;
};

}  // namespace

std::size_t LeaseNeeds::shape_of(const AttentionShape& shape) {
  const std::size_t index = index_of(shapes, shape);
  of_shape.resize(shapes.size());
  return index;
}

std::size_t LeaseNeeds::whole_shape(const AttentionShape& shape) { return index_of(whole_shapes, shape); }

std::size_t LeaseNeeds::add(uint32_t layer, const AttentionShape& shape) {
  of_shape[shape_of(shape)].push_back(attentions.size());
  enter(attention_of, layer, attentions.size());
  attentions.push_back({layer, shape});
  return attentions.size() - 1;
}

std::size_t LeaseNeeds::add_state(uint32_t layer, std::size_t carried, std::size_t floats) {
  int32_t found = number_of(state_of, layer);
  if (found < 0) {
    found = static_cast<int32_t>(states.size());
    enter(state_of, layer, states.size());
    states.push_back({layer, 0, 0});
  }
  State& state = states[static_cast<std::size_t>(found)];
  state.carried += static_cast<uint32_t>(carried);
  state.floats += static_cast<uint32_t>(floats);
  return static_cast<std::size_t>(found);
}

void bind_lease(const LeaseNeeds& needs, const llamay_kv_view& view, uint32_t count, std::size_t index,
                KvPages* pages, StatePages* states) {
  Binder(needs, view, count, index, pages, states).run();
}

bool leaves_state(const llamay_kv_view& view, uint32_t at) {
  for (uint32_t i = 0; i < view.n_groups; ++i) {
    const llamay_kv_group& g = element(view.groups, view.group_stride, i);
    if (g.kind != LLAMAY_KV_STATE) continue;
    if (view.group_stride < kStateGroupBytes || !g.n_states || !g.state_at ||
        !std::binary_search(g.state_at, g.state_at + g.n_states, at))
      return false;
  }
  return true;
}

}  // namespace llamay
