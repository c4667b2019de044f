#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llamay/kv_view.h"
#include "ops/attention.hpp"

namespace llamay {

/// What a plan asks of a lease; made once.
struct MemoryNeeds {
  struct Attention {
    uint32_t layer;
    AttentionShape shape;
  };
  struct State {
    uint32_t layer;
    uint32_t carried, floats;  // that a convolution carries over; of the recurrent state
  };
  std::vector<Attention> attentions;               // in the order of the plan
  std::vector<State> states;                       // likewise
  std::vector<int32_t> attention_of, state_of;     // model layer -> number above, or -1
  std::vector<AttentionShape> shapes;              // that differ
  std::vector<std::vector<std::size_t>> of_shape;  // numbers of the attentions
  std::vector<AttentionShape> whole_shapes;        // of attentions over a text that keep nothing

  bool none() const { return attentions.empty() && states.empty(); }
  /// The number of the attention; the shape's is found by `shape_of`.
  std::size_t add(uint32_t layer, const AttentionShape& shape);
  /// The number of the state of this layer, of which a convolution and a scan are the two parts.
  std::size_t add_state(uint32_t layer, std::size_t carried, std::size_t floats);
  std::size_t shape_of(const AttentionShape& shape);
  std::size_t whole_shape(const AttentionShape& shape);
};

/// The recurrent states of one layer of one lease, float32.
struct StatePages {
  const uint8_t* arena;
  uint64_t page_bytes;
  const int32_t* numbers;       // of the pages
  const uint32_t* at;           // how many tokens each is the state after
  int32_t read;                 // the one to begin with; -1: zeros
  uint32_t first, end;          // those that this step writes, in the order of their tokens
  uint64_t k_offset, v_offset;  // of what a convolution carries over, and of the state

  const float* carried(int32_t i) const { return floats(i, k_offset); }
  const float* state(int32_t i) const { return floats(i, v_offset); }
  const uint8_t* page(uint32_t i) const { return arena + static_cast<uint64_t>(numbers[i]) * page_bytes; }
  float* carried_to(uint32_t i) const {
    return const_cast<float*>(floats(static_cast<int32_t>(i), k_offset));
  }
  float* state_to(uint32_t i) const { return const_cast<float*>(floats(static_cast<int32_t>(i), v_offset)); }

 private:
  const float* floats(int32_t i, uint64_t offset) const {
    return reinterpret_cast<const float*>(arena + static_cast<uint64_t>(numbers[i]) * page_bytes + offset);
  }
};

/// Checks that the lease has every layer, in the right shape, with pages for `count` more positions, for all
/// that a row can look back at, and with the state to begin with; puts where each attention and each state
/// lies into pages[0 .. needs.attentions.size()) and states[0 .. needs.states.size()). Throws
/// std::invalid_argument, naming the lease by its index.
void bind_lease(const MemoryNeeds& needs, const llamay_kv_view& view, uint32_t count, std::size_t index,
                KvPages* pages, StatePages* states);

/// Whether every group of recurrent states has one after `at` tokens, so that what a step leaves there can be
/// committed.
bool leaves_state(const llamay_kv_view& view, uint32_t at);

}  // namespace llamay
