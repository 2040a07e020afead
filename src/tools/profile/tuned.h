// What tuning files and libraries' logs say, line by line: which kernel was chosen for which problem, and how fast it was.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pyflame::tools::profile {

struct TunedEntry {
  std::string problem;  // "GEMM 4096x4096x512 bf16 TN"
  std::string kind;     // "gemm", "conv"
  std::string choice;   // "Gemm_Hipblaslt_1219"; empty for a captured problem that is not tuned yet
  double us = -1;       // negative where unknown, as are the next
  double flops = -1, bytes = -1;
  std::string dtype;  // "bf16": which peak of the roofline counts
  std::string stale;  // why it may not be used; empty: nothing known against it
  std::string file;
  int64_t line = 0, calls = 1;
  std::vector<std::pair<std::string, double>>
      others;  // further solvers with their times in us (0: unknown), fastest first
};

struct TunedFiles {
  std::vector<TunedEntry> entries;
  std::vector<std::pair<std::string, std::string>>
      validators;   // of what the entries hold: PT_VERSION, GCN_ARCH_NAME, …
  std::string gfx;  // of the device that they were measured on
  int cus = 0;      // of that device, where the file says it
  bool empty() const { return entries.empty() && validators.empty(); }
};

}  // namespace pyflame::tools::profile
