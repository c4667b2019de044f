#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llamay/kv_view.h"
#include "ops/attention/attention.hpp"

namespace llamay {

/// The layers that a plan needs of each lease, computed once when the plan is prepared.
struct LeaseNeeds {
  struct Attention {
    uint32_t layer;
    AttentionShape shape;
  };
  struct State {
    uint32_t layer;
    uint32_t carried, floats;  // floats that a convolution carries over; floats of the recurrent state
  };
  std::vector<Attention> attentions;               // in the order of the plan
  std::vector<State> states;                       // in the order of the plan
  std::vector<int32_t> attention_of, state_of;     // model layer -> index above, or -1
  std::vector<AttentionShape> shapes;              // the distinct shapes of attention
  std::vector<std::vector<std::size_t>> of_shape;  // indices of the attentions of each shape
  std::vector<AttentionShape>
      whole_shapes;  // distinct shapes of attention over whole texts, which stores nothing

  bool none() const { return attentions.empty() && states.empty(); }
  /// Adds an attention and returns its index; `shape_of` returns the index of its shape.
  std::size_t add(uint32_t layer, const AttentionShape& shape);
  /// Adds the part of a convolution or of a scan to the state of a layer, and returns the index of that
  /// state.
  std::size_t add_state(uint32_t layer, std::size_t carried, std::size_t floats);
  std::size_t shape_of(const AttentionShape& shape);
  std::size_t whole_shape(const AttentionShape& shape);
};

/// The recurrent states of one layer of one lease, float32.
struct StatePages {
  const uint8_t* arena;
  uint64_t page_bytes;
  const int32_t* numbers;  // page numbers, one for each state
  const uint32_t* at;      // the number of tokens that each state comes after
  int32_t read;            // index of the state that the step starts from; -1: zeros
  uint32_t first, end;     // the states that this step writes, in the order of their tokens
  uint64_t k_offset,
      v_offset;  // bytes from the start of a page to the convolution's inputs, and to the state

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

/// Checks that the lease has every layer in the right shape, pages for `count` more positions and for every
/// position that a row can look back at, and the state to start from. Writes the location of each attention
/// and state to pages[0 .. needs.attentions.size()) and states[0 .. needs.states.size()). Throws
/// std::invalid_argument, naming the lease by its index.
void bind_lease(const LeaseNeeds& needs, const llamay_kv_view& view, uint32_t count, std::size_t index,
                KvPages* pages, StatePages* states);

/// Whether every group of recurrent states has a state after `at` tokens, so that a step that ends there can
/// be committed.
bool leaves_state(const llamay_kv_view& view, uint32_t at);

}  // namespace llamay
