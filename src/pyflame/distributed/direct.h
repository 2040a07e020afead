// Memory of another process of this host, read and written where it lies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pyflame::distributed {

// False, with errno, unless all bytes were copied.
bool read_memory(int pid, void* to, uintptr_t from, size_t bytes);
bool write_memory(int pid, uintptr_t to, const void* from, size_t bytes);

// Whether this process may read and write the memory of that one: it finds these bytes at the address, and writes the same ones there.
bool reaches_memory(int pid, uintptr_t address, std::string_view bytes);

// Where Linux allows it to parents only (Yama's ptrace_scope 1), the parent of this process and what it started may reach the memory of this one, too:
// the ranks that one launcher started. Changes nothing elsewhere.
void let_siblings_reach();

}  // namespace pyflame::distributed
