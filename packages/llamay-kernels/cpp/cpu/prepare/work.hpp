#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "matmul/matmul.hpp"
#include "plan/program.hpp"

namespace llamay {

class Preparation;
class Run;
class Sharing;
struct ThreadContext;
struct Prepared;
struct Stage;

/// The CPU's way to compute a kind of node: the part of an operation that belongs to this backend. It has
/// either `rows`, which a thread computes by itself, or `share`, whose pieces all threads share.
struct CpuWork {
  Primitive primitive;  // the first member: nodes point to it
  /// Prepares everything that does not change from step to step. Null: the node's config is used as it is.
  void (*prepare)(Preparation& preparation, const Node& node, Prepared& prepared) = nullptr;
  /// Computes rows [from, to) of the outs.
  void (*rows)(const Run& run, const Prepared& node, std::size_t from, std::size_t to,
               const ThreadContext& thread) = nullptr;
  /// Computes `count` numbers of output row `row`, from number `first` on, out of input row `from`: for the
  /// last node of a plan, which is split by columns like a product.
  void (*columns)(const Run& run, const Prepared& node, std::size_t row, std::size_t from, std::size_t first,
                  std::size_t count, const ThreadContext& thread) = nullptr;
  /// Declares to `sharing` the pieces of which the node's work consists.
  void (*share)(Run& run, const Stage& stage, const Prepared& node, const ThreadContext& thread,
                Sharing& sharing) = nullptr;
  /// Bytes of scratch memory that each thread needs in a step of `rows` rows.
  std::size_t (*scratch)(const Prepared& node, std::size_t rows) = nullptr;
  /// Multiplications of a step, where their number depends on more than its rows.
  uint64_t (*cost)(const Run& run, const Prepared& node) = nullptr;
  /// Whether the node writes keys and values or states, so that it runs in steps without outputs, too.
  bool keeps = false;
  /// Whether the node can write its only out into the caller's buffer.
  bool writes_output = false;
};

/// One matrix of a product, and the value that receives its result.
struct Product {
  const PackedMatrix* matrix;
  const float* bias;
  int out;
};

/// A value that shared work reads: `parts` activations a row, each of `cols` numbers.
struct Read {
  int value;
  ActivationKind kind;
  std::size_t cols, parts;
};

/// A node, prepared for the CPU.
struct Prepared {
  const CpuWork* work;
  int record;
  std::vector<int> ins, outs;
  std::vector<Product> products = {};
  std::vector<Read> reads = {};
  std::shared_ptr<const void> data = nullptr;

  template <class T>
  const T& as() const {
    return *static_cast<const T*>(data.get());
  }
  bool shared() const { return work->share != nullptr; }
};

/// A node that copies rows of a value: it brings an output into the caller's buffer where no other node can
/// write there.
Prepared copy_node(int from, int to, int record);

}  // namespace llamay
