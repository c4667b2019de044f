#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace llamay::kv {

/// A count of holders inside the object. Unlike std::shared_ptr's use_count, unique() is safe to act on: it
/// synchronises with every holder that has gone.
struct Counted {
  mutable std::atomic<uint32_t> holders{1};
  bool unique() const { return holders.load(std::memory_order_acquire) == 1; }
};

/// Holds one count of a Counted.
template <class T>
class Ref {
 public:
  Ref() = default;
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }
  Ref(const Ref& o) : p_(o.p_) {
    if (p_) p_->holders.fetch_add(1, std::memory_order_relaxed);
  }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_ && p_->holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete p_;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  T* p_ = nullptr;
};

}  // namespace llamay::kv
