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

/// The properties of a weight that a plan's checks see.
struct WeightShape {
  Format format;
  std::size_t rows, cols;
};

/// One step of computation. Fused records become several nodes, so that a fusion cannot compute anything else
/// than its parts.
struct Node {
  const Primitive* primitive;
  int record;
  std::vector<int> ins, outs;          // indices of values
  std::vector<int> weights;            // indices of the plan's weights
  std::shared_ptr<const void> config;  // the attributes, as the operation's check read them

  template <class T>
  const T& as() const {
    return *static_cast<const T*>(config.get());
  }
};

/// The memory that one layer keeps of a context between steps: keys and values of each position, or a
/// recurrent state.
struct Memory {
  enum class Kind : uint8_t { keys_values, latent, state };
  Kind kind;
  uint32_t layer;
  uint32_t kv_heads, k_dim, v_dim;  // state: 1, floats that a convolution carries over, floats of the state
  uint32_t window = 0;              // positions a row may look back, itself included; 0: all
};

/// A checked list of records, for any device. Values beyond those of the records lie between the parts of
/// fused records.
struct Program {
  std::vector<Node> nodes;
  std::vector<std::size_t> widths;
  std::vector<bool> selected;    // for each value: whether it has only the rows that want their output
  std::vector<std::string> ops;  // the operation of each record, for messages
  std::vector<Memory> memory;
  int output = -1;
  std::size_t vocabulary = 0;       // rows of the smallest embedding table; 0 without one
  std::size_t positions = 0;        // rows of the smallest table of positions; 0 without one
  std::size_t types = 0;            // rows of the smallest table of types; 0 without one
  std::size_t axes = 1;             // axes of the positions that rotations use
  double max_frequency = 0;         // the largest frequency of a rotation
  std::size_t vector_width = 0;     // width of vectors in place of tokens; 0: the plan takes none
  std::size_t multiplications = 0;  // multiplications of one row in matrix products
  bool whole_texts = false;         // rows read later rows of their text: a text has to be one step
};

/// Throws PlanError.
Program check(const std::vector<Record>& records, const std::vector<int64_t>& widths,
              const std::vector<WeightShape>& weights);

}  // namespace llamay
