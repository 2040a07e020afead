// Intrusive reference counting: one allocation per object, a handle of one pointer, and a count that the recorder can
// read (a storage whose only owner is the window is dead at the cut).
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

#include "pyflame/base/pool.h"

namespace pyflame {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;
  static void* operator new(size_t bytes) { return pool::take(bytes); }
  static void operator delete(void* p, size_t bytes) noexcept { pool::give(p, bytes); }

  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  // Replaces the first retain() without an atomic operation, which would be slow: no other thread has the object yet.
  void retain_new() const { count_.store(1, std::memory_order_relaxed); }
  void release() const {
    // A sole owner needs no atomic operation.
    if (count_.load(std::memory_order_acquire) == 1 || count_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  uint32_t use_count() const { return count_.load(std::memory_order_acquire); }

 private:
  mutable std::atomic<uint32_t> count_{0};
};

template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* p) : p_(p) {
    if (p_) p_->retain();
  }
  Ref(const Ref& o) : Ref(o.p_) {}
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  template <class U>
  Ref(const Ref<U>& o) : Ref(static_cast<T*>(o.get())) {}
  template <class U>
  Ref(Ref<U>&& o) noexcept : p_(o.leak()) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() {
    if (p_) p_->release();
  }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const Ref& o) const { return p_ == o.p_; }
  void reset() { *this = Ref(); }
  static Ref of_new(T* p) {
    p->retain_new();
    Ref r;
    r.p_ = p;
    return r;
  }
  T* leak() { return std::exchange(p_, nullptr); }  // gives up ownership without releasing

 private:
  T* p_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>::of_new(new T(std::forward<Args>(args)...));
}

}  // namespace pyflame
