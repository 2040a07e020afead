// `pyflame occupancy`: computes how many waves of a kernel fit, from numbers on the command line instead of a file.
#include <unistd.h>

#include <CLI/Option.hpp>
#include <array>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "output.h"
#include "pyflame/base/error.h"
#include "tools/inspect/occupancy_document.h"
#include "tools/inspect/text_occupancy.h"

namespace pyflame::apps::cli {

namespace {

using Json = nlohmann::json;

struct OccupancySettings {
  std::string arch, grid;
  tools::inspect::KernelResources kernel;
  int cus = 0;
  bool list = false, as_json = false, wgp_mode = false, cu_mode = false;
};

const GpuArch& known_arch(const std::string& name) {
  PF_CHECK(!name.empty(), Value,
           "occupancy: no architecture is given; expected --arch, such as gfx942 or gfx1100; --list shows all");
  const GpuArch* arch = find_gpu_arch(name);
  PF_CHECK(arch != nullptr, Value,
           "occupancy: the architecture is not known; got {}; expected one of `pyflame occupancy --list`",
           tools::view::clean(name, 40));
  return *arch;
}

std::array<int64_t, 3> parse_grid(const std::string& text) {
  std::array<int64_t, 3> grid = {1, 1, 1};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < grid.size(); ++i) {
    const auto [after, error] = std::from_chars(at, end, grid[i]);
    PF_CHECK(error == std::errc() && (after == end || (*after == ',' && i + 1 < grid.size())), Value,
             "occupancy: --grid is not understood; got {}; expected workgroups as X, X,Y or X,Y,Z",
             tools::view::clean(text, 40));
    if (after == end) return grid;
    at = after + 1;
  }
  return grid;
}

int answer(const OccupancySettings& s) {
  Json doc;
  if (s.list) {
    doc = tools::inspect::architectures_document();
  } else {
    const GpuArch& arch = known_arch(s.arch);
    PF_CHECK(arch.has_wgp || !(s.wgp_mode || s.cu_mode), Value,
             "occupancy: {} has no WGPs; --wgp_mode and --cu_mode exist on RDNA only", arch.gfx);
    tools::inspect::KernelResources kernel = s.kernel;
    kernel.wgp_mode = !s.cu_mode;
    doc = tools::inspect::occupancy_document(arch, kernel,
                                             s.grid.empty() ? std::nullopt : std::optional(parse_grid(s.grid)), s.cus);
  }
  const tools::view::Style style = tools::view::Style::of(STDOUT_FILENO);
  if (s.as_json) print_json(doc);
  else print(s.list ? tools::inspect::architectures_text(doc, style) : tools::inspect::occupancy_text(doc, style));
  return kOk;
}

}  // namespace

void add_occupancy(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("occupancy", "Compute how many waves fit on a SIMD, and what limits them");
  auto s = std::make_shared<OccupancySettings>();
  sub->add_option("--arch", s->arch, "Architecture, such as gfx942 or gfx1100");
  sub->add_option("--vgpr", s->kernel.vgpr,
                  "VGPRs of the kernel as in .vgpr_count, which includes the AGPRs on gfx90a and later");
  sub->add_option("--agpr", s->kernel.agpr, "AGPRs of the kernel");
  sub->add_option("--sgpr", s->kernel.sgpr, "SGPRs of the kernel as in .sgpr_count");
  sub->add_option("--lds", s->kernel.lds, "Bytes of LDS per workgroup");
  sub->add_option(names("dynamic_lds"), s->kernel.dynamic_lds, "Bytes of LDS that are added at launch");
  sub->add_option("--block", s->kernel.block, "Threads per workgroup")->capture_default_str();
  sub->add_option("--wave", s->kernel.wave, "Wave size, 32 or 64; default: the architecture's own");
  CLI::Option* wgp =
      sub->add_flag(names("wgp_mode"), s->wgp_mode, "RDNA: a workgroup may use both CUs of a WGP (the default)");
  sub->add_flag(names("cu_mode"), s->cu_mode, "RDNA: a workgroup stays on one CU")->excludes(wgp);
  CLI::Option* grid =
      sub->add_option("--grid", s->grid, "Also analyse a launch of this many workgroups, given as X or X,Y or X,Y,Z");
  sub->add_option("--cus", s->cus, "Compute units of the GPU; default: those of the architecture's first product")
      ->needs(grid);
  sub->add_flag("--list", s->list, "List the architectures");
  sub->add_flag("--json", s->as_json, "Print one JSON document");
  sub->callback([&run, s] { run = [s] { return answer(*s); }; });
}

}  // namespace pyflame::apps::cli
