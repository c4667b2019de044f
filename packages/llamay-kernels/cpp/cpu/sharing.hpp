#pragma once

#include "cpu/run.hpp"

namespace llamay {

/// How the threads share the work of one stage. A work tells the pieces, the same ones in every thread, and
/// each of them is computed by one. How many there are may depend on the step alone, never on values that it
/// computed: a thread that comes late, when all pieces are done, may find other values in their place.
class Sharing {
 public:
  /// phases: kPhasesPerStage of the stage. record: whose time it is.
  Sharing(Run& run, Phase* phases, const Own& own, int record)
      : run_(run), phases_(phases), own_(own), record_(record) {}
  /// In a step of one row: each thread prepares before its first piece, and counts what it multiplies.
  template <class P>
  Sharing(Run& run, Phase* phases, const Own& own, int record, const P& prepare, Portions::Work& work)
      : run_(run),
        phases_(phases),
        own_(own),
        record_(record),
        prepare_([](const void* p) { (*static_cast<const P*>(p))(); }),
        context_(&prepare),
        work_(&work) {}

  /// In a step of one row each piece is kept for one thread, or taken by who is free.
  bool one_row() const { return prepare_ != nullptr; }

  /// piece(k) for each k < count.
  template <class F>
  void pieces(std::size_t count, F piece) {
    const auto timed = [&](std::size_t k) {
      piece(k);
      run_.mark_record(own_.thread, record_);
    };
    if (one_row())
      run_.share_prepared(phases_[0], count, own_, [this] { prepare_(context_); }, timed);
    else
      run_.share(phases_[2], count, own_, timed);
  }

  /// piece(k) for `each` pieces of each of so many stretches of rows; k is of stretch k % stretches. A thread
  /// begins with those that it has in all stages.
  template <class F>
  void tiles(std::size_t stretches, std::size_t each, F piece) {
    if (one_row()) return pieces(stretches * each, piece);
    run_.share_rows(phases_[2], stretches, each, own_, [&](std::size_t k) {
      piece(k);
      run_.mark_record(own_.thread, record_);
    });
  }

  /// `tiles` of a product; bytes(k) are those of its weights in piece k, so that in a step of one row threads
  /// get as much as they are fast.
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

  /// piece(k) for each k < count, all of them before any of what is told next. Not in a step of one row.
  template <class F>
  void first(std::size_t count, F piece) {
    if (count) run_.share(phases_[1], count, own_, piece);
  }

 private:
  Run& run_;
  Phase* const phases_;
  const Own& own_;
  const int record_;
  void (*prepare_)(const void*) = nullptr;
  const void* context_ = nullptr;
  Portions::Work* work_ = nullptr;
};

}  // namespace llamay
