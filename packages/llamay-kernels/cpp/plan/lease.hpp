#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llamay/kv_view.h"
#include "plan/program.hpp"

namespace llamay {

/// What a plan's attentions ask of a lease; made once.
struct KvNeeds {
  explicit KvNeeds(const Program& program);

  struct Layer {
    uint32_t layer;
    AttentionShape shape;
  };
  std::vector<Layer> layers;                       // in the order of the attentions
  std::vector<int32_t> of_layer;                   // model layer -> index above, or -1
  std::vector<std::vector<std::size_t>> of_shape;  // Program::shapes -> indices above
};

/// Checks that the lease has every layer, in the right shape, with pages for `count` more positions and for
/// all that a row can look back at, and puts where each layer lies into pages[0 .. needs.layers.size()).
/// Throws std::invalid_argument, naming the lease by its index.
void bind_lease(const KvNeeds& needs, const llamay_kv_view& view, uint32_t count, std::size_t index,
                KvPages* pages);

}  // namespace llamay
