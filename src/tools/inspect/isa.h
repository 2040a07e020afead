// What the machine code of kernels says: instructions by class, loops with their mix, bytes and issue cycles, and findings (isa_lint.h).
// LLVM disassembles (disasm.h), understanding is ours; everything is derived from the text of instructions, so that a listing of
// any origin can be analysed. Result: the "isa" object of the inspect document.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

// The code of one kernel (or device function) inside of its code object.
struct IsaKernel {
  uint64_t address = 0;        // of its first byte, as the object's symbol table counts
  Bytes code;                  // must outlive the analysis
  int wave = 0;                // 32 or 64; 0: the architecture's default
  int64_t scratch_bytes = -1;  // of a lane, from the metadata; -1: not known
};

struct IsaObject {
  std::string_view gfx;  // "gfx942:sramecc+:xnack-" or "gfx942"
  Bytes elf;             // the whole code object, for source lines and for llvm-objdump; may be empty
  std::vector<IsaKernel> kernels;
};

struct IsaOptions {
  std::string llvm;  // a folder, library or tool to use instead of those that are found (--llvm)
  int threads = 0;   // 0: as many as the machine has
};

struct IsaResult {
  std::vector<std::vector<nlohmann::json>> kernels;  // [object][kernel]; null where the code could not be read
  std::vector<std::string> missing;                  // sentences for "missing", each once
  std::string disassembler;  // "LLVM 22.1.8, /usr/lib/…/libLLVM.so.22.1"; several joined by "; "
};

// Reads the code of all kernels, several at a time. `progress` is called with the kernels done so far, from any thread but one at
// a time. Never throws for what is in the code; Error(Value) when options.llvm names nothing that disassembles.
IsaResult analyse_isa(const std::vector<IsaObject>& objects, const IsaOptions& options = {},
                      const std::function<void(size_t done)>& progress = {});

}  // namespace pyflame::tools::inspect
