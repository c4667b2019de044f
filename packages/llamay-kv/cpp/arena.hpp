#pragma once
#include <cstddef>

namespace llamay::kv {

/// Address space for every page the pool may ever hold. It never moves, so a page's address outlives any
/// growth; memory is taken only where it is touched.
class Arena {
 public:
  explicit Arena(size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  /// Give the memory behind whole system pages inside [offset, offset + bytes) back. They read as zeros
  /// afterwards.
  void discard(size_t offset, size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

}  // namespace llamay::kv
