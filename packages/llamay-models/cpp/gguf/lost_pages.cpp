#include "gguf/lost_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <mutex>

namespace llamay::gguf {
namespace {

// The handler may run at any instruction of any thread, so it takes no lock: a slot's range is published by
// `begin`, written last and cleared first.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> lost{false};
};

constexpr size_t kSlots = 4096;
std::array<Slot, kSlots> slots;
std::atomic<size_t> used{0};  // slots beyond were never taken
const uintptr_t page = uintptr_t(::sysconf(_SC_PAGESIZE));

std::mutex installing;
struct sigaction previous;
thread_local bool passing_on = false;

bool replace_by_zeros(uintptr_t address) {
  const size_t n = used.load(std::memory_order_acquire);
  for (size_t i = 0; i < n; ++i) {
    Slot& slot = slots[i];
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

void pass_on(int signal, siginfo_t* info, void* context) {
  const bool again = passing_on;  // the other handler has sent the signal back here
  passing_on = true;
  if (!again && (previous.sa_flags & SA_SIGINFO)) {
    previous.sa_sigaction(signal, info, context);
  } else if (!again && previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // The read is repeated when this returns, and a signal that was sent is sent again.
    std::signal(signal, SIG_DFL);
    if (info->si_code <= 0) std::raise(signal);
  }
  passing_on = false;
}

void on_lost_page(int signal, siginfo_t* info, void* context) {
  if (info->si_code == BUS_ADRERR && replace_by_zeros(reinterpret_cast<uintptr_t>(info->si_addr))) return;
  pass_on(signal, info, context);
}

/// Install the handler, also where another one has taken its place since.
void install() {
  std::lock_guard lock(installing);
  struct sigaction now{};
  if (::sigaction(SIGBUS, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_lost_page) return;
  previous = now;
  struct sigaction ours{};
  ours.sa_sigaction = on_lost_page;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, nullptr);
}

}  // namespace

LostPages::LostPages(std::span<const uint8_t> range) : slot_(kSlots) {
  install();
  for (size_t i = 0; i < kSlots; ++i) {
    bool taken = false;
    if (!slots[i].taken.compare_exchange_strong(taken, true)) continue;
    slot_ = i;
    slots[i].lost.store(false);
    const auto begin = reinterpret_cast<uintptr_t>(range.data());
    slots[i].end.store(begin + range.size(), std::memory_order_relaxed);
    slots[i].begin.store(begin, std::memory_order_release);
    size_t n = used.load();
    while (n < i + 1 && !used.compare_exchange_weak(n, i + 1)) {
    }
    return;
  }
}

LostPages::~LostPages() {
  if (slot_ == kSlots) return;
  slots[slot_].begin.store(0, std::memory_order_release);
  slots[slot_].taken.store(false);
}

bool LostPages::lost() const { return slot_ != kSlots && slots[slot_].lost.load(std::memory_order_acquire); }

}  // namespace llamay::gguf
