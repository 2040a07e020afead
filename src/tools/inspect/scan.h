// All code objects in the given files and folders, with the analysis of each kernel. Files are read in parallel, in
// batches; the memory of a batch is freed before the next one, so memory use does not grow with the size of a library.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/inspect/code_object.h"
#include "tools/inspect/container.h"

namespace pyflame::tools::inspect {

struct ScanProgress {
  size_t files_done = 0, files = 0;
  size_t kernels = 0;                    // found so far
  size_t to_read = 0, kernels_read = 0;  // whose instructions are wanted so far, and were read
};

struct ScanOptions {
  std::string kernel;  // POSIX extended regular expression, looked for in name and symbol; empty: all
  std::string arch;    // "gfx942", or with features; empty: all
  bool isa = true;
  size_t most_isa = 30'000;  // kernels whose instructions are read; the analysis of one takes up to 100 KB
  std::string llvm;          // --llvm
  int threads = 0;           // 0: as many as the machine has
  std::function<void(const ScanProgress&)> progress;  // from any thread, one at a time
};

struct ScannedObject {
  std::string path, member, container, target, gfx;
  int version = 0;
  uint64_t bytes = 0;
  size_t kernels = 0;
  std::optional<TritonInfo> triton;
};

struct ScannedKernel {
  Kernel kernel;     // without its code, which is freed with its batch
  std::string name;  // demangled
  size_t object = 0;
  uint64_t code_bytes = 0;
  std::shared_ptr<const nlohmann::json> isa;  // null if it was not read
};

struct Scan {
  std::vector<std::string> inputs;
  std::vector<ScannedObject> objects;  // with at least one selected kernel, or without any kernel
  std::vector<ScannedKernel> kernels;
  std::vector<Problem> problems;
  std::map<std::string, int64_t> others;  // known things without machine code for AMD GPUs: kind -> number
  std::vector<std::string> missing;
  std::string disassembler;
  size_t files = 0, kernels_found = 0;  // before --kernel and --arch
};

// Error(OS) for a path that does not exist, Error(Value) for an invalid regular expression.
Scan scan(const std::vector<std::string>& paths, const ScanOptions& options);

}  // namespace pyflame::tools::inspect
