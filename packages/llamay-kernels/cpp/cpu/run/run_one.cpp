// A step of one row, the usual step of decoding. The results of whole-row steps are small and needed by every
// thread, and passing them from one core to another takes longer than computing them: so each thread computes
// its own copy, and threads meet once a stage.
#include <cstring>

#include "cpu/run/sharing.hpp"

namespace llamay {

void Run::one_row(const ThreadContext& thread) {
  Progress progress;
  for (std::size_t i = 0; i < n_stages_ && !left_.load(std::memory_order_relaxed); ++i)
    stage_of_one(i, scratch_.phases[kPhasesPerStage * i], thread, progress);
  scratch_.work[thread.index] = progress.work;
}

void Run::stage_of_one(std::size_t i, Phase& phase, const ThreadContext& thread, Progress& progress) {
  const Stage& stage = schedule_.stages[i];
  const bool has_rows = !stage.rows.empty() && rows(stage.selected),
             is_shared = stage.shared >= 0 && rows(stage.shared_selected);
  if (!has_rows && !is_shared) {
    if (progress.next == i) ++progress.next;
    return;
  }
  const auto prepare = [&] {
    if (progress.next != i) catch_up(stage, progress.leader, thread);
    if (!progress.ropes) fill_ropes(0, 1, thread);
    progress.ropes = true;
    if (has_rows) whole_rows(stage, 0, 1, thread);
    progress.next = i + 1;
    phase.leader.store(thread.index, std::memory_order_relaxed);
  };
  const auto finish = [&] {
    progress.leader = phase.leader.load(std::memory_order_relaxed);
    mark_wait(thread.index);
  };
  if (!is_shared) {
    share_prepared(phase, 0, thread, prepare, [](std::size_t) {});
    return finish();
  }
  const Prepared& n = plan_.cpu_.nodes[static_cast<std::size_t>(stage.shared)];
  Sharing sharing(*this, &phase, thread, n.record, prepare, progress.work);
  if (n.shared())
    n.work->share(*this, stage, n, thread, sharing);
  else
    last_columns(n, thread, sharing);
  finish();
}

void Run::catch_up(const Stage& stage, unsigned leader, const ThreadContext& thread) const {
  ThreadContext other = thread;
  other.copy = thread_floats_ * leader * sizeof(float);
  for (const ByteRange& s : stage.carried) std::memcpy(at(s.place, thread), at(s.place, other), s.bytes);
}

}  // namespace llamay
