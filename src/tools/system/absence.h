// Why a program finds no AMD GPU on this machine, in one sentence, with one command that fixes it. The facts are
// checked in the order in which a program would fail: hardware, driver, device nodes, permissions, visibility,
// architecture, software.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tools/system/host.h"

namespace pyflame::tools::system {

struct Absence {
  // no_gpu, no_driver, driver_not_built, module_not_loaded, wrong_driver, no_kfd, container, no_permission, no_atomics,
  // hidden, bad_override, unsupported, integrated_only, no_rocm, version_mismatch, wsl
  std::string code;
  std::string what;  // one sentence without a full stop
  std::string fix;   // one command
  std::string why;
};

// From the document of collect() (or the parts of it that why_no_gpu() collects). Software is checked only if the
// document has "rocm".
std::optional<Absence> absence_of(const nlohmann::json& facts);

// Checks only whether the kernel offers a GPU to this process, which is fast.
std::optional<Absence> why_no_gpu(const Host& host);

}  // namespace pyflame::tools::system
