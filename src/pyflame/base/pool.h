// Memory for the small objects that are made and freed with every recorded op: tensors, storages, nodes of the tape and their
// contents. Each thread keeps the blocks that it frees, by size. (The C library keeps only seven blocks per size, but a
// training step frees dozens at its end.) Under a sanitizer nothing is kept, so that the sanitizer sees every use after free.
#pragma once
#include <cstddef>
#include <new>

namespace pyflame::pool {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeeps = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif
#else
constexpr bool kKeeps = true;
#endif

constexpr size_t kUnit = 32, kLargest = 1024;  // bytes
constexpr unsigned kMost = 512;                // blocks that a thread keeps per size

struct Block {
  Block* next;
};
struct Lists {
  struct List {
    Block* first;
    unsigned count;
  };
  List all[kLargest / kUnit];
  bool closing;  // the thread is ending
};

extern thread_local constinit Lists t_lists;
void first_of_thread();  // makes sure that a thread's blocks are freed when it ends

inline Lists::List& list_of(size_t bytes) { return t_lists.all[(bytes - 1) / kUnit]; }

inline void* take(size_t bytes) {
  if (!kKeeps || bytes > kLargest || bytes == 0) return ::operator new(bytes);
  Lists::List& list = list_of(bytes);
  if (Block* b = list.first) [[likely]] {
    list.first = b->next;
    --list.count;
    return b;
  }
  return ::operator new((bytes + kUnit - 1) / kUnit * kUnit);
}

// `bytes` is the requested size. A block may be freed by another thread than the one that allocated it.
inline void give(void* p, size_t bytes) noexcept {
  if (!p) return;
  if (!kKeeps || bytes > kLargest || bytes == 0) return ::operator delete(p);
  Lists::List& list = list_of(bytes);
  if (list.count >= kMost || t_lists.closing) return ::operator delete(p);
  if (list.count == 0) first_of_thread();
  list.first = new (p) Block{list.first};
  ++list.count;
}

}  // namespace pyflame::pool

namespace pyflame {

// An allocator for containers of the standard library.
template <class T>
struct Pooled {
  using value_type = T;
  Pooled() = default;
  template <class U>
  Pooled(const Pooled<U>&) {}
  // T may be a pointer to a class. NOLINTBEGIN(bugprone-sizeof-expression)
  T* allocate(size_t n) { return static_cast<T*>(pool::take(n * sizeof(T))); }
  void deallocate(T* p, size_t n) noexcept { pool::give(p, n * sizeof(T)); }
  // NOLINTEND(bugprone-sizeof-expression)
  bool operator==(const Pooled&) const { return true; }
};

}  // namespace pyflame
