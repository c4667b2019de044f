#pragma once
#include <llamay/allocator.h>

#include <cstddef>
#include <memory>
#include <type_traits>

namespace llamay::kv {

/// An allocator that was handed in, with the object that keeps it alive.
struct Allocator {
  llamay_allocator functions;
  std::shared_ptr<void> owner;
};

/// Bytes of address space, all zero. They never move, and take memory only where they are touched. Throws
/// std::runtime_error, naming what they are for, if there is not so much of it.
class Reserved {
 public:
  Reserved(size_t bytes, const char* purpose);
  ~Reserved();
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

/// An element for every page that there may ever be, zero at first: such as a count of holders. Elements of
/// pages that were never taken cost nothing.
template <class T>
class PerPage {
 public:
  explicit PerPage(size_t pages) : memory_(pages * sizeof(T), "the table of pages") {
    static_assert(std::is_trivially_destructible_v<T> && std::is_standard_layout_v<T>);
  }
  T& operator[](size_t page) const { return reinterpret_cast<T*>(memory_.data())[page]; }

 private:
  Reserved memory_;
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
  std::unique_ptr<Reserved> reserved_;  // unless there is an allocator
  std::shared_ptr<const Allocator> allocator_;
};

}  // namespace llamay::kv
