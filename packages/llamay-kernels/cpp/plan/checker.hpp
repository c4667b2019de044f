#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/program.hpp"

namespace llamay {

/// The interface of an operation's check to the plan that is being checked. Every error names the record.
class Checker {
 public:
  Checker(const std::vector<Record>& records, const std::vector<int64_t>& widths,
          const std::vector<WeightShape>& weights);
  /// Throws PlanError.
  Program run();

  [[noreturn]] void fail(const std::string& what) const;

  // Attributes, whose presence and types the table has checked.
  bool has(const Record& r, const char* name) const { return r.attrs.count(name) > 0; }
  float number(const Record& r, const char* name) const;
  /// least <= x <= 2^31 - 1.
  uint32_t whole(const Record& r, const char* name, int64_t least) const;
  uint32_t whole_or(const Record& r, const char* name, int64_t least, uint32_t otherwise) const {
    return has(r, name) ? whole(r, name, least) : otherwise;
  }
  /// The attribute `layer`, 0 to 65535.
  uint32_t layer(const Record& r) const;
  const std::string& text(const Record& r, const char* name) const;
  const std::vector<double>& numbers(const Record& r, const char* name) const;
  /// The index of the attribute's value among `names`. The error names all of them.
  std::size_t one_of(const Record& r, const char* name, std::span<const char* const> names) const;

  // Values.
  std::size_t width(int v) const { return program_.widths[static_cast<std::size_t>(v)]; }
  bool selected(int v) const { return program_.selected[static_cast<std::size_t>(v)]; }
  void expect_width(int v, std::size_t wanted, const char* why) const;
  /// Fails unless both values have all rows, or both have the selected rows.
  void expect_same_rows(int a, int b) const;
  /// Fails for a value with selected rows only: an operation that reads other rows than its own, or positions
  /// in a text, needs all rows.
  void expect_all_rows(int v) const;
  int temporary(std::size_t width, bool selected);

  // Weights.
  const WeightShape& weight(int64_t index) const { return weights_[static_cast<std::size_t>(index)]; }
  /// Fails unless the weight is one row, of `length` numbers where `length` is not 0. Returns the length.
  std::size_t vector(int64_t index, std::size_t length, const char* what) const;
  /// Fails unless the weight is a matrix of `rows` rows, each as wide as value x; counts its multiplications.
  void matrix(int64_t index, int x, std::size_t rows);

  /// Adds a node; `selected`: its outs have the selected rows only.
  Node& node(const Primitive& primitive, std::vector<int> ins, std::vector<int> outs, bool selected,
             std::vector<int> weights = {});
  template <class Config>
  Node& node(const Primitive& primitive, std::vector<int> ins, std::vector<int> outs, bool selected,
             std::vector<int> weights, Config config) {
    Node& n = node(primitive, std::move(ins), std::move(outs), selected, std::move(weights));
    n.config = std::make_shared<const Config>(std::move(config));
    return n;
  }
  /// Records the memory that a layer keeps of a context. Fails if the layer keeps some already, except for
  /// the two halves of a state.
  void keep(const Memory& memory);

  Program& program() { return program_; }

 private:
  void record(const Record& r);
  void attributes(const Record& r, const Operation& o) const;
  void count(const char* what, std::size_t is, Count wanted) const;

  const std::vector<Record>& records_;
  const std::vector<WeightShape>& weights_;
  Program program_;
  std::vector<bool> made_;
  std::size_t at_ = 0;
};

/// The args or outs of a record as numbers of values, which have been checked.
inline int in(const Record& r, std::size_t i) { return static_cast<int>(r.args[i]); }
inline int out(const Record& r, std::size_t i = 0) { return static_cast<int>(r.outs[i]); }

}  // namespace llamay
