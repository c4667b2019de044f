#pragma once

#include <chrono>

#include "plan/plan.hpp"
#include "plan/scratch.hpp"
#include "plan/tables.hpp"

namespace llamay {

/// Room for a tile of one product, for operations that combine two.
constexpr std::size_t kProductFloats = 64 * 16 * 16;

/// One run of a plan: made by the calling thread, which may fail, then executed by all threads, which may not.
class Run {
 public:
  /// Throws std::invalid_argument, std::bad_alloc.
  Run(const Plan& plan, const Step& step, Scratch& scratch, Threads& threads, Profile* profile);
  void execute();

 private:
  /// Where one thread finds things. The spaces of whole rows may be its own.
  struct Bases {
    std::byte* space[kSpaces];
    float* ropes;
    float* attention;  // its scratch
    float* product;    // room for a tile of one product
  };
  /// A product cut into tiles of rows and chunks of groups.
  struct Cut {
    std::size_t row_tile, row_tiles, chunk, items;
  };

  // run.cpp: what one thread does before the others, and the loop of all.
  void choose_threads();
  void bind_leases();
  void check_apart() const;
  void lay_out();
  Bases bases(unsigned t) const;
  void thread(unsigned t);
  void meet(unsigned t);
  std::size_t rows(bool selected) const { return selected ? step_.wanted : step_.rows; }
  float* value(int v, const Bases& at) const;
  std::byte* activation(int a, const Bases& at) const;

  // run_rows.cpp: what works on whole rows.
  void fill_ropes(unsigned t, const Bases& at) const;
  void whole_rows(const Stage& stage, Counter& counter, unsigned t, const Bases& at);
  void row_step(const RowStep& step, bool selected, std::size_t from, std::size_t to, const Bases& at) const;
  void row_node(const Node& n, std::size_t from, std::size_t to, const Bases& at) const;

  // run_products.cpp: what all threads share.
  Cut cut(std::size_t rows, std::size_t groups) const;
  void linear(const Stage& stage, const Node& n, Counter& counter, const Bases& at) const;
  void glu(const Stage& stage, const Node& n, Counter& counter, const Bases& at) const;
  void columns(const Node& n, Counter& counter, const Bases& at) const;

  // run_attention.cpp
  void attention(const Node& n, Counter* counters, const Bases& at, bool only_write);
  void attention_item(const Node& n, const AttentionWork::Item& item, const KvPages& pages, AttentionWork& work,
                      const Bases& at, bool only_write) const;
  void write(const Node& n, const AttentionWork::Item& item, const KvPages& pages, const Bases& at) const;

  uint32_t take(Counter& counter) const {
    if (n_threads_ > 1) return counter.next.fetch_add(1, std::memory_order_relaxed);
    const uint32_t taken = counter.next.load(std::memory_order_relaxed);
    counter.next.store(taken + 1, std::memory_order_relaxed);
    return taken;
  }

  /// What happened on the calling thread since the last mark belongs to `sum`.
  void mark(unsigned t, uint64_t& sum) {
    if (!profile_ || t != 0) return;
    const auto now = std::chrono::steady_clock::now();
    sum += static_cast<uint64_t>(std::chrono::nanoseconds(now - last_mark_).count());
    last_mark_ = now;
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
  const OpsTable& ops_;
  const MatmulTable& matmul_;
  const AttentionTable& attention_;
  unsigned n_threads_ = 1;
  bool alone_ = false;  // every thread does the whole-row work for itself
  std::size_t n_stages_ = 0;
  Bases first_{};                  // of thread 0
  std::size_t thread_stride_ = 0;  // bytes from what is one thread's own to the next one's
  float* partials_ = nullptr;      // of split attentions
  std::chrono::steady_clock::time_point last_mark_{};
};

}  // namespace llamay
