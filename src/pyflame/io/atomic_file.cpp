#include "pyflame/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "pyflame/base/error.h"

namespace pyflame {

namespace {

std::string error_text(int error) { return std::generic_category().message(error); }

// A symbolic link is followed, so that saving replaces its target and not the link.
std::string resolve(const std::string& path) {
  std::error_code ec;
  if (std::filesystem::is_symlink(path, ec)) {
    const std::filesystem::path real = std::filesystem::weakly_canonical(path, ec);
    if (!ec) return real.string();
  }
  return path;
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

AtomicFile::AtomicFile(std::string op, const std::string& path, uint64_t total_bytes)
    : op_(std::move(op)), path_(resolve(path)), total_(total_bytes) {
  PF_CHECK(!path.empty(), Value, "{}: the path is empty; expected the name of a file", op_);
  struct stat st {};
  if (::stat(path_.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) {
    PF_FAIL(OS, "{}: '{}' is {}; expected a regular file or a new name", op_, path_,
            S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
  }
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100 && fd_ < 0; ++attempt) {
    temporary_ = fmt::format("{}.tmp.{}.{}", path_, ::getpid(), counter.fetch_add(1));
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) break;
  }
  if (fd_ < 0) {
    const int error = errno;
    temporary_.clear();
    PF_FAIL(OS, "{}: cannot create a file in '{}': {}; expected a folder that exists and can be written", op_,
            folder_of(path_), error_text(error));
  }
}

AtomicFile::~AtomicFile() { remove_temporary(); }

void AtomicFile::remove_temporary() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail_errno(const char* what, int error) {
  remove_temporary();
  PF_FAIL(OS, "{}: {} '{}': {}; wrote {} of {} bytes; {}", op_, what, path_, error_text(error), written_, total_,
          ::access(path_.c_str(), F_OK) == 0 ? "the previous file is unchanged" : "no file was left behind");
}

void AtomicFile::write(const void* data, uint64_t bytes) {
  constexpr uint64_t kChunk = uint64_t{1} << 26;
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, at, static_cast<size_t>(std::min(bytes, kChunk)));
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_errno("cannot write", errno);
    }
    at += n;
    bytes -= static_cast<uint64_t>(n);
    written_ += static_cast<uint64_t>(n);
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != ENOTSUP) fail_errno("cannot flush", errno);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0 && errno != EINTR) fail_errno("cannot close", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("cannot replace", errno);
  temporary_.clear();
  // Makes the rename durable. Some file systems refuse to flush a folder; the file is complete in either case.
  const int dir = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    ::fsync(dir);
    ::close(dir);
  }
}

void write_file_atomically(const std::string& op, const std::string& path, std::string_view text) {
  AtomicFile file(op, path, text.size());
  file.write(text.data(), text.size());
  file.commit();
}

// Whether AtomicFile made this name: "<name>.tmp.<process>.<number>".
static bool is_temporary(std::string_view name) {
  const auto take_number = [&name] {
    const size_t before = name.size();
    while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
    return name.size() < before;
  };
  const auto take = [&name](std::string_view end) {
    if (!name.ends_with(end)) return false;
    name.remove_suffix(end.size());
    return true;
  };
  return take_number() && take(".") && take_number() && take(".tmp.") && !name.empty();
}

void remove_unfinished_files(const std::string& folder) {
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ec))
    if (is_temporary(entry.path().filename().string())) std::filesystem::remove(entry.path(), ec);
}

}  // namespace pyflame
