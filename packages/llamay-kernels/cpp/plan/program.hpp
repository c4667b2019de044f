#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "matmul/matmul.hpp"
#include "ops/attention.hpp"
#include "ops/rope_table.hpp"
#include "ops/table.hpp"
#include "plan/record.hpp"

namespace llamay {

/// One matrix of a product and where its result goes.
struct Product {
  const PackedMatrix* matrix;
  const float* bias;
  int out;
};

/// What records are made of. Fused records become several nodes, so that a fusion cannot compute anything
/// else than its parts.
struct Node {
  enum class Kind { embed, elementwise, rms_norm, layer_norm, rope, select, linear, glu, attention };

  Kind kind;
  int record;
  int a = -1, b = -1, c = -1;          // values read; linear: c is the residual; attention: q, k, v
  int out = -1;                        // linear: the first product's
  Elementwise op = Elementwise::copy;  // linear: what is done to the product, copy for nothing
  float by = 0;                        // elementwise
  const float* norm = nullptr;
  const float* norm_bias = nullptr;  // layer_norm
  float eps = 0;
  std::size_t groups = 0, width = 0;  // rms_norm
  std::size_t rope = 0, heads = 0, head_dim = 0;
  std::size_t shape = 0;      // attention: which one of Program::shapes
  std::size_t attention = 0;  // how many come before it
  uint32_t layer = 0;
  const PackedMatrix* table = nullptr;  // embed
  bool by_position = false;             // embed: the row of the position, not of the token
  std::vector<Product> products = {};   // linear; glu: gate, up

  /// Split over threads by the rows of its weights or by heads; the others work on whole rows.
  bool heavy() const { return kind == Kind::linear || kind == Kind::glu || kind == Kind::attention; }
};

/// A checked list of records. Values beyond those of the records are between the parts of fused ones.
struct Program {
  std::vector<Node> nodes;
  std::vector<std::size_t> widths;
  std::vector<bool> selected;  // of each value: only the rows that want their output
  std::vector<Rope> ropes;
  std::vector<AttentionShape> shapes;
  std::vector<std::string> ops;                   // of each record, for people
  std::vector<std::unique_ptr<float[]>> vectors;  // norm weights and biases
  int output = -1;
  std::size_t vocabulary = 0;       // rows of the smallest embedding table; 0 without one
  std::size_t positions = 0;        // rows of the smallest table of positions; 0 without one
  std::size_t weight_bytes = 0;     // that a step reads
  std::size_t multiplications = 0;  // of one row in matrix products
};

/// Throws PlanError.
Program check(const std::vector<Record>& records, const std::vector<int64_t>& widths,
              const std::vector<const PackedMatrix*>& weights);

}  // namespace llamay
