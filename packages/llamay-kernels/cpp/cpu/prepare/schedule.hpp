#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/prepare/work.hpp"

namespace llamay {

/// The memory spaces of values: separate for all rows and for selected rows, and for results of whole-row
/// steps and of shared work.
enum class Space : uint8_t { rows, rows_selected, products, products_selected, output, none };
constexpr std::size_t kSpaces = 4;  // the spaces that need memory

constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }
/// Rounds a number of bytes up to whole cache lines.
constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

constexpr bool selected(Space s) { return s == Space::rows_selected || s == Space::products_selected; }
/// Whether a space holds results of whole-row steps.
constexpr bool of_whole_rows(Space s) { return s == Space::rows || s == Space::rows_selected; }

struct Place {
  Space space = Space::none;
  std::size_t offset = 0;  // bytes per row of the space: the address is base + offset * rows
};

/// A value in the form that a matrix product reads: float32, or quantized.
struct Activation {
  int value;
  ActivationKind kind;
  std::size_t cols, parts;  // columns of a part; parts of a row
  std::size_t row_bytes;    // bytes of all parts of a row
  bool alias;               // the value itself already has this form
  Place place;

  std::size_t part_bytes() const { return row_bytes / parts; }
};

/// One step of whole-row work: a node, or making an activation.
struct RowStep {
  int node = -1;
  int activation = -1;
};

/// A range of bytes in each row of a space.
struct ByteRange {
  Place place;
  std::size_t bytes;
};

/// One stage of a run: whole-row steps, all on the same rows, then one operation whose work all threads
/// share. All threads finish a stage before the next one begins.
struct Stage {
  bool selected = false;  // whether the row steps work on the selected rows only
  std::vector<RowStep> rows;
  int shared = -1;  // index of the node with shared work; -1: none
  bool shared_selected = false;
  std::vector<int> activations;  // the activations that the shared node reads
  /// Results of earlier stages' row steps that this stage or a later one reads.
  std::vector<ByteRange> carried;
};

struct Schedule {
  std::vector<Stage> stages;
  std::vector<Place> places;  // one for each value
  std::vector<Activation> activations;
  std::size_t row_bytes[kSpaces] = {};  // bytes of a row in each space
  std::size_t last_keeping = 0;         // one past the last stage that writes keys and values or states
};

/// Adds a copy node where no node can write the output into the caller's buffer, divides the nodes into
/// stages, and assigns each value its place.
Schedule schedule(Program& program, std::vector<Prepared>& nodes);

}  // namespace llamay
