#include "pages/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

namespace llamay::kv {

Reserved::Reserved(size_t bytes, const char* purpose) : bytes_(std::max<size_t>(bytes, 1)) {
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    throw std::runtime_error("cannot reserve " + std::to_string(bytes_) + " bytes of address space for " +
                             purpose + ": " + std::strerror(errno) +
                             "; lower the budget or raise the limit (ulimit -v)");
  data_ = static_cast<std::byte*>(p);
}

Reserved::~Reserved() { munmap(data_, bytes_); }

Arena::Arena(size_t bytes, std::shared_ptr<const Allocator> allocator)
    : bytes_(std::max<size_t>(bytes, 1)), allocator_(std::move(allocator)) {
  if (allocator_) {
    const llamay_allocator& a = allocator_->functions;
    void* p = a.allocate(a.user, bytes_);
    if (!p)
      throw std::runtime_error("the allocator has not " + std::to_string(bytes_) +
                               " bytes for pages; lower the budget");
    if (reinterpret_cast<uintptr_t>(p) % 64) {
      a.release(a.user, p, bytes_);
      throw std::invalid_argument("the allocator's memory is not aligned to 64 bytes");
    }
    data_ = static_cast<std::byte*>(p);
    return;
  }
  reserved_ = std::make_unique<Reserved>(bytes_, "pages");
  data_ = reserved_->data();
#ifdef MADV_HUGEPAGE
  madvise(data_, bytes_, MADV_HUGEPAGE);  // only advice: reads of 4 KiB pages are 15 to 35 % slower
#endif
}

Arena::~Arena() {
  if (allocator_) allocator_->functions.release(allocator_->functions.user, data_, bytes_);
}

void Arena::copy(size_t to, size_t from, size_t bytes, size_t rows, size_t stride) {
  if (allocator_ && allocator_->functions.copy) {
    const llamay_allocator& a = allocator_->functions;
    a.copy(a.user, data_ + to, data_ + from, bytes, rows, stride);
    return;
  }
  for (size_t row = 0; row < rows; ++row)
    std::memcpy(data_ + to + row * stride, data_ + from + row * stride, bytes);
}

void Arena::discard(size_t offset, size_t bytes) {
  if (allocator_) {
    const llamay_allocator& a = allocator_->functions;
    if (a.discard) a.discard(a.user, data_ + offset, bytes);
    return;
  }
  const size_t unit = size_t(sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + unit - 1) / unit * unit;
  const size_t end = (offset + bytes) / unit * unit;
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace llamay::kv
