// libpyflame_compat.so, in wheels only: functions that the wheel's programs and libraries call and that glibc 2.28 and the C++ library of GCC 8 lack.
// older_glibc.py takes the versions from the wheel's references to them. On machines whose libraries have a function, the loader finds either
// that one or this one, which calls that one or does the same.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <ios>
#include <new>

#define COMPAT __attribute__((visibility("default")))

namespace {

// A function of the machine's C++ library, or null.
template <class F>
F of_library(const char* name) {
  void* library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return library ? reinterpret_cast<F>(dlsym(library, name)) : nullptr;
}

}  // namespace

extern "C" {

// glibc 2.33. The kernel's structure is the C library's.
COMPAT int stat(const char* path, struct stat* s) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, s, 0));
}
COMPAT int lstat(const char* path, struct stat* s) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, s, AT_SYMLINK_NOFOLLOW));
}
COMPAT int fstat(int file, struct stat* s) noexcept { return static_cast<int>(syscall(SYS_fstat, file, s)); }
// On 64-bit systems the two structures are one.
COMPAT int stat64(const char* path, struct stat64* s) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, s, 0));
}
COMPAT int lstat64(const char* path, struct stat64* s) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, s, AT_SYMLINK_NOFOLLOW));
}
COMPAT int fstat64(int file, struct stat64* s) noexcept { return static_cast<int>(syscall(SYS_fstat, file, s)); }

// glibc 2.36. std::random_device calls it.
COMPAT uint32_t arc4random() noexcept {
  uint32_t value;
  if (getentropy(&value, sizeof value) != 0) {
    std::abort();
  }
  return value;
}

// glibc 2.32: 0 says that there may be other threads.
COMPAT char __libc_single_threaded = 0;

// glibc 2.30. Older versions wait by the real-time clock alone: a wait by another clock is as long, unless someone sets the clock meanwhile.
COMPAT int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until) {
  if (clock == CLOCK_REALTIME) {
    return pthread_cond_timedwait(condition, mutex, until);
  }
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static const auto own = reinterpret_cast<Wait>(dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
  if (own) {
    return own(condition, mutex, clock, until);
  }
  constexpr long second = 1000000000;
  struct timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  real.tv_sec += until->tv_sec - now.tv_sec;
  real.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (real.tv_nsec < 0) {
    real.tv_nsec += second, --real.tv_sec;
  }
  if (real.tv_nsec >= second) {
    real.tv_nsec -= second, ++real.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &real);
}

// What follows is also found by the C++ library's own calls, where this library comes before it. So each function calls the library's own one if it is
// there, and otherwise older functions by their address in the library: other libraries have copies of these, which would call back.
using OfObject = void (*)(void*);
using OfStream = void (*)(void*, std::ios_base::openmode);
using OfCopy = void (*)(void*, const void*);

// GCC 9 made constructors without an argument. The older ones have the mode as an argument.
COMPAT void stringstream(void* self) asm("_ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1Ev");
COMPAT void ostringstream(void* self) asm("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void stringstream(void* self) {
  static const auto own = of_library<OfObject>("_ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1Ev");
  static const auto with_mode =
      of_library<OfStream>("_ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
  own ? own(self) : with_mode(self, std::ios_base::in | std::ios_base::out);
}
void ostringstream(void* self) {
  static const auto own = of_library<OfObject>("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
  static const auto with_mode =
      of_library<OfStream>("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1ESt13_Ios_Openmode");
  own ? own(self) : with_mode(self, std::ios_base::out);
}

// GCC 11 made these two public. A copy that is never destroyed adds a reference; a destructor takes one.
COMPAT void add_reference(void* self) asm("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
COMPAT void release(void* self) asm("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void add_reference(void* self) {
  static const auto own = of_library<OfObject>("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
  static const auto copy = of_library<OfCopy>("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
  void* another;
  own ? own(self) : copy(&another, self);
}
void release(void* self) {
  static const auto own = of_library<OfObject>("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
  static const auto destroy = of_library<OfObject>("_ZNSt15__exception_ptr13exception_ptrD1Ev");
  if (own) {
    return own(self);
  }
  destroy(self);
  *static_cast<void**>(self) = nullptr;
}
}

// GCC 12.
namespace std {
COMPAT void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std
