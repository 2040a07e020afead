// One error type for the whole core. Every message reads "op: what happened; got …; expected …; hint".
// The kind decides which Python exception it becomes; no other exception type crosses the API.
#pragma once
#include <fmt/format.h>

#include <exception>
#include <string>

namespace pyflame {

// The kinds of errors: Value is Python's ValueError, OutOfMemory and Device are PyFlame's own.
enum class ErrorKind { Value, Type, Index, Key, Runtime, NotImplemented, OutOfMemory, OS, Device };

// The exception that every function of the library raises.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
  std::string message_;
};

// Raises an Error.
[[noreturn]] void fail(ErrorKind kind, std::string message);

}  // namespace pyflame

// PF_CHECK(x > 0, Value, "op: x is not positive; got {}; expected > 0", x);
#define PF_CHECK(condition, kind, ...)                                         \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::pyflame::fail(::pyflame::ErrorKind::kind, ::fmt::format(__VA_ARGS__)); \
  } while (0)

// PF_FAIL(Type, "op: got {}", x) raises always.
#define PF_FAIL(kind, ...) ::pyflame::fail(::pyflame::ErrorKind::kind, ::fmt::format(__VA_ARGS__))
