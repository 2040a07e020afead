#include "pyflame/distributed/direct.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

namespace pyflame::distributed {

namespace {

using Copy = decltype(&process_vm_readv);

bool copy_all(Copy copy, int pid, void* here, uintptr_t there, size_t bytes) {
  const iovec own{here, bytes}, other{reinterpret_cast<void*>(there), bytes};
  const ssize_t n = copy(pid, &own, 1, &other, 1, 0);
  if (n >= 0 && static_cast<size_t>(n) < bytes) errno = EFAULT;
  return n == static_cast<ssize_t>(bytes);
}

}  // namespace

bool read_memory(int pid, void* to, uintptr_t from, size_t bytes) {
  return copy_all(process_vm_readv, pid, to, from, bytes);
}

bool write_memory(int pid, uintptr_t to, const void* from, size_t bytes) {
  return copy_all(process_vm_writev, pid, const_cast<void*>(from), to, bytes);
}

bool reaches_memory(int pid, uintptr_t address, std::string_view bytes) {
  std::string found(bytes.size(), '\0');
  return read_memory(pid, found.data(), address, found.size()) && found == bytes &&
         write_memory(pid, address, bytes.data(), bytes.size());
}

void let_siblings_reach() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  const int parent = getppid();
  if (file.get() == '1' && parent > 1) prctl(PR_SET_PTRACER, static_cast<unsigned long>(parent), 0, 0, 0);
}

}  // namespace pyflame::distributed
