// A file that appears as a whole or not at all: bytes go to a temporary file in the same folder, which replaces the target by one
// rename after everything is on disk. Whatever goes wrong before, the previous file stays as it was.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace pyflame {

class AtomicFile {
 public:
  // `op` names the caller in errors; total_bytes is what will be written in all (for the message of a full disk).
  // OSError when the folder is missing or not writable, or when the target exists and is not a regular file.
  AtomicFile(std::string op, const std::string& path, uint64_t total_bytes);
  ~AtomicFile();  // removes the temporary file unless commit() was called
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, uint64_t bytes);
  void commit();

 private:
  [[noreturn]] void fail_errno(const char* what, int error);
  void remove_temporary();

  std::string op_, path_, temporary_;
  uint64_t total_, written_ = 0;
  int fd_ = -1;
};

// The whole of `text` as the new contents of `path`.
void write_file_atomically(const std::string& op, const std::string& path, std::string_view text);

// Removes the temporary files that killed processes left in a folder in which nobody writes now.
void remove_unfinished_files(const std::string& folder);

}  // namespace pyflame
