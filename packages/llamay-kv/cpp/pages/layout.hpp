#pragma once
#include <llamay/kv_view.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace llamay::kv {

enum class Kind : uint32_t {
  full = LLAMAY_KV_FULL,
  window = LLAMAY_KV_WINDOW,
  latent = LLAMAY_KV_LATENT,
  state = LLAMAY_KV_STATE
};

/// How K and V are stored. vq8: K as f16, V as int8 with a float scale for each head and position. q8: both
/// so.
enum class Precision : uint32_t { f32 = LLAMAY_KV_F32, f16 = LLAMAY_KV_F16, vq8 = 2, q8 = 3 };
enum class Stored : uint32_t { f32, f16, int8 };

/// One layer of the model, by its index there. Dimensions are elements per head. A latent layer has no V; a
/// recurrent one has in K the last inputs of its convolution, in V its state.
struct LayerSpec {
  uint32_t layer = 0, kv_heads = 0, k_dim = 0, v_dim = 0;
};

/// Layers that share one page table.
struct GroupSpec {
  Kind kind = Kind::full;
  uint32_t window = 0;  // positions a row may look back, itself included, in a window group
  Precision precision = Precision::f16;
  std::vector<LayerSpec> layers;
  uint32_t stride = 0;  // in a state group: states at multiples of it are kept as checkpoints
};

/// A layer as views list it, with room for the scales of int8 elements in every precision.
using PlacedLayer = llamay_kv_layer_int8;

/// A part of a page that is `rows` rows, and in each of them `unit` bytes for every slot. K has a row for
/// each head and dimension, V and scales have one for each head. Code that only copies needs to know no more
/// than this.
struct Plane {
  size_t offset, rows, unit;
};

/// Where everything of a group lies inside a page of page_tokens positions. kv_view.h states the order of
/// elements.
struct GroupLayout {
  /// A page of a recurrent group is one state; page_tokens concerns the other groups.
  GroupLayout(GroupSpec spec, uint32_t page_tokens);

  bool recurrent() const { return spec.kind == Kind::state; }

  /// Bytes that `positions` positions take without page padding: the payload of a snapshot's chunk.
  size_t packed_bytes(uint32_t positions) const { return positions * position_bytes; }

  /// The first position that a row at `position` or any later one may still read.
  uint32_t first_needed(uint32_t position) const {
    return spec.kind != Kind::window || position < spec.window ? 0 : position + 1 - spec.window;
  }

  GroupSpec spec;
  uint32_t page_tokens;
  Stored k, v;
  size_t position_bytes;  // of one position, all layers; 0 in a recurrent group
  size_t state_bytes;     // of one state, without padding; 0 in the others
  size_t page_bytes;
  std::vector<PlacedLayer> layers;
  std::vector<Plane> planes;  // of all layers in order; in each K, its scales, V, its scales
};

/// Throws std::invalid_argument naming the group or layer that is wrong.
void validate(const std::vector<GroupSpec>& groups, uint32_t page_tokens);

}  // namespace llamay::kv
