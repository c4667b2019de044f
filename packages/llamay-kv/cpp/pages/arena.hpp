#pragma once
#include <llamay/allocator.h>

#include <cstddef>
#include <memory>

namespace llamay::kv {

/// An allocator that was handed in, with the object that keeps it alive.
struct Allocator {
  llamay_allocator functions;
  std::shared_ptr<void> owner;
};

/// Address space for every page the pool may ever hold. It never moves, so a page's address outlives any
/// growth; memory is taken only where it is touched, unless an allocator takes it otherwise.
class Arena {
 public:
  explicit Arena(size_t bytes, std::shared_ptr<const Allocator> allocator = nullptr);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  /// Give the memory behind whole system pages inside [offset, offset + bytes) back. What they hold
  /// afterwards is not specified.
  void discard(size_t offset, size_t bytes);

  /// Copy `rows` pieces of `bytes` bytes, `stride` apart, between two places of the arena that do not
  /// overlap.
  void copy(size_t to, size_t from, size_t bytes, size_t rows, size_t stride);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
  std::shared_ptr<const Allocator> allocator_;
};

}  // namespace llamay::kv
