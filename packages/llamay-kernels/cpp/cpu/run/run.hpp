#pragma once

#include <atomic>
#include <chrono>
#include <span>

#include "cpu/prepare/tables.hpp"
#include "cpu/run/plan.hpp"
#include "cpu/run/scratch.hpp"

namespace llamay {

// kRowTile: rows whose activations stay in the cache while weights stream by. kGroupChunk: groups of weights
// that stay there while tiles of rows pass. With 64 and 16, both fit into a second-level cache of 1 MiB for
// widths up to about 5,000. Tiles of 128 to 512 rows and chunks of 2 to 32 groups were as fast within what
// repetitions differ by; tiles of 32 rows a fifth slower.
constexpr std::size_t kRowTile = 64;
constexpr std::size_t kGroupChunk = 16;
/// Floats of a tile of one product, for operations that combine two products.
constexpr std::size_t kProductFloats = kRowTile * kGroupChunk * 16;
constexpr std::size_t kPhasesPerStage = 3;  // whole-row steps; work before the shared work; the shared work

/// One thread of a run: its index and its scratch memory.
struct ThreadContext {
  unsigned index;
  float* attention;  // scratch of attention
  float* product;    // a tile of one product
  std::byte* extra;  // the bytes that CpuWork::scratch asked for
  // Bytes from the first thread's copy of the results of whole-row steps to this thread's copy; 0: all
  // threads share one.
  std::size_t copy;
};

/// One run of a plan. The calling thread constructs it, which may fail; then all threads execute it, which
/// cannot fail. The functions of CpuWork ask it for the location of values and for the step.
class Run {
 public:
  /// Throws std::invalid_argument, std::bad_alloc.
  Run(const Plan& plan, const Step& step, Scratch& scratch, Threads& threads, Profile* profile);
  /// Lets the other threads begin. Each post must be followed by one join or leave.
  void post();
  bool try_post();  // false, and nothing posted, where it would have to wait for another caller's job
  /// The calling thread works too; returns when all work is done.
  void join();
  /// In place of `join`, where the outputs are not wanted any more: stages that threads have begun are
  /// finished, the rest is abandoned.
  void leave();

  // Queries of the functions of CpuWork.
  const Step& step() const { return step_; }
  Isa isa() const { return isa_; }
  const OpsTable& ops() const { return ops_; }
  const MatmulTable& matmul() const { return matmul_; }
  const AttentionTable& attention() const { return attention_; }
  std::size_t rows(bool selected) const { return selected ? step_.wanted : step_.rows; }
  std::size_t width(int v) const { return program_.widths[static_cast<std::size_t>(v)]; }
  bool selected(int v) const { return program_.selected[static_cast<std::size_t>(v)]; }
  float* value(int v, const ThreadContext& thread) const;
  /// Row i of an input.
  const float* row(int v, std::size_t i, const ThreadContext& thread) const {
    return value(v, thread) + i * width(v);
  }
  std::byte* activation(int a, const ThreadContext& thread) const;
  const Activation& activation(int a) const { return schedule_.activations[static_cast<std::size_t>(a)]; }
  /// The table of a rotation for the first row.
  const float* ropes(std::size_t rope, const ThreadContext& thread) const {
    return rope_tables(rope, thread);
  }
  const Rope& rope(std::size_t rope) const { return plan_.cpu_.ropes[rope]; }
  /// The rows of each text.
  std::span<const AttentionWork::Lease> texts() const { return scratch_.leases; }
  /// The text of a row.
  const AttentionWork::Lease& text_of(std::size_t row) const;
  const LeaseNeeds& lease_needs() const { return plan_.cpu_.lease_needs; }
  AttentionWork& work(std::size_t shape) const { return scratch_.attention[shape]; }
  AttentionWork& whole_work(std::size_t shape) const { return scratch_.whole_attention[shape]; }
  const KvPages& whole_pages(std::size_t shape, std::size_t text) const {
    return scratch_.whole_pages[shape * scratch_.leases.size() + text];
  }
  const StatePages& states(std::size_t text, std::size_t state) const {
    return scratch_.states[text * plan_.cpu_.lease_needs.states.size() + state];
  }
  float* partials() const { return partials_; }
  unsigned n_threads() const { return n_threads_; }
  /// Whether products are split into even shares, since threads are about equally fast (split_choice.hpp).
  bool even_shares() const { return even_shares_; }
  /// Whether this is a step of one row, in which each thread has its own copy of the results of whole-row
  /// steps.
  bool copies() const { return copies_; }
  const SpeedShares::Ends& ends() const { return ends_; }
  /// Whether the stage's shared work is needed for the keys, values or states that it writes only.
  bool only_keeps(const Stage& stage) const {
    return step_.wanted == 0 && &stage == &schedule_.stages[n_stages_ - 1];
  }

