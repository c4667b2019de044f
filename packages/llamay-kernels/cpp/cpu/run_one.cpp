// A step of one row, which most of decoding is. What its whole-row steps make is small and needed by every
// thread, and passing it from one core to another takes longer than computing it: so each thread has copies
// of its own, and threads meet once a stage.
#include <cstring>

#include "cpu/sharing.hpp"

namespace llamay {

void Run::one_row(const Own& own) {
  Progress progress;
  for (std::size_t i = 0; i < n_stages_ && !left_.load(std::memory_order_relaxed); ++i)
    stage_of_one(i, scratch_.phases[kPhasesPerStage * i], own, progress);
  scratch_.work[own.thread] = progress.work;
}

void Run::stage_of_one(std::size_t i, Phase& phase, const Own& own, Progress& progress) {
  const Stage& stage = schedule_.stages[i];
  const bool has_rows = !stage.rows.empty() && rows(stage.selected),
             is_shared = stage.shared >= 0 && rows(stage.shared_selected);
  if (!has_rows && !is_shared) {
    if (progress.next == i) ++progress.next;
    return;
  }
  const auto prepare = [&] {
    if (progress.next != i) catch_up(stage, progress.leader, own);
    if (!progress.ropes) fill_ropes(0, 1, own);
    progress.ropes = true;
    if (has_rows) whole_rows(stage, 0, 1, own);
    progress.next = i + 1;
    phase.leader.store(own.thread, std::memory_order_relaxed);
  };
  const auto finish = [&] {
    progress.leader = phase.leader.load(std::memory_order_relaxed);
    mark_wait(own.thread);
  };
  if (!is_shared) {
    share_prepared(phase, 0, own, prepare, [](std::size_t) {});
    return finish();
  }
  const Prepared& n = plan_.cpu_.nodes[static_cast<std::size_t>(stage.shared)];
  Sharing sharing(*this, &phase, own, n.record, prepare, progress.work);
  if (n.shared())
    n.work->share(*this, stage, n, own, sharing);
  else
    last_columns(n, own, sharing);
  finish();
}

void Run::catch_up(const Stage& stage, unsigned leader, const Own& own) const {
  Own other = own;
  other.copy = own_floats_ * leader * sizeof(float);
  for (const Stretch& s : stage.carried) std::memcpy(at(s.place, own), at(s.place, other), s.bytes);
}

}  // namespace llamay
