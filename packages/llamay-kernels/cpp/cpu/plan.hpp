#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cpu/cutting.hpp"
#include "cpu/portions.hpp"
#include "cpu/preparation.hpp"
#include "cpu/schedule.hpp"
#include "llamay/kv_view.h"
#include "plan/program.hpp"
#include "threads/threads.hpp"

namespace llamay {

/// What changes from run to run. Nothing here is owned.
struct Step {
  const int32_t* tokens;
  const int32_t* positions;  // rows x axes
  std::size_t rows;
  const llamay_kv_view* const* leases;  // of each text; null where the plan keeps nothing
  const uint32_t* counts;               // of the texts' rows; without texts all rows are one
  std::size_t n_leases;
  const int32_t* logits;
  std::size_t wanted;
  float* out;
  std::size_t axes = 1;
  const int32_t* types = nullptr;         // of the rows; null: 0
  const float* const* vectors = nullptr;  // of each row one, or null for a token; null: all are tokens
};

/// Where a run's time went, in nanoseconds of the calling thread.
struct Profile {
  explicit Profile(std::size_t records) : record_ns(records) {}
  std::vector<uint64_t> record_ns;
  uint64_t prepare_ns = 0, wait_ns = 0, total_ns = 0, runs = 0;
};

class Scratch;

/// A list of records made ready for the CPU: checked, cut into stages, every value with its place. Immutable;
/// runs may overlap.
class Plan {
 public:
  /// The matrices must outlive the plan. Throws PlanError.
  Plan(const std::vector<Record>& records, const std::vector<int64_t>& widths,
       const std::vector<const PackedMatrix*>& weights, int64_t max_rows);
  ~Plan();

  /// Checks everything that changes, then computes. An error leaves nothing behind: pages are written only
  /// once nothing can fail any more. Throws std::invalid_argument, std::bad_alloc.
  void run(const Step& step, Threads& threads) const;

  std::size_t output_width() const { return program_.widths[static_cast<std::size_t>(program_.output)]; }
  std::size_t max_rows() const { return max_rows_; }
  /// Whether a text's rows read later ones, so that it has to be one step.
  bool whole_texts() const { return program_.whole_texts; }
  bool keeps_nothing() const { return cpu_.memory.none(); }
  /// Numbers of a row that is no token; 0 where the plan takes tokens only.
  std::size_t vector_width() const { return program_.vector_width; }
  /// One line a stage: what each thread does for itself and what they share.
  std::string describe() const;

  /// Starts (true) or stops measuring runs; both forget what was measured.
  void measure(bool on);
  Profile measured() const;
  const std::vector<std::string>& operations() const { return program_.ops; }

 private:
  friend class Run;
  friend class Running;

  void check(const Step& step) const;
  void check_row(const Step& step, std::size_t row) const;
  std::unique_ptr<Scratch> borrow() const;
  void give_back(std::unique_ptr<Scratch> scratch) const noexcept;
  void count(const Profile& of_run) const;

  Program program_;
  CpuProgram cpu_;
  Schedule schedule_;
  std::size_t max_rows_;
  std::vector<std::size_t> rope_floats_;  // of one row, before each rotation's table and, at the end, of all
  std::size_t attention_scratch_ = 0;     // floats
  std::vector<const Prepared*> priced_, roomy_;  // nodes whose work has a cost or scratch of its own
  mutable Cutting cutting_;
  mutable Portions portions_;
  mutable std::mutex idle_mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
  std::atomic<bool> measuring_{false};
  mutable std::mutex profile_mutex_;
  mutable Profile profile_;
};

}  // namespace llamay