 private:
  friend class Sharing;

  /// The progress of one thread in a step of one row.
  struct Progress {
    std::size_t next = 0;  // the first stage whose whole-row steps the thread has not done
    bool ropes = false;    // whether the thread has filled its tables of rotations
    unsigned leader = 0;   // a thread that has done the whole-row steps of the stage before
    SpeedShares::Work work;
  };

  // run.cpp: the preparations of the calling thread, and the loop of every thread.
  void bind_leases();
  void check_apart() const;
  void choose_threads();
  void plan_attention();
  void lay_out();
  void run_thread(unsigned t);
  static void body(void* self, unsigned t);
  /// Only steps of one row with an output are alike enough to be compared.
  bool learns_split() const { return n_threads_ == threads_.size() && step_.rows == 1 && step_.wanted; }
  std::byte* at(const Place& place, const ThreadContext& thread) const;
  /// Runs piece(i) for each i < count, shared with the other threads; returns when all pieces are done.
  template <class F>
  void share(Phase& phase, std::size_t count, const ThreadContext& thread, F piece);
  /// Like `share`, for `each` pieces of each of `stretches` stretches of rows; piece(i) belongs to stretch i
  /// % stretches. A thread begins with the stretches that it has in all stages, the last of them first, so
  /// that it mostly reads data that it wrote itself: cores may have no cache in common. Then it takes pieces
  /// that other threads have left.
  template <class F>
  void share_rows(Phase& phase, std::size_t stretches, std::size_t each, const ThreadContext& thread,
                  F piece);
  /// Runs piece(k) for each k < count; each thread calls prepare() before its first piece. Piece k is
  /// reserved for thread k % n_threads_; a thread that has finished its own pieces takes unclaimed ones of
  /// the other threads. A thread claims the first piece that is reserved for it, or a place in line where
  /// there is none, before it prepares: until that piece is done no thread gets further than this stage, so
  /// the data that prepare() reads stay valid. If another thread has claimed that piece already, the thread
  /// came late and skips this stage.
  template <class P, class F>
  void share_prepared(Phase& phase, std::size_t count, const ThreadContext& thread, P prepare, F piece);
  /// Waits until `count` pieces are done, `done` of them by this thread.
  void meet(Phase& phase, std::size_t count, uint32_t done, const ThreadContext& thread);

  // run_one.cpp: the loop of every thread in a step of one row.
  void one_row(const ThreadContext& thread);
  void stage_of_one(std::size_t i, Phase& phase, const ThreadContext& thread, Progress& progress);
  /// Copies the results of whole-row steps that a stage reads from the leader's copy to this thread's.
  void catch_up(const Stage& stage, unsigned leader, const ThreadContext& thread) const;

  // run_rows.cpp: whole-row steps.
  float* rope_tables(std::size_t rope, const ThreadContext& thread) const;
  void whole_rows(const Stage& stage, std::size_t from, std::size_t to, const ThreadContext& thread);
  void fill_ropes(std::size_t from, std::size_t to, const ThreadContext& thread) const;
  void quantize(int activation, std::size_t from, std::size_t to, const ThreadContext& thread) const;
  /// Computes the last node of a plan where it is split by columns like a product.
  void last_columns(const Prepared& n, const ThreadContext& thread, Sharing& sharing) const;

  /// Adds the time of the calling thread since the last mark to `sum`.
  void mark(unsigned t, uint64_t& sum) {
    if (!profile_ || t != 0) return;
    const auto now = std::chrono::steady_clock::now();
    sum += static_cast<uint64_t>(std::chrono::nanoseconds(now - last_mark_).count());
    last_mark_ = now;
  }
  void mark_wait(unsigned t) {
    if (profile_) mark(t, profile_->wait_ns);
  }
  void mark_record(unsigned t, int record) {
    if (profile_) mark(t, profile_->record_ns[static_cast<std::size_t>(record)]);
  }

