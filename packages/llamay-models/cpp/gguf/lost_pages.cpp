#include "gguf/lost_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <mutex>

namespace llamay::gguf {

// The handler may run at any instruction of any thread, so it takes no lock: a slot's range is published by
// `begin`, written last and cleared first.
struct LostPages::Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> lost{false};
};

namespace {

using Slot = LostPages::Slot;

/// Slots, in a list that grows when all are taken and never shrinks.
struct Block {
  std::array<Slot, 64> slots;
  std::atomic<Block*> next{nullptr};
};

Block first;
const uintptr_t page = uintptr_t(::sysconf(_SC_PAGESIZE));

bool replace_by_zeros(uintptr_t address) {
  for (Block* block = &first; block; block = block->next.load(std::memory_order_acquire))
    for (Slot& slot : block->slots) {
      const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
      if (begin == 0 || address < begin || address >= slot.end.load(std::memory_order_relaxed)) continue;
      void* at = reinterpret_cast<void*>(address / page * page);
      if (::mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return false;
      slot.lost.store(true, std::memory_order_release);
      return true;
    }
  return false;
}

Slot* take(Block& block) {
  for (Slot& slot : block.slots) {
    bool taken = false;
    if (slot.taken.compare_exchange_strong(taken, true)) return &slot;
  }
  return nullptr;
}

Slot* take_any() {
  for (Block* block = &first;;) {
    if (Slot* slot = take(*block)) return slot;
    Block* next = block->next.load(std::memory_order_acquire);
    if (!next) {
      auto* more = new Block;
      if (block->next.compare_exchange_strong(next, more))
        next = more;
      else
        delete more;  // another thread was quicker, and `next` is its block
    }
    block = next;
  }
}

// The handlers that were in place before, the oldest first. Several, because the one that this library found
// at one time may itself go back to this library's, which it found earlier: such a signal goes to the handler
// before.
std::mutex installing;
std::array<struct sigaction, 8> others;
std::atomic<size_t> n_others{0};

void on_lost_page(int signal, siginfo_t* info, void*) {
  if (info->si_code == BUS_ADRERR && replace_by_zeros(reinterpret_cast<uintptr_t>(info->si_addr))) return;
  // The newest of the others takes over, until ensure() is called: the read is repeated when this returns,
  // and a signal that was sent is sent again.
  struct sigaction other{};
  other.sa_handler = SIG_DFL;
  size_t n = n_others.load();
  while (n > 0 && !n_others.compare_exchange_weak(n, n - 1)) {
  }
  if (n > 0) other = others[n - 1];
  ::sigaction(signal, &other, nullptr);
  if (info->si_code <= 0) ::raise(signal);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_lost_page;
}

bool same(const struct sigaction& a, const struct sigaction& b) {
  if ((a.sa_flags & SA_SIGINFO) != (b.sa_flags & SA_SIGINFO)) return false;
  return a.sa_flags & SA_SIGINFO ? a.sa_sigaction == b.sa_sigaction : a.sa_handler == b.sa_handler;
}

/// A handler that is known already is back in place: those that came after it are gone.
void remember(const struct sigaction& other) {
  size_t n = n_others.load();
  for (size_t i = 0; i < n; ++i)
    if (same(others[i], other)) n = i;
  if (n == others.size()) --n;
  others[n] = other;
  n_others.store(n + 1);
}

}  // namespace

void LostPages::ensure() {
  struct sigaction now{};
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now)) return;
  std::lock_guard lock(installing);
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now)) return;
  remember(now);
  struct sigaction ours{};
  ours.sa_sigaction = on_lost_page;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, nullptr);
}

LostPages::LostPages(std::span<const uint8_t> range) : slot_(take_any()) {
  ensure();
  slot_->lost.store(false);
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  slot_->end.store(begin + range.size(), std::memory_order_relaxed);
  slot_->begin.store(begin, std::memory_order_release);
}

LostPages::~LostPages() {
  slot_->begin.store(0, std::memory_order_release);
  slot_->taken.store(false);
}

bool LostPages::lost() const { return slot_->lost.load(std::memory_order_acquire); }

}  // namespace llamay::gguf
