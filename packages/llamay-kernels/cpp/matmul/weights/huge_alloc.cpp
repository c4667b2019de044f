#include "matmul/weights/huge_alloc.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <new>

namespace llamay {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = size_t{4} << 10;
/// Bytes of address space of a slab. Memory is committed as it is written, so weights lie side by side
/// without the gaps that slabs of a few huge pages each would leave at their ends: those gaps made models of
/// many middle-sized matrices a twentieth larger.
constexpr size_t kSlab = size_t{1} << 30;

struct Slab {
  size_t bytes, used;
  std::map<uintptr_t, size_t> live;  // start -> bytes
};

std::mutex mutex;
/// Slabs by their start. Weights of several models may share a slab.
std::map<uintptr_t, Slab>& slabs() {
  static auto* all = new std::map<uintptr_t, Slab>;  // outlives every weight
                                                     // that a global may hold
  return *all;
}
uintptr_t open_slab = 0;

constexpr size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/// Maps addresses from a 2 MiB boundary on; 0 on failure.
uintptr_t map_aligned(size_t bytes) {
  // Mapped longer, then trimmed to a 2 MiB boundary: only whole huge pages can be huge.
  void* raw = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return 0;
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = round_up(start, kHugePage);
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
  const size_t need = round_up(bytes, 64);
  const std::lock_guard lock(mutex);
  auto slab = slabs().find(open_slab);
  if (slab == slabs().end() || slab->second.bytes - slab->second.used < need) {
    size_t mapped = need > kSlab ? round_up(need, kHugePage) : kSlab;
    uintptr_t start = map_aligned(mapped);
    if (!start) {  // where address space is limited, no more than needed
      mapped = round_up(need, kHugePage);
      start = map_aligned(mapped);
    }
    if (!start) throw std::bad_alloc();
    try {
      slab = slabs().emplace(start, Slab{mapped, 0, {}}).first;
    } catch (...) {
      munmap(reinterpret_cast<void*>(start), mapped);
      throw;
    }
    open_slab = start;
  }
  const uintptr_t at = slab->first + slab->second.used;
  slab->second.live.emplace(at, need);
  slab->second.used += need;
  return reinterpret_cast<void*>(at);
}

void huge_free(void* at) noexcept {
  if (!at) return;
  const auto start = reinterpret_cast<uintptr_t>(at);
  const std::lock_guard lock(mutex);
  auto slab = slabs().upper_bound(start);
  --slab;
  const auto found = slab->second.live.find(start);
  const size_t bytes = found->second;
  slab->second.live.erase(found);
  if (slab->second.live.empty()) {
    munmap(reinterpret_cast<void*>(slab->first), slab->second.bytes);
    slabs().erase(slab);
    return;
  }
  // The memory is released now, the addresses once no allocation of the slab is left.
  const uintptr_t from = round_up(start, kPage), to = (start + bytes) / kPage * kPage;
  if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

}  // namespace llamay
