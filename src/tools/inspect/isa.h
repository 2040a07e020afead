// Analyses the machine code of kernels: instructions by class, loops with their mix, bytes and issue cycles, and
// findings (isa_lint.h). LLVM disassembles (disasm.h); the analysis is our own. It uses only the text of instructions,
// so a listing from any source can be analysed. The result is the "isa" object of the inspect document.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

// The code of a kernel (or of a device function) in its code object.
struct IsaKernel {
  uint64_t address = 0;        // of its first byte, in the numbering of the symbol table
  Bytes code;                  // must outlive the analysis
  int wave = 0;                // 32 or 64; 0: the architecture's default
  int64_t scratch_bytes = -1;  // per lane, from the metadata; -1: unknown
};

struct IsaObject {
  std::string_view gfx;  // "gfx942:sramecc+:xnack-" or "gfx942"
  Bytes elf;             // the whole code object, for source lines and for llvm-objdump; may be empty
  std::vector<IsaKernel> kernels;
};

struct IsaOptions {
  std::string llvm;  // a folder, library or tool to use instead of the search (--llvm)
  int threads = 0;   // 0: as many as the machine has
};

struct IsaResult {
  std::vector<std::vector<nlohmann::json>> kernels;  // [object][kernel]; null if the code could not be read
  std::vector<std::string> missing;                  // sentences for "missing", each once
  std::string disassembler;  // "LLVM 22.1.8, /usr/lib/…/libLLVM.so.22.1"; several joined by "; "
};

// Reads the code of all kernels, several in parallel. `progress` is called with the number of finished kernels, from
// any thread, one at a time. Contents of the code never cause an exception; Error(Value) if options.llvm names no
// disassembler.
IsaResult analyse_isa(const std::vector<IsaObject>& objects, const IsaOptions& options = {},
                      const std::function<void(size_t done)>& progress = {});

}  // namespace pyflame::tools::inspect
