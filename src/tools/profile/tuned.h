// The contents of tuning files and of libraries' logs: which kernel was selected for which problem, and its time.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pyflame::tools::profile {

struct TunedEntry {
  std::string problem;  // "GEMM 4096x4096x512 bf16 TN"
  std::string kind;     // "gemm", "conv", "moe", "gdn"
  std::string choice;   // "Gemm_Hipblaslt_1219"; empty for a recorded problem that is not tuned yet
  double us = -1;       // negative if unknown, as are the following
  double flops = -1, bytes = -1;
  std::string dtype;  // "bf16": selects the peak of the roofline
  std::string gfx;    // of the device that it was tuned on, where the row names it
  int cus = 0;
  std::string stale;  // why it may be unusable; empty: no reason is known
  std::string file;
  int64_t line = 0, calls = 1;
  std::vector<std::pair<std::string, double>>
      others;  // further solvers with their times in us (0: unknown), fastest first
};

struct TunedFiles {
  std::vector<TunedEntry> entries;
  std::vector<std::pair<std::string, std::string>>
      validators;   // conditions under which the entries are valid: PT_VERSION, GCN_ARCH_NAME, …
  std::string gfx;  // of the device on which they were measured
  int cus = 0;      // of that device, if the file has it
  bool empty() const { return entries.empty() && validators.empty(); }
};

}  // namespace pyflame::tools::profile
