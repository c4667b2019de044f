#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "cpu/attention_work.hpp"
#include "cpu/memory.hpp"
#include "cpu/portions.hpp"

namespace llamay {

/// Memory that only grows, 64-byte aligned. What it held is lost when it grows.
class Block {
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

/// Pieces of work that several threads take. It is over when all pieces are done, whoever did them: a thread
/// that was late or lost its processor is waited for only if it holds a piece.
struct alignas(64) Phase {
  static constexpr unsigned kHomes = 13;  // what fits a line

  std::atomic<uint32_t> next{0};
  std::atomic<uint32_t> done{0};
  std::atomic<uint32_t> leader{0};           // a thread that was not late, where each has its own copies
  std::atomic<uint32_t> taken[kHomes] = {};  // of each thread's own, where threads have their own

  void reset() {
    next.store(0, std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    for (auto& n : taken) n.store(0, std::memory_order_relaxed);
  }
};
static_assert(sizeof(Phase) == 64 && Phase::kHomes == Portions::kThreads);

/// What one run works in. Runs borrow it from their plan, so that in steady state nothing is allocated.
class Scratch {
 public:
  Block memory;
  std::vector<KvPages> pages;      // of each lease, of each attention
  std::vector<StatePages> states;  // of each lease, of each state
  std::vector<AttentionWork::Lease> leases;
  std::vector<std::pair<const uint8_t*, uint32_t>> targets;
  std::vector<AttentionWork> attention;        // of each shape
  std::vector<AttentionWork> whole_attention;  // of each shape of attention over whole texts
  std::vector<KvPages> whole_pages;            // of each such shape, of each text
  std::unique_ptr<Phase[]> phases;
  std::size_t n_phases = 0;
  std::array<Portions::Work, Portions::kThreads> work;  // of each thread

  /// Gives keys and values of texts that are not kept a place for as long as one layer takes.
  void plan_whole(std::span<const AttentionShape> shapes);

 private:
  Block whole_;
  std::vector<int32_t> numbers_;
  const int32_t* block_ = nullptr;
};

}  // namespace llamay
