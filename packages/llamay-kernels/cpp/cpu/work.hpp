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
struct Own;
struct Prepared;
struct Stage;

/// How the CPU computes a node: the part of an operation that belongs to this backend. A work computes either
/// whole rows, which a thread does by itself, or something that all threads share.
struct CpuWork {
  Primitive primitive;  // first: a node names it
  /// Makes ready what does not change from step to step. None: the node's config is all there is.
  void (*prepare)(Preparation& preparation, const Node& node, Prepared& prepared) = nullptr;
  /// Rows [from, to) of the outs.
  void (*rows)(const Run& run, const Prepared& node, std::size_t from, std::size_t to,
               const Own& own) = nullptr;
  /// `count` numbers of an output row from the `first` on, read from row `from`: for a work that comes last
  /// and is split like a product.
  void (*columns)(const Run& run, const Prepared& node, std::size_t row, std::size_t from, std::size_t first,
                  std::size_t count, const Own& own) = nullptr;
  /// Tells `sharing` the pieces that all rows are made of.
  void (*share)(Run& run, const Stage& stage, const Prepared& node, const Own& own,
                Sharing& sharing) = nullptr;
  /// Bytes that each thread needs for itself beside what all have, in a step of so many rows.
  std::size_t (*scratch)(const Prepared& node, std::size_t rows) = nullptr;
  /// Multiplications of a step that depend on more than its rows.
  uint64_t (*cost)(const Run& run, const Prepared& node) = nullptr;
  /// Writes keys and values or states: it runs where nobody wants an output, too.
  bool keeps = false;
  /// Can write its only out where the caller wants it.
  bool writes_output = false;
};

/// One matrix of a product and where its result goes.
struct Product {
  const PackedMatrix* matrix;
  const float* bias;
  int out;
};

/// A value as a shared work reads it: `parts` activations a row, each of `cols` numbers.
struct Read {
  int value;
  ActivationKind kind;
  std::size_t cols, parts;
};

/// A node, made ready.
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

/// Copies rows of a value: how an output gets into the caller's buffer where nothing else writes it there.
Prepared copy_node(int from, int to, int record);

}  // namespace llamay
