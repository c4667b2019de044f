// A step of one row, which most of decoding is. What its whole-row steps make is small and needed by every
// thread, and passing it from one core to another takes longer than computing it: so each thread has copies
// of its own, and threads meet once a stage.
#include <cstring>

#include "plan/run.hpp"

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
             is_shared = stage.heavy >= 0 && rows(stage.heavy_selected);
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
  const Node& n = program_.nodes[static_cast<std::size_t>(stage.heavy)];
  const auto share_pieces = [&](std::size_t count, auto piece) {
    share_prepared(phase, count, own, prepare, [&](std::size_t k) {
      piece(k);
      mark_record(own.thread, n.record);
    });
  };
  switch (n.kind) {
    case Node::Kind::attention: {
      const bool only_write = step_.wanted == 0 && i + 1 == n_stages_;
      share_pieces(scratch_.attention[n.shape].items.size(),
                   [&](std::size_t k) { attention(n, k, k + n_threads_, own, only_write); });
      break;
    }
    case Node::Kind::elementwise:
      share_pieces(column_items(n), [&](std::size_t k) { columns(n, k, own); });
      break;
    default: {
      const Cut c = cut(stage, n);
      share_pieces(c.items, [&](std::size_t k) {
        const auto start = std::chrono::steady_clock::now();
        n.kind == Node::Kind::glu ? glu(stage, n, c, k, own) : linear(stage, n, c, k, own);
        progress.work.ns +=
            static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count());
        progress.work.bytes += c.bytes(k);
      });
    }
  }
  finish();
}

void Run::catch_up(const Stage& stage, unsigned leader, const Own& own) const {
  Own other = own;
  other.copy = own_floats_ * leader * sizeof(float);
  for (const Stretch& s : stage.carried) std::memcpy(at(s.place, own), at(s.place, other), s.bytes);
}

}  // namespace llamay
