// An AMDGPU code object (versions 3 to 6): which GPU it is for and what each kernel needs. The metadata note is what is believed; the
// kernel descriptors, which is what the hardware is given, check it and stand in for it where it was stripped. A figure that neither
// of them has is absent, not zero.
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
  uint64_t file_offset = 0;      // where that stands in the code object
  Bytes code;                    // empty where the file does not have it
};

struct CodeObject {
  Bytes file;
  std::string gfx;     // "gfx942", "gfx11-generic"; empty where the file does not say a known one
  std::string target;  // with features: "gfx942:sramecc+:xnack-"
  int version = 0;     // of the code object's form, 3 to 6
  bool relocatable = false;
  std::vector<Kernel> kernels;
  std::vector<std::string> problems;
};

// Error(Value) where it is not an AMDGPU code object; whatever is missing of one is said in `problems`.
CodeObject parse_code_object(Bytes data);

// The architecture that the flags of an ELF header name; empty for an unknown one.
std::string_view gfx_of_machine(uint32_t elf_flags);

}  // namespace pyflame::tools::inspect
