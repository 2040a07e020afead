// Why a program finds no AMD GPU here, in one sentence, with the one command that mends it. Decided from the facts in the order in which
// a program would fail: hardware, driver, device nodes, permissions, visibility, architecture, software.
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

// From the document of collect() (or the parts of it that why_no_gpu() collects). Without "rocm" in it, software is not judged.
std::optional<Absence> absence_of(const nlohmann::json& facts);

// Looks only at what decides whether the kernel offers a GPU to this process: cheap.
std::optional<Absence> why_no_gpu(const Host& host);

}  // namespace pyflame::tools::system
