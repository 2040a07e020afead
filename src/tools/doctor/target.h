// What a file of settings is for: the GPU, the release of ROCm and the kind of work. The command line says it, or the file itself does
// (FROM, ARG, names of images, requirements, its name).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pyflame::tools::doctor {

struct Target {
  std::string gfx;       // "gfx942"; empty: not known
  std::string rocm;      // "6.3"; empty: not known
  std::string workload;  // "training", "inference", "multi-gpu", "benchmark"; empty: not known
};

// What the file says. A thing that it names in two different ways (several architectures, two releases) is not known.
Target target_of(std::string_view text, std::string_view path);

// Whether the file runs PyTorch, and whether it is about memory that the processor and the GPU share.
bool uses_pytorch(std::string_view text);
bool uses_unified_memory(std::string_view text, std::string_view path);

// Whether the file says that it runs on one GPU.
bool uses_one_gpu(std::string_view text, std::string_view path);
// The packages of PyTorch that the file asks for from an index of packages for ROCm: [{name, torch, rocm, line, first}]. "first" is the first
// release of torch that this index has, where the one asked for is older.
nlohmann::json wheels_of(std::string_view text);

// Replaces the GPUs and the software of this machine by those of the target, as far as it is known. Throws Error (Value) for an
// architecture or a release that does not exist.
void aim_at(nlohmann::json& facts, const Target& target);

}  // namespace pyflame::tools::doctor
