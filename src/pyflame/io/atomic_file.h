// A file that appears completely or not at all. Bytes go to a temporary file in the same folder; after everything is on
// disk, one rename replaces the target. If anything fails before, the previous file is unchanged.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace pyflame {

class AtomicFile {
 public:
  // `op` names the caller in errors; total_bytes is the size of the whole file (for the message of a full disk).
  // OSError if the folder is missing or not writable, or if the target exists and is not a regular file.
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

// Writes `text` as the new contents of `path`.
void write_file_atomically(const std::string& op, const std::string& path, std::string_view text);

// Removes temporary files that killed processes left. The caller makes sure that no process is writing to the folder.
void remove_unfinished_files(const std::string& folder);

}  // namespace pyflame
