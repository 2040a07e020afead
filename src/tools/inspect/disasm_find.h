// Where disassemblers are searched on a machine.
#pragma once
#include <string>
#include <vector>

#include "tools/inspect/disasm.h"

namespace pyflame::tools::inspect {

// Searches in `path` (a file or the folder of an installation). If that is empty: in LLVM_PATH, ROCM_PATH, HIP_PATH,
// /opt/rocm*, the packages of an active Python environment, the system's folders and PATH. LLVM's libraries come first,
// then comgr, then tools; each kind is sorted by version, newest first.
std::vector<DisassemblerKind> find_disassemblers(const std::string& path);

}  // namespace pyflame::tools::inspect
