#include "tools/inspect/bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {

Memory map_file(const std::string& path) {
  // Without O_NONBLOCK, open() of a pipe would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  PF_CHECK(fd >= 0, OS, "inspect: '{}' cannot be opened; {}", path, std::strerror(errno));
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(fd);
    PF_FAIL(OS, "inspect: '{}' is not a regular file", path);
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* at = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (size == 0) return {};
  PF_CHECK(at != MAP_FAILED, OS, "inspect: '{}' cannot be mapped; {}", path, std::strerror(error));
  std::shared_ptr<const void> owner(at, [size](void* p) { ::munmap(p, size); });
  return {Bytes(static_cast<const uint8_t*>(at), size), std::move(owner)};
}

}  // namespace pyflame::tools::inspect
