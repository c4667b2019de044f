#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/format.hpp"
#include "plan/operation.hpp"
#include "plan/record.hpp"

namespace llamay {

/// All that a plan's checks know of a weight.
struct WeightShape {
  Format format;
  std::size_t rows, cols;
};

/// What records are made of. Fused records become several nodes, so that a fusion cannot compute anything
/// else than its parts.
struct Node {
  const Primitive* primitive;
  int record;
  std::vector<int> ins, outs;          // values
  std::vector<int> weights;            // numbers of the plan's weights
  std::shared_ptr<const void> config;  // what the operation's check made of its attributes

  template <class T>
  const T& as() const {
    return *static_cast<const T*>(config.get());
  }
};

/// What one layer keeps of a context between steps: keys and values of each position, or a recurrent state.
struct Memory {
  enum class Kind : uint8_t { keys_values, latent, state };
  Kind kind;
  uint32_t layer;
  uint32_t kv_heads, k_dim, v_dim;  // state: 1, floats that a convolution carries over, floats of the state
  uint32_t window = 0;              // positions a row may look back, itself included; 0: all
};

/// A checked list of records, for any device. Values beyond those of the records are between the parts of
/// fused ones.
struct Program {
  std::vector<Node> nodes;
  std::vector<std::size_t> widths;
  std::vector<bool> selected;    // of each value: only the rows that want their output
  std::vector<std::string> ops;  // of each record, for people
  std::vector<Memory> memory;
  int output = -1;
  std::size_t vocabulary = 0;       // rows of the smallest embedding table; 0 without one
  std::size_t positions = 0;        // rows of the smallest table of positions; 0 without one
  std::size_t types = 0;            // rows of the smallest table of types; 0 without one
  std::size_t axes = 1;             // of the positions that rotations turn by
  double max_frequency = 0;         // of the rotations
  std::size_t vector_width = 0;     // of rows that are no tokens; 0: the plan takes none
  std::size_t multiplications = 0;  // of one row in matrix products
  bool whole_texts = false;         // rows read later rows of their text: a text has to be one step
};

/// Throws PlanError.
Program check(const std::vector<Record>& records, const std::vector<int64_t>& widths,
              const std::vector<WeightShape>& weights);

}  // namespace llamay
