#pragma once

#include "cpu/run/run.hpp"

namespace llamay {

/// The sharing of one stage's work among the threads. A CpuWork declares the pieces, the same ones in every
/// thread, and each piece is computed by one thread. The number of pieces may depend on the step alone, never
/// on values that were computed: a thread that comes late, when all pieces are done, may find other values in
/// their place.
class Sharing {
 public:
  /// phases: kPhasesPerStage of the stage. record: the record that the time is counted for.
  Sharing(Run& run, Phase* phases, const ThreadContext& thread, int record)
      : run_(run), phases_(phases), thread_(thread), record_(record) {}
  /// In a step of one row: each thread prepares before its first piece, and counts the bytes that it
  /// multiplies.
  template <class P>
  Sharing(Run& run, Phase* phases, const ThreadContext& thread, int record, const P& prepare,
          SpeedShares::Work& work)
      : run_(run),
        phases_(phases),
        thread_(thread),
        record_(record),
        prepare_([](const void* p) { (*static_cast<const P*>(p))(); }),
        context_(&prepare),
        work_(&work) {}

  /// Whether this is a step of one row, in which each piece is reserved for one thread, or taken by a thread
  /// that is free.
  bool one_row() const { return prepare_ != nullptr; }

  /// Runs piece(k) for each k < count.
  template <class F>
  void pieces(std::size_t count, F piece) {
    const auto timed = [&](std::size_t k) {
      piece(k);
      run_.mark_record(thread_.index, record_);
    };
    if (one_row())
      run_.share_prepared(phases_[0], count, thread_, [this] { prepare_(context_); }, timed);
    else
      run_.share(phases_[2], count, thread_, timed);
  }

  /// Runs piece(k) for `each` pieces of each of `stretches` stretches of rows; piece k belongs to stretch k %
  /// stretches. A thread begins with the stretches that it has in all stages.
  template <class F>
  void tiles(std::size_t stretches, std::size_t each, F piece) {
    if (one_row()) return pieces(stretches * each, piece);
    run_.share_rows(phases_[2], stretches, each, thread_, [&](std::size_t k) {
      piece(k);
      run_.mark_record(thread_.index, record_);
    });
  }

  /// `tiles` of a product; bytes(k) returns the bytes of weights in piece k, from which a step of one row
  /// measures the speed of each thread.
  template <class F, class B>
  void products(std::size_t stretches, std::size_t each, F piece, B bytes) {
    if (!one_row()) return tiles(stretches, each, piece);
    pieces(stretches * each, [&](std::size_t k) {
      const auto start = std::chrono::steady_clock::now();
      piece(k);
      work_->ns +=
          static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
      work_->bytes += bytes(k);
    });
  }

  /// Runs piece(k) for each k < count, all of them before any piece that is declared next. Not in a step of
  /// one row.
  template <class F>
  void first(std::size_t count, F piece) {
    if (count) run_.share(phases_[1], count, thread_, piece);
  }

 private:
  Run& run_;
  Phase* const phases_;
  const ThreadContext& thread_;
  const int record_;
  void (*prepare_)(const void*) = nullptr;
  const void* context_ = nullptr;
  SpeedShares::Work* work_ = nullptr;
};

}  // namespace llamay
