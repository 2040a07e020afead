// A file that is read in pieces, or mapped into memory. Reads are by position and checked against the size, and a file that becomes shorter
// meanwhile is an OSError. A mapping is checked when it is made; if the file becomes shorter later, the system ends the process that reads there.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace pyflame {

// Shortens and escapes text of a file for a message.
std::string cite(std::string_view s);

class InputFile {
 public:
  // `op` names the caller in errors. OSError if it cannot be opened or is not a regular file.
  InputFile(std::string op, const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& op() const { return op_; }
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  // By all threads of the pool. OSError if the file became shorter. The range must be inside of size().
  void read(void* to, uint64_t bytes, uint64_t at) const;
  // ValueError if the range is not inside of the file; `what` names it in the message. OutOfMemory.
  std::unique_ptr<char[]> read_bytes(uint64_t bytes, uint64_t at, std::string_view what) const;
  std::string read_text(uint64_t bytes, uint64_t at, std::string_view what) const;
  // All size() bytes, which stay mapped as long as a copy of the pointer lives. Writes to them are this process's own
  // and do not change the file. Null for an empty file. OSError if the file became shorter, or cannot be mapped.
  std::shared_ptr<char> map() const;
  template <class T>
  T read_number(uint64_t at, std::string_view what) const {
    static_assert(std::is_arithmetic_v<T>);
    check_range(sizeof(T), at, what);
    T value;
    read(&value, sizeof value, at);
    return value;
  }
  // ValueError: "op: 'path': problem".
  [[noreturn]] void refuse(std::string_view problem) const;

 private:
  void read_part(char* to, uint64_t bytes, uint64_t at) const;
  void check_range(uint64_t bytes, uint64_t at, std::string_view what) const;

  std::string op_, path_;
  uint64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace pyflame
