#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/work.hpp"

namespace llamay {

/// Where values live: apart by whether they have all rows or the selected ones, and by what makes them.
enum class Space : uint8_t { rows, rows_selected, products, products_selected, output, none };
constexpr std::size_t kSpaces = 4;  // that need memory

constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }
/// So many bytes as whole lines of a cache.
constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

constexpr bool selected(Space s) { return s == Space::rows_selected || s == Space::products_selected; }
/// What whole-row steps make.
constexpr bool of_whole_rows(Space s) { return s == Space::rows || s == Space::rows_selected; }

struct Place {
  Space space = Space::none;
  std::size_t offset = 0;  // bytes per row of the space: the address is base + offset * rows
};

/// A value as a matrix product reads it.
struct Activation {
  int value;
  ActivationKind kind;
  std::size_t cols, parts;  // of each part; parts of a row
  std::size_t row_bytes;    // of all parts
  bool alias;               // the value itself has that form
  Place place;

  std::size_t part_bytes() const { return row_bytes / parts; }
};

/// One piece of whole-row work: a node, or making an activation.
struct RowStep {
  int node = -1;
  int activation = -1;
};

/// Some bytes of a row of a space.
struct Stretch {
  Place place;
  std::size_t bytes;
};

/// Whole-row steps, each on the rows that the step before it did, then one operation that all threads share.
/// Between stages all threads have finished.
struct Stage {
  bool selected = false;  // which rows the steps work on
  std::vector<RowStep> rows;
  int shared = -1;  // node
  bool shared_selected = false;
  std::vector<int> activations;  // that the shared node reads
  /// What row steps of earlier stages have made and this one or a later one reads.
  std::vector<Stretch> carried;
};

struct Schedule {
  std::vector<Stage> stages;
  std::vector<Place> places;  // of each value
  std::vector<Activation> activations;
  std::size_t row_bytes[kSpaces] = {};  // of each space
  std::size_t last_keeping = 0;         // one past the last stage that writes keys and values or states
};

/// Adds what brings the output into the caller's buffer, cuts the nodes into stages and gives each value its
/// place.
Schedule schedule(Program& program, std::vector<Prepared>& nodes);

}  // namespace llamay