  const Plan& plan_;
  const Program& program_;
  const Schedule& schedule_;
  const Step& step_;
  Scratch& scratch_;
  Threads& threads_;
  Profile* profile_;
  const Isa isa_;
  const OpsTable& ops_;
  const MatmulTable& matmul_;
  const AttentionTable& attention_;
  uint64_t work_ = 0;  // multiplications
  unsigned n_threads_ = 1;
  bool even_shares_ = true;   // split_choice.hpp
  bool copies_ = false;       // run_one.cpp
  SpeedShares::Ends ends_{};  // used where copies_
  std::size_t n_stages_ = 0;
  std::byte* spaces_[kSpaces] = {};
  float* ropes_ = nullptr;         // the first thread's, where each thread has its own
  float* partials_ = nullptr;      // partial results of split attentions
  ThreadContext first_{};          // of thread 0
  std::size_t thread_floats_ = 0;  // from one thread's memory to the next one's
  uint64_t waited_ns_ = 0;         // time that thread 0 waited for the others
  std::chrono::steady_clock::time_point posted_{}, last_mark_{};
  std::atomic<bool> left_{false};
};

template <class F>
void Run::share(Phase& phase, std::size_t count, const ThreadContext& thread, F piece) {
  if (n_threads_ == 1) {
    for (std::size_t i = 0; i < count; ++i) piece(i);
    return;
  }
  uint32_t done = 0;
  for (uint32_t i; (i = phase.next.fetch_add(1, std::memory_order_relaxed)) < count; ++done) piece(i);
  meet(phase, count, done, thread);
}

template <class F>
void Run::share_rows(Phase& phase, std::size_t stretches, std::size_t each, const ThreadContext& thread,
                     F piece) {
  if (n_threads_ == 1 || n_threads_ > Phase::kMaxThreads || stretches < n_threads_)
    return share(phase, stretches * each, thread, piece);
  uint32_t done = 0;
  for (unsigned i = 0; i < n_threads_; ++i) {
    const unsigned t = (thread.index + i) % n_threads_;
    const std::size_t first = stretches * t / n_threads_, end = stretches * (t + 1) / n_threads_,
                      width = end - first;
    for (std::size_t k; (k = phase.taken[t].fetch_add(1, std::memory_order_relaxed)) < width * each; ++done)
      piece(k / width * stretches + end - 1 - k % width);
  }
  meet(phase, stretches * each, done, thread);
}

template <class P, class F>
void Run::share_prepared(Phase& phase, std::size_t count, const ThreadContext& thread, P prepare, F piece) {
  const auto reserved = [&](unsigned t) {
    return t < count ? static_cast<uint32_t>((count - t + n_threads_ - 1) / n_threads_) : 1;
  };
  std::size_t all = 0;
  for (unsigned t = 0; t < n_threads_; ++t) all += reserved(t);
  uint32_t done = 0, k = 0;
  if (phase.taken[thread.index].compare_exchange_strong(k, 1, std::memory_order_relaxed)) {
    prepare();
    for (unsigned i = 0; i < n_threads_; ++i) {
      const unsigned t = (thread.index + i) % n_threads_;
      const uint32_t of_t = reserved(t);
      std::atomic<uint32_t>& taken = phase.taken[t];
      if (i)
        k = taken.load(std::memory_order_relaxed) < of_t ? taken.fetch_add(1, std::memory_order_relaxed)
                                                         : of_t;
      while (k < of_t) {
        if (const std::size_t number = std::size_t{k} * n_threads_ + t; number < count) piece(number);
        ++done;
        k = k + 1 < of_t ? taken.fetch_add(1, std::memory_order_relaxed) : of_t;
      }
    }
  }
  meet(phase, all, done, thread);
}

inline void Run::meet(Phase& phase, std::size_t count, uint32_t done, const ThreadContext& thread) {
  const auto n = static_cast<uint32_t>(count);
  if (done && phase.done.fetch_add(done) + done == n) {
    phase.done.notify_all();
    return;
  }
  uint64_t waited = 0;
  for (uint32_t is; (is = phase.done.load(std::memory_order_acquire)) != n;)
    waited += threads_.waiter().while_equal(phase.done, is);
  if (thread.index == 0) waited_ns_ += waited;
}

inline float* Run::value(int v, const ThreadContext& thread) const {
  const Place& p = schedule_.places[static_cast<std::size_t>(v)];
  return p.space == Space::output ? step_.out : reinterpret_cast<float*>(at(p, thread));
}

inline std::byte* Run::at(const Place& p, const ThreadContext& thread) const {
  return spaces_[static_cast<std::size_t>(p.space)] + p.offset * rows(llamay::selected(p.space)) +
         (of_whole_rows(p.space) ? thread.copy : 0);
}

inline std::byte* Run::activation(int a, const ThreadContext& thread) const {
  const Activation& act = activation(a);
  return act.alias ? reinterpret_cast<std::byte*>(value(act.value, thread)) : at(act.place, thread);
}

}  // namespace llamay
