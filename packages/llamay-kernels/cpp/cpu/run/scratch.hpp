#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "cpu/partition/attention_work.hpp"
#include "cpu/partition/speed_shares.hpp"
#include "cpu/prepare/leases.hpp"

namespace llamay {

/// A 64-byte aligned buffer that only grows. Its contents are lost when it grows.
class ScratchBuffer {
 public:
  void* at_least(std::size_t bytes) {
    if (bytes > size_) {
      data_.reset();
      size_ = 0;
      data_.reset(::operator new(bytes, std::align_val_t{64}));
      size_ = bytes;
    }
    return data_.get();
  }

 private:
  struct Delete {
    void operator()(void* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  std::unique_ptr<void, Delete> data_;
  std::size_t size_ = 0;
};

/// Pieces of work that several threads take. A phase is over when all its pieces are done: a thread that came
/// late or lost its processor is waited for only if it holds a piece.
struct alignas(64) Phase {
  static constexpr unsigned kMaxThreads = 13;  // as many counters as fit into a cache line

  std::atomic<uint32_t> next{0};
  std::atomic<uint32_t> done{0};
  std::atomic<uint32_t> leader{0};  // a thread that was not late, for threads that have to catch up
  std::atomic<uint32_t> taken[kMaxThreads] = {};  // pieces that were taken of those reserved for each thread

  void reset() {
    next.store(0, std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    for (auto& n : taken) n.store(0, std::memory_order_relaxed);
  }
};
static_assert(sizeof(Phase) == 64 && Phase::kMaxThreads == SpeedShares::kMaxThreads);

/// The working memory of one run. Runs borrow it from their plan, so that in steady state nothing is
/// allocated.
class Scratch {
 public:
  ScratchBuffer memory;
  std::vector<KvPages> pages;      // for each lease and attention
  std::vector<StatePages> states;  // for each lease and state
  std::vector<AttentionWork::Lease> leases;
  std::vector<std::pair<const uint8_t*, uint32_t>> targets;
  std::vector<AttentionWork> attention;        // for each shape
  std::vector<AttentionWork> whole_attention;  // for each shape of attention over whole texts
  std::vector<KvPages> whole_pages;            // for each such shape and text
  std::unique_ptr<Phase[]> phases;
  std::size_t n_phases = 0;
  std::array<SpeedShares::Work, SpeedShares::kMaxThreads> work;  // of each thread in this run

  /// Allocates the keys and values of attention over whole texts, which live as long as one layer takes.
  void plan_whole(std::span<const AttentionShape> shapes);

 private:
  ScratchBuffer whole_;
  std::vector<int32_t> numbers_;
  const int32_t* block_ = nullptr;
};

}  // namespace llamay
