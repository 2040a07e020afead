// An AMDGPU code object (versions 3 to 6): its GPU, and the resources of each kernel. They are taken from the metadata
// note. The kernel descriptors, which the hardware reads, are compared with it, and replace it if it was stripped. A
// figure that neither of them has is absent, not zero.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

struct KernelArgument {
  std::string name, kind, type, address_space;
  uint64_t offset = 0, size = 0;
};

using Count = std::optional<uint64_t>;

struct Kernel {
  std::string symbol;  // as in the file
  Count wave, vgpr, agpr, sgpr, vgpr_spill, sgpr_spill, lds, scratch, kernarg, max_workgroup;
  std::optional<std::array<uint64_t, 3>> required_workgroup;
  std::optional<bool> wgp_mode, dynamic_stack;
  std::vector<KernelArgument> arguments;
  bool from_descriptor = false;  // no metadata: registers are rounded up to what is allocated
  uint64_t address = 0;          // of its first instruction
  uint64_t file_offset = 0;      // offset of that instruction in the code object
  Bytes code;                    // empty if the file does not have it
};

struct CodeObject {
  Bytes file;
  std::string gfx;     // "gfx942", "gfx11-generic"; empty if unknown
  std::string target;  // with features: "gfx942:sramecc+:xnack-"
  int version = 0;     // version of the code object, 3 to 6
  bool relocatable = false;
  std::vector<Kernel> kernels;
  std::vector<std::string> problems;
};

// Error(Value) if it is not an AMDGPU code object. Missing parts of one are listed in `problems`.
CodeObject parse_code_object(Bytes data);

// The architecture in the flags of an ELF header; empty if unknown.
std::string_view gfx_of_machine(uint32_t elf_flags);

}  // namespace pyflame::tools::inspect
