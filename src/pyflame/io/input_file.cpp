#include "pyflame/io/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <system_error>

#include "pyflame/base/error.h"
#include "pyflame/base/threads.h"

namespace pyflame {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read without swapping");

namespace {
std::string message_of(int error) { return std::generic_category().message(error); }
}  // namespace

std::string cite(std::string_view s) {
  constexpr size_t kMax = 80;
  std::string out = "'";
  for (char c : s.substr(0, kMax)) out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return out + (s.size() > kMax ? "…'" : "'");
}

InputFile::InputFile(std::string op, const std::string& path) : op_(std::move(op)), path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  PF_CHECK(fd_ >= 0, OS, "{}: cannot open '{}': {}", op_, path_, message_of(errno));
  struct stat st {};
  const int error = ::fstat(fd_, &st) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(st.st_mode)) {
    size_ = static_cast<uint64_t>(st.st_size);
    return;
  }
  ::close(fd_);
  PF_CHECK(error == 0, OS, "{}: cannot open '{}': {}", op_, path_, message_of(error));
  PF_FAIL(OS, "{}: '{}' is {}; expected a file", op_, path_, S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(void* to, uint64_t bytes, uint64_t at) const {
  // Memory that is new costs more than the copy from the system's cache: the threads share both.
  constexpr int64_t kPart = int64_t{1} << 24;
  const auto size = static_cast<int64_t>(bytes);
  parallel_for((size + kPart - 1) / kPart, 1, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kPart, end = std::min(size, last * kPart);
    read_part(static_cast<char*>(to) + begin, static_cast<uint64_t>(end - begin), at + static_cast<uint64_t>(begin));
  });
}

void InputFile::read_part(char* to, uint64_t bytes, uint64_t at) const {
  constexpr uint64_t kChunk = uint64_t{1} << 26;
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_, to, static_cast<size_t>(std::min(bytes, kChunk)), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    PF_CHECK(n >= 0, OS, "{}: cannot read '{}': {}", op_, path_, message_of(errno));
    PF_CHECK(n > 0, OS, "{}: '{}' became shorter while it was read; got {} bytes; expected {}", op_, path_, at,
             at + bytes);
    to += n;
    at += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
}

void InputFile::check_range(uint64_t bytes, uint64_t at, std::string_view what) const {
  PF_CHECK(at <= size_ && bytes <= size_ - at, Value,
           "{}: '{}' is damaged: {} is not inside of the file; got {} bytes at {}; expected within {} bytes", op_,
           path_, what, bytes, at, size_);
}

std::unique_ptr<char[]> InputFile::read_bytes(uint64_t bytes, uint64_t at, std::string_view what) const {
  check_range(bytes, at, what);
  std::unique_ptr<char[]> buffer;
  try {
    buffer.reset(new char[bytes]);
  } catch (const std::bad_alloc&) {
    PF_FAIL(OutOfMemory, "{}: no memory for {}; expected {} bytes", op_, what, bytes);
  }
  read(buffer.get(), bytes, at);
  return buffer;
}

std::string InputFile::read_text(uint64_t bytes, uint64_t at, std::string_view what) const {
  check_range(bytes, at, what);
  std::string text(bytes, '\0');
  read(text.data(), bytes, at);
  return text;
}

std::shared_ptr<char> InputFile::map() const {
  if (size_ == 0) return nullptr;
  struct stat st {};
  PF_CHECK(::fstat(fd_, &st) == 0, OS, "{}: cannot read '{}': {}", op_, path_, message_of(errno));
  PF_CHECK(static_cast<uint64_t>(st.st_size) >= size_, OS,
           "{}: '{}' became shorter while it was read; got {} bytes; expected {}", op_, path_, st.st_size, size_);
  // Without a reservation: pages that nobody writes need no memory of their own.
  void* at = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd_, 0);
  PF_CHECK(at != MAP_FAILED, OS, "{}: cannot map '{}': {}", op_, path_, message_of(errno));
  (void)::madvise(at, size_, MADV_WILLNEED);
  return {static_cast<char*>(at), [size = size_](char* p) { ::munmap(p, size); }};
}

void InputFile::refuse(std::string_view problem) const { PF_FAIL(Value, "{}: '{}': {}", op_, path_, problem); }

}  // namespace pyflame
