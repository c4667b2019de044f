#pragma once

#include <atomic>
#include <chrono>
#include <span>

#include "cpu/plan.hpp"
#include "cpu/scratch.hpp"
#include "cpu/tables.hpp"

namespace llamay {

// Rows whose activations stay near while weights go by, and groups of weights that do while tiles of rows go
// by. With 64 and 16, both fit into a second-level cache of 1 MiB for widths up to about 5,000. Tiles of 128
// to 512 rows and chunks of 2 to 32 groups were as fast within what repetitions differ by; tiles of 32 rows a
// fifth slower.
constexpr std::size_t kRowTile = 64;
constexpr std::size_t kGroupChunk = 16;
/// Room for a tile of one product, for operations that combine two.
constexpr std::size_t kProductFloats = kRowTile * kGroupChunk * 16;
constexpr std::size_t kPhasesPerStage = 3;  // whole rows; what comes before the shared work; the shared work

/// What is one thread's own.
struct Own {
  unsigned thread;
  float* attention;  // scratch of attention
  float* product;    // room for a tile of one product
  std::byte* extra;  // what CpuWork::scratch asked for
  // Bytes from the first thread's copy of what whole-row steps make to this thread's; 0: all share one.
  std::size_t copy;
};

/// One run of a plan: made by the calling thread, which may fail, then executed by all threads, which may
/// not. Works ask it where values lie, and what the step has.
class Run {
 public:
  /// Throws std::invalid_argument, std::bad_alloc.
  Run(const Plan& plan, const Step& step, Scratch& scratch, Threads& threads, Profile* profile);
  /// The other threads begin. Each is followed by one join or leave.
  void post();
  bool try_post();  // false: it would have to wait for a job of another caller
  /// This one works too; returns when all is done.
  void join();
  /// In place of `join`: nobody wants the outputs any more. What was begun is finished, the rest is left.
  void leave();

  // What works ask.
  const Step& step() const { return step_; }
  Isa isa() const { return isa_; }
  const OpsTable& ops() const { return ops_; }
  const MatmulTable& matmul() const { return matmul_; }
  const AttentionTable& attention() const { return attention_; }
  std::size_t rows(bool selected) const { return selected ? step_.wanted : step_.rows; }
  std::size_t width(int v) const { return program_.widths[static_cast<std::size_t>(v)]; }
  bool selected(int v) const { return program_.selected[static_cast<std::size_t>(v)]; }
  float* value(int v, const Own& own) const;
  /// An input's row.
  const float* row(int v, std::size_t i, const Own& own) const { return value(v, own) + i * width(v); }
  std::byte* activation(int a, const Own& own) const;
  const Activation& activation(int a) const { return schedule_.activations[static_cast<std::size_t>(a)]; }
  /// The table of a rotation, of the first row.
  const float* ropes(std::size_t rope, const Own& own) const { return rope_tables(rope, own); }
  const Rope& rope(std::size_t rope) const { return plan_.cpu_.ropes[rope]; }
  /// The rows of each text.
  std::span<const AttentionWork::Lease> texts() const { return scratch_.leases; }
  /// The text of a row.
  const AttentionWork::Lease& text_of(std::size_t row) const;
  const MemoryNeeds& memory() const { return plan_.cpu_.memory; }
  AttentionWork& work(std::size_t shape) const { return scratch_.attention[shape]; }
  AttentionWork& whole_work(std::size_t shape) const { return scratch_.whole_attention[shape]; }
  const KvPages& whole_pages(std::size_t shape, std::size_t text) const {
    return scratch_.whole_pages[shape * scratch_.leases.size() + text];
  }
  const StatePages& states(std::size_t text, std::size_t state) const {
    return scratch_.states[text * plan_.cpu_.memory.states.size() + state];
  }
  float* partials() const { return partials_; }
  unsigned n_threads() const { return n_threads_; }
  /// Whether threads are about equally fast (cutting.hpp).
  bool shares() const { return shares_; }
  /// Whether this is a step of one row, in which each thread has copies of what whole-row steps make.
  bool copies() const { return copies_; }
  const Portions::Ends& ends() const { return ends_; }
  /// Whether nothing reads what the stage's shared work makes, but what it keeps.
  bool only_keeps(const Stage& stage) const {
    return step_.wanted == 0 && &stage == &schedule_.stages[n_stages_ - 1];
  }

 private:
  friend class Sharing;

  /// How far a thread has come that has its own copies.
  struct Progress {
    std::size_t next = 0;  // the first stage whose whole-row steps it has not done
    bool ropes = false;    // has filled its tables
    unsigned leader = 0;   // a thread that has done those of the stage before
    Portions::Work work;
  };

  // run.cpp: what one thread does before the others, and the loop of all.
  void bind_leases();
  void check_apart() const;
  void choose_threads();
  void plan_attention();
  void lay_out();
  void thread(unsigned t);
  static void body(void* self, unsigned t);
  /// Only steps of one row with an output are alike enough to be compared.
  bool learns_cutting() const { return n_threads_ == threads_.size() && step_.rows == 1 && step_.wanted; }
  std::byte* at(const Place& place, const Own& own) const;
  /// Runs piece(i) for each i < count, shared with the other threads; returns when all pieces are done.
  template <class F>
  void share(Phase& phase, std::size_t count, const Own& own, F piece);
  /// The same for `each` pieces of each of so many stretches of rows; piece(i) is of stretch i % stretches. A
  /// thread begins with the stretches that it has in all stages, the last of them first, so that what it
  /// reads is mostly what it wrote: cores may have no cache in common. Then it takes what others have left.
  template <class F>
  void share_rows(Phase& phase, std::size_t stretches, std::size_t each, const Own& own, F piece);
  /// Runs piece(k) for each k < count; each thread calls prepare() before its first. Piece k is kept for
  /// thread k % n_threads_; when a thread is through with its own, it takes what is left of the others'. A
  /// thread takes the first that is kept for it, or where there is none a place in line, before it prepares:
  /// while it does, nobody gets further than this stage, and what it reads stays. If another took that for
  /// it, the thread was late, and leaves this stage out.
  template <class P, class F>
  void share_prepared(Phase& phase, std::size_t count, const Own& own, P prepare, F piece);
  /// Waits until `count` pieces are done, so many of them by this thread.
  void meet(Phase& phase, std::size_t count, uint32_t done, const Own& own);

