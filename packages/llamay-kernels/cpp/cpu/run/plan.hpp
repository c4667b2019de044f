#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cpu/partition/speed_shares.hpp"
#include "cpu/partition/split_choice.hpp"
#include "cpu/prepare/preparation.hpp"
#include "cpu/prepare/schedule.hpp"
#include "llamay/kv_view.h"
#include "plan/program.hpp"
#include "threads/threads.hpp"

namespace llamay {

/// The inputs of one run of a plan. A step owns none of the memory that it points at.
struct Step {
  const int32_t* tokens;
  const int32_t* positions;  // rows x axes
  std::size_t rows;
  const llamay_kv_view* const* leases;  // one for each text; null where the plan keeps nothing
  const uint32_t* counts;               // rows of each text; without texts all rows are one text
  std::size_t n_leases;
  const int32_t* logits;
  std::size_t wanted;
  float* out;
  std::size_t axes = 1;
  const int32_t* types = nullptr;         // token types of the rows; null: all are 0
  const float* const* vectors = nullptr;  // one for each row, null for a token; null: all rows are tokens
};

/// The time of a run and of its parts, in nanoseconds of the calling thread.
struct Profile {
  explicit Profile(std::size_t records) : record_ns(records) {}
  std::vector<uint64_t> record_ns;
  uint64_t prepare_ns = 0, wait_ns = 0, total_ns = 0, runs = 0;
};

class Scratch;

/// A list of records prepared for the CPU: checked, divided into stages, with a place for every value.
/// Immutable; runs may overlap.
class Plan {
 public:
  /// The matrices must outlive the plan. Throws PlanError.
  Plan(const std::vector<Record>& records, const std::vector<int64_t>& widths,
       const std::vector<const PackedMatrix*>& weights, int64_t max_rows);
  ~Plan();

  /// Checks the step, then computes it. After an error no page has been written: pages are written only once
  /// nothing can fail any more. Throws std::invalid_argument, std::bad_alloc.
  void run(const Step& step, Threads& threads) const;

  std::size_t output_width() const { return program_.widths[static_cast<std::size_t>(program_.output)]; }
  std::size_t max_rows() const { return max_rows_; }
  /// Whether rows read later rows of their text, so that a text has to be one step.
  bool whole_texts() const { return program_.whole_texts; }
  bool keeps_nothing() const { return cpu_.lease_needs.none(); }
  /// Width of the vector that a row may have in place of a token; 0 where the plan takes tokens only.
  std::size_t vector_width() const { return program_.vector_width; }
  /// One line for each stage: its whole-row steps, then its shared work.
  std::string describe() const;

  /// Starts (true) or stops measuring runs; both discard earlier measurements.
  void measure(bool on);
  Profile measured() const;
  const std::vector<std::string>& operations() const { return program_.ops; }

 private:
  friend class Run;
  friend class BackgroundRun;

  void check(const Step& step) const;
  void check_row(const Step& step, std::size_t row) const;
  std::unique_ptr<Scratch> borrow() const;
  void give_back(std::unique_ptr<Scratch> scratch) const noexcept;
  void count(const Profile& of_run) const;

  Program program_;
  CpuProgram cpu_;
  Schedule schedule_;
  std::size_t max_rows_;
  std::vector<std::size_t>
      rope_floats_;  // floats of one row before each rotation's table and, at the end, of all tables
  std::size_t attention_scratch_ = 0;                      // floats
  std::vector<const Prepared*> with_cost_, with_scratch_;  // nodes whose work has a cost, or needs scratch
  mutable SplitChoice split_choice_;
  mutable SpeedShares speed_shares_;
  mutable std::mutex idle_mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
  std::atomic<bool> measuring_{false};
  mutable std::mutex profile_mutex_;
  mutable Profile profile_;
};

}  // namespace llamay
