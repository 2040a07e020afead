// Which GPUs AMD supports. The list of architectures is that of ROCm's compatibility matrices (Linux). An architecture that is not in the
// list, but that the libraries may have code for, is "unlisted": it often works, but AMD does not promise it.
#include <array>

#include "pyflame/base/gpu_arch.h"
#include "tools/system/probes.h"

namespace pyflame::tools::system {

namespace {

struct Listed {
  std::string_view gfx;
  Version first, last;  // releases of ROCm, last one included
};

constexpr Version kNow{99, 0, 0};
constexpr auto kOfficial = std::to_array<Listed>({
    {"gfx900", {1, 0, 0}, {4, 4, 99}},
    {"gfx906", {2, 0, 0}, {5, 7, 99}},
    {"gfx908", {4, 0, 0}, kNow},
    {"gfx90a", {4, 5, 0}, kNow},
    {"gfx942", {6, 0, 0}, kNow},
    {"gfx950", {7, 0, 0}, kNow},
    {"gfx1030", {5, 0, 0}, kNow},
    {"gfx1100", {5, 7, 0}, kNow},
    {"gfx1101", {6, 4, 1}, kNow},
    {"gfx1150", {7, 2, 0}, kNow},
    {"gfx1151", {7, 2, 0}, kNow},
    {"gfx1200", {6, 4, 1}, kNow},
    {"gfx1201", {6, 4, 1}, kNow},
});

}  // namespace

std::string support_of(std::string_view gfx, Version rocm) {
  for (const Listed& row : kOfficial)
    if (row.gfx == gfx) {
      const bool listed = rocm ? row.first <= rocm && rocm <= row.last : row.last == kNow;
      return listed ? "official" : "unlisted";
    }
  return find_gpu_arch(gfx) ? "unlisted" : "unsupported";
}

// The chips of RDNA 2 after the first one execute the same instructions as gfx1030. In every other family the members differ (size of the
// register file, instructions, workarounds for bugs), so no override is correct there.
std::string override_for(std::string_view gfx) {
  static constexpr auto same = std::to_array<std::string_view>({"gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036"});
  for (std::string_view g : same)
    if (g == gfx) return "10.3.0";
  return "";
}

// Until ROCm 6.4 the driver was released with ROCm. Since 7.0 it has releases of its own (30.x), and the module keeps its old numbering.
std::string rocm_of_driver(std::string_view module_version) {
  struct Row {
    Version from;  // this version of the module and later
    const char* rocm;
  };
  static constexpr Row rows[] = {
      {{6, 16, 13}, "7.2"}, {{6, 16, 0}, "7.1"}, {{6, 14, 0}, "7.0"}, {{6, 12, 0}, "6.4"},
      {{6, 10, 0}, "6.3"},  {{6, 8, 0}, "6.2"},  {{6, 7, 0}, "6.1"},  {{6, 3, 0}, "6.0"},
      {{6, 2, 0}, "5.7"},   {{6, 1, 0}, "5.6"},  {{6, 0, 0}, "5.5"},
  };
  const Version v = parse_version(module_version);
  if (!v || v >= Version{6, 17, 0}) return "";
  for (const Row& row : rows)
    if (v >= row.from) return row.rocm;
  return "";
}

}  // namespace pyflame::tools::system