  // run_one.cpp: the loop of all where there is one row.
  void one_row(const Own& own);
  void stage_of_one(std::size_t i, Phase& phase, const Own& own, Progress& progress);
  /// Brings a thread's copies to where another's are, as stage i wants them.
  void catch_up(const Stage& stage, unsigned leader, const Own& own) const;

  // run_rows.cpp: what works on whole rows.
  float* rope_tables(std::size_t rope, const Own& own) const;
  void whole_rows(const Stage& stage, std::size_t from, std::size_t to, const Own& own);
  void fill_ropes(std::size_t from, std::size_t to, const Own& own) const;
  void quantize(int activation, std::size_t from, std::size_t to, const Own& own) const;
  /// The columns of an output that is split like a product.
  void last_columns(const Prepared& n, const Own& own, Sharing& sharing) const;

  /// What happened on the calling thread since the last mark belongs to `sum`.
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
  bool shares_ = true;     // cutting.hpp
  bool copies_ = false;    // run_one.cpp
  Portions::Ends ends_{};  // where copies_
  std::size_t n_stages_ = 0;
  std::byte* spaces_[kSpaces] = {};
  float* ropes_ = nullptr;      // of the first thread, where each has its own
  float* partials_ = nullptr;   // of split attentions
  Own first_{};                 // of thread 0
  std::size_t own_floats_ = 0;  // from one thread's to the next one's
  uint64_t waited_ns_ = 0;      // by thread 0
  std::chrono::steady_clock::time_point posted_{}, last_mark_{};
  std::atomic<bool> left_{false};
};

template <class F>
void Run::share(Phase& phase, std::size_t count, const Own& own, F piece) {
  if (n_threads_ == 1) {
    for (std::size_t i = 0; i < count; ++i) piece(i);
    return;
  }
  uint32_t done = 0;
  for (uint32_t i; (i = phase.next.fetch_add(1, std::memory_order_relaxed)) < count; ++done) piece(i);
  meet(phase, count, done, own);
}

template <class F>
void Run::share_rows(Phase& phase, std::size_t stretches, std::size_t each, const Own& own, F piece) {
  if (n_threads_ == 1 || n_threads_ > Phase::kHomes || stretches < n_threads_)
    return share(phase, stretches * each, own, piece);
  uint32_t done = 0;
  for (unsigned i = 0; i < n_threads_; ++i) {
    const unsigned t = (own.thread + i) % n_threads_;
    const std::size_t first = stretches * t / n_threads_, end = stretches * (t + 1) / n_threads_,
                      width = end - first;
    for (std::size_t k; (k = phase.taken[t].fetch_add(1, std::memory_order_relaxed)) < width * each; ++done)
      piece(k / width * stretches + end - 1 - k % width);
  }
  meet(phase, stretches * each, done, own);
}

template <class P, class F>
void Run::share_prepared(Phase& phase, std::size_t count, const Own& own, P prepare, F piece) {
  const auto kept = [&](unsigned t) {
    return t < count ? static_cast<uint32_t>((count - t + n_threads_ - 1) / n_threads_) : 1;
  };
  std::size_t all = 0;
  for (unsigned t = 0; t < n_threads_; ++t) all += kept(t);
  uint32_t done = 0, k = 0;
  if (phase.taken[own.thread].compare_exchange_strong(k, 1, std::memory_order_relaxed)) {
    prepare();
    for (unsigned i = 0; i < n_threads_; ++i) {
      const unsigned t = (own.thread + i) % n_threads_;
      const uint32_t of_t = kept(t);
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
  meet(phase, all, done, own);
}

inline void Run::meet(Phase& phase, std::size_t count, uint32_t done, const Own& own) {
  const auto n = static_cast<uint32_t>(count);
  if (done && phase.done.fetch_add(done) + done == n) {
    phase.done.notify_all();
    return;
  }
  uint64_t waited = 0;
  for (uint32_t is; (is = phase.done.load(std::memory_order_acquire)) != n;)
    waited += threads_.waiter().while_equal(phase.done, is);
  if (own.thread == 0) waited_ns_ += waited;
}

inline float* Run::value(int v, const Own& own) const {
  const Place& p = schedule_.places[static_cast<std::size_t>(v)];
  return p.space == Space::output ? step_.out : reinterpret_cast<float*>(at(p, own));
}

inline std::byte* Run::at(const Place& p, const Own& own) const {
  return spaces_[static_cast<std::size_t>(p.space)] + p.offset * rows(llamay::selected(p.space)) +
         (of_whole_rows(p.space) ? own.copy : 0);
}

inline std::byte* Run::activation(int a, const Own& own) const {
  const Activation& act = activation(a);
  return act.alias ? reinterpret_cast<std::byte*>(value(act.value, own)) : at(act.place, own);
}

}  // namespace llamay
