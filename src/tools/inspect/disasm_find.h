// Where disassemblers are looked for on a machine.
#pragma once
#include <string>
#include <vector>

#include "tools/inspect/disasm.h"

namespace pyflame::tools::inspect {

// In `path` (a file or the folder of an installation) or, where that is empty, in LLVM_PATH, ROCM_PATH, HIP_PATH, /opt/rocm*, the
// packages of an active Python environment, the system's folders and PATH. Libraries of LLVM stand first, then comgr, then tools;
// each kind newest first within its folder.
std::vector<DisassemblerKind> find_disassemblers(const std::string& path);

}  // namespace pyflame::tools::inspect
