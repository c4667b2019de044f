#include "huge_alloc.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <new>

namespace llamay {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSlab = size_t{16} << 20;

struct Slab {
  size_t bytes, used, live;
};

std::mutex mutex;
/// By start. A few slabs a model: small weights share one, a large one has its own.
std::map<uintptr_t, Slab>& slabs() {
  static auto* all = new std::map<uintptr_t, Slab>;  // outlives every weight
                                                     // that a global may hold
  return *all;
}
uintptr_t open_slab = 0;

uintptr_t map_aligned(size_t bytes) {
  // Mapped longer, then trimmed to a 2 MiB boundary: only whole huge pages can be huge.
  void* raw = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t end = start + bytes + kHugePage;
  if (end > aligned + bytes) munmap(reinterpret_cast<void*>(aligned + bytes), end - aligned - bytes);
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);
#endif
  return aligned;
}

}  // namespace

void* huge_alloc(size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const size_t need = (bytes + 63) / 64 * 64;
  const std::lock_guard lock(mutex);
  auto slab = slabs().find(open_slab);
  if (slab == slabs().end() || slab->second.bytes - slab->second.used < need) {
    const size_t mapped = need > kSlab / 2 ? (need + kHugePage - 1) / kHugePage * kHugePage : kSlab;
    const uintptr_t start = map_aligned(mapped);
    try {
      slab = slabs().emplace(start, Slab{mapped, 0, 0}).first;
    } catch (...) {
      munmap(reinterpret_cast<void*>(start), mapped);
      throw;
    }
    // A slab that was opened for something large still takes small ones if more room is left there.
    const auto open = slabs().find(open_slab);
    if (open == slabs().end() || mapped - need > open->second.bytes - open->second.used) open_slab = start;
  }
  void* at = reinterpret_cast<void*>(slab->first + slab->second.used);
  slab->second.used += need;
  ++slab->second.live;
  return at;
}

void huge_free(void* at) noexcept {
  if (!at) return;
  const std::lock_guard lock(mutex);
  auto slab = slabs().upper_bound(reinterpret_cast<uintptr_t>(at));
  --slab;
  if (--slab->second.live) return;
  munmap(reinterpret_cast<void*>(slab->first), slab->second.bytes);
  slabs().erase(slab);
}

}  // namespace llamay
