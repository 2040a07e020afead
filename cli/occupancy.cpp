// `pyflame occupancy`: one document from inspect/occupancy.h and inspect/launch.h, as JSON or as text.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/Option.hpp>
#include <array>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "pyflame/base/error.h"
#include "pyflame/inspect/launch.h"
#include "pyflame/inspect/occupancy.h"
#include "pyflame/view/text.h"

namespace pyflame::cli {

namespace {

using Json = nlohmann::json;
using view::Style;
using view::Tone;

struct Settings {
  std::string arch, grid;
  inspect::KernelResources kernel;
  int cus = 0;
  bool list = false, as_json = false, wgp_mode = false, cu_mode = false;
};

const GpuArch& known_arch(const std::string& name) {
  PF_CHECK(!name.empty(), Value,
           "occupancy: which GPU? say it with --arch, such as gfx942 or gfx1100; --list shows all");
  const GpuArch* arch = find_gpu_arch(name);
  PF_CHECK(arch != nullptr, Value,
           "occupancy: the architecture is not known; got {}; expected one of `pyflame occupancy --list`",
           view::clean(name, 40));
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
             view::clean(text, 40));
    if (after == end) return grid;
    at = after + 1;
  }
  return grid;
}

Json arch_json(const GpuArch& a) {
  Json j = {{"gfx", a.gfx},
            {"family", a.family},
            {"generic", a.generic},
            {"waves", Json::array()},
            {"max_waves_per_simd", a.max_waves_per_simd},
            {"vgprs", a.vgprs},
            {"vgpr_granule", a.vgpr_granule},
            {"addressable_vgprs", a.addressable_vgprs},
            {"simds_per_cu", a.simds_per_cu},
            {"wgp", a.has_wgp},
            {"lds_bytes", a.lds_bytes},
            {"max_lds_per_workgroup", a.max_lds_per_workgroup},
            {"lds_granule", a.lds_granule},
            {"instruction_cache_bytes", a.instruction_cache_bytes},
            {"instruction_cache_cus", a.icache_shared_by_cus},
            {"matrix", to_string(a.matrix)},
            {"fp8", to_string(a.fp8)},
            {"products", Json::array()}};
  if (a.wave32) j["waves"].push_back(32);
  if (a.wave64) j["waves"].push_back(64);
  for (const GpuProduct& p : gpu_products())
    if (p.gfx == a.gfx) j["products"].push_back(p.name);
  return j;
}

Json list_document() {
  Json j = {{"schema", "pyflame.architectures/1"}, {"architectures", Json::array()}};
  for (const GpuArch& a : gpu_archs())
    if (a.amd) j["architectures"].push_back(arch_json(a));
  return j;
}

Json guide_json(const inspect::Occupancy& o) {
  const auto guide = inspect::guide_formula(o);
  if (!guide) return nullptr;
  return {{"formula", "min(floor(occ_vgpr * 4 / nW), floor(65536 / L)) * nW / 4, VGPRs in steps of 16"},
          {"waves_per_simd", guide->waves_per_simd},
          {"agrees", guide->why_wrong.empty()},
          {"why_wrong", guide->why_wrong},
          {"wrong_for_vgprs", inspect::guide_wrong_vgprs(*o.arch)}};
}

Json document(const Settings& s) {
  const GpuArch& arch = known_arch(s.arch);
  PF_CHECK(arch.has_wgp || !(s.wgp_mode || s.cu_mode), Value,
           "occupancy: {} has no WGPs; --wgp_mode and --cu_mode are of RDNA only", arch.gfx);
  inspect::KernelResources kernel = s.kernel;
  kernel.wgp_mode = !s.cu_mode;
  const inspect::Occupancy o = inspect::occupancy(arch, kernel);
  const inspect::KernelResources& k = o.kernel;
  Json j = {{"schema", "pyflame.occupancy/1"},
            {"arch", arch_json(arch)},
            {"kernel",
             {{"vgpr", k.vgpr},
              {"agpr", k.agpr},
              {"sgpr", k.sgpr},
              {"lds", k.lds},
              {"dynamic_lds", k.dynamic_lds},
              {"block", k.block}}},
            {"occupancy", inspect::to_json(o)},
            {"vgpr_steps", Json::array()},
            {"guide", guide_json(o)},
            {"launch", nullptr}};
  for (const inspect::VgprStep& step : inspect::vgpr_steps(arch, k.wave))
    j["vgpr_steps"].push_back({{"waves", step.waves}, {"max_vgprs", step.max_vgprs}});
  if (!s.grid.empty())
    j["launch"] = inspect::to_json(inspect::analyse_launch(o, inspect::machine_of(arch, s.cus), parse_grid(s.grid)));
  return j;
}

std::string number(const Json& j) { return std::to_string(j.get<int64_t>()); }
std::string text_of(const Json& j) { return j.get<std::string>(); }

std::string plural(int64_t n, const std::string& what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

void print_list(const Json& doc) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& a : doc["architectures"]) {
    std::string waves, products;
    for (const Json& w : a["waves"]) waves += (waves.empty() ? "" : ", ") + number(w);
    for (const Json& p : a["products"])
      if (products.find(text_of(p)) == std::string::npos) products += (products.empty() ? "" : ", ") + text_of(p);
    rows.push_back({text_of(a["gfx"]), text_of(a["family"]), waves, number(a["max_waves_per_simd"]), number(a["vgprs"]),
                    number(a["vgpr_granule"]), view::bytes(a["lds_bytes"]), number(a["lds_granule"]), text_of(a["fp8"]),
                    products});
  }
  fmt::print("{}", view::table(Style::of(STDOUT_FILENO),
                               {"architecture", "family", "wave", ">waves", ">VGPRs", ">step", ">LDS", ">step", "fp8",
                                "products"},
                               rows));
}

void print_answer(const Style& style, const Json& doc) {
  const Json &o = doc["occupancy"], &arch = doc["arch"];
  const bool runs = o["workgroups"] > 0;
  const std::string mode = o["wgp_mode"].is_null() ? "" : o["wgp_mode"].get<bool>() ? ", WGP mode" : ", CU mode";
  const std::string where = text_of(o["workgroups_per"]);
  fmt::print("{}\n",
             view::paint(style, Tone::bold,
                         fmt::format("{} ({}), wave{}{}: {} of {} waves per SIMD, limited by {}", text_of(arch["gfx"]),
                                     text_of(arch["family"]), number(o["wave"]), mode, number(o["waves_per_simd"]),
                                     number(o["max_waves"]), text_of(o["limiter"]))));
  if (runs)
    fmt::print("{} of {} threads per {}: {} on {} SIMDs, {} of the slots\n", plural(o["workgroups"], "workgroup"),
               number(o["block"]), where, plural(o["waves"], "wave"), number(o["simds"]), view::percent(o["fill"]));
  else
    fmt::print(
        "{}\n",
        view::paint(style, Tone::red,
                    fmt::format("A workgroup of {} threads does not fit: its {} waves need more {} than a {} has.",
                                number(o["block"]), number(o["waves_per_workgroup"]), text_of(o["limiter"]), where)));
  if (o["idle_lanes"] > 0)
    fmt::print("The block is not a multiple of the wave: {} of its last wave idle.\n", plural(o["idle_lanes"], "lane"));
  if (o["compiler_waves"] != o["waves_per_simd"])
    fmt::print(
        "{}\n",
        view::wrap(fmt::format("LLVM prints \"Occupancy: {}\": it counts registers without whole workgroups, and LDS "
                               "without dynamic LDS and without its allocation step of {} bytes.",
                               number(o["compiler_waves"]), number(arch["lds_granule"])),
                   style.width));
}

void print_limits(const Style& style, const Json& doc) {
  const Json &o = doc["occupancy"], &k = doc["kernel"], &arch = doc["arch"];
  std::vector<std::vector<std::string>> rows;
  for (const char* name : {"VGPRs", "SGPRs", "LDS", "barriers", "waves"}) {
    if (!o["limits"].contains(name)) continue;
    std::string used, allocated;
    if (name == std::string("VGPRs")) used = number(k["vgpr"]), allocated = number(o["allocated_vgpr"]);
    if (name == std::string("SGPRs")) used = number(k["sgpr"]);
    if (name == std::string("LDS"))
      used = fmt::format("{} bytes", k["lds"].get<int64_t>() + k["dynamic_lds"].get<int64_t>()),
      allocated = number(o["allocated_lds"]);
    rows.push_back({name, used, allocated, number(o["limits"][name]), text_of(o["limiter"]) == name ? "limits" : ""});
  }
  fmt::print("\n{}", view::table(style, {"resource", ">used", ">allocated", ">waves per SIMD", ""}, rows));
  if (o["next"].is_object()) {
    fmt::print("\nNext step, {} per SIMD ({} per {}): save {}.\n", plural(o["next"]["waves"], "wave"),
               plural(o["next"]["workgroups"], "workgroup"), text_of(o["workgroups_per"]), text_of(o["next"]["save"]));
    if (o["next"].contains("hint")) fmt::print("Ask the compiler: {}.\n", text_of(o["next"]["hint"]));
  }
  rows.clear();
  for (const Json& b : o["blocks"])
    rows.push_back({number(b["block"]), number(b["workgroups"]), number(b["waves_per_simd"]), view::bar(b["fill"], 16),
                    view::percent(b["fill"]), text_of(b["limiter"])});
  fmt::print("\n{}",
             view::table(style, {">block", ">workgroups", ">waves per SIMD", "slots", ">filled", "limited by"}, rows));

  const int vgprs = std::max<int>(1, k["vgpr"]), most = arch["addressable_vgprs"];
  rows.clear();
  int below = 0;
  for (auto step = doc["vgpr_steps"].rbegin(); step != doc["vgpr_steps"].rend(); ++step) {
    const int max = (*step)["max_vgprs"];
    rows.push_back({number((*step)["waves"]), fmt::format("{} to {}", below + 1, max),
                    view::bar(static_cast<double>(max) / most, 32),
                    below < vgprs && vgprs <= max ? "<- this kernel" : ""});
    below = max;
  }
  fmt::print("\n{}", view::table(style, {">waves per SIMD", ">VGPRs", "", ""}, rows));
}

void print_guide(const Style& style, const Json& guide) {
  if (guide.is_null()) return;
  std::string text = fmt::format("The formula of the MI300X workload guide gives an occupancy of {}",
                                 guide["waves_per_simd"].get<double>());
  if (guide["agrees"].get<bool>()) {
    text += ", which is right here";
    std::string ranges;
    for (const Json& r : guide["wrong_for_vgprs"])
      ranges += fmt::format("{}{}-{}", ranges.empty() ? "" : ", ", number(r[0]), number(r[1]));
    text += fmt::format("; it counts VGPRs in steps of 16 and is wrong for {} VGPRs.", ranges);
  } else {
    std::string reasons;
    for (const Json& why : guide["why_wrong"]) reasons += (reasons.empty() ? "" : "; ") + text_of(why);
    text += fmt::format(", which is wrong: {}.", reasons);
  }
  fmt::print("\n{}\n", view::wrap(text, style.width));
}

void print_launch(const Style& style, const Json& l) {
  if (l.is_null()) return;
  const Json& m = l["machine"];
  const std::string unit = text_of(l["unit"]);
  fmt::print("\n{}\n", view::paint(style, Tone::bold,
                                   fmt::format("Launch of {}x{}x{} workgroups on {}{} CUs{}", number(l["grid"][0]),
                                               number(l["grid"][1]), number(l["grid"][2]),
                                               m["name"].is_null() ? "" : text_of(m["name"]) + ", ", number(m["cus"]),
                                               m["xccs"] > 1 ? ", " + number(m["xccs"]) + " XCDs" : "")));
  fmt::print("{}",
             view::table(style, {"", ">"},
                         {{"workgroups at once", number(l["at_once"])},
                          {"rounds", number(l["rounds"])},
                          {"filled by the first round", view::percent(l["fill"])},
                          {"filled by the last round", view::percent(l["tail_fill"])},
                          {"mean waves per SIMD", fmt::format("{:.2f}", l["waves_per_simd"].get<double>())},
                          {unit + "s with work", fmt::format("{} of {}", number(l["busy_units"]), number(l["units"]))},
                          {"balance of the " + unit + "s", view::percent(l["balance"])}}));
  for (const Json& a : l["advice"]) {
    const std::string severity = text_of(a["severity"]);
    const Tone tone = severity == "HIGH" ? Tone::red : severity == "MED" ? Tone::yellow : Tone::plain;
    fmt::print("{} {}\n", view::paint(style, tone, fmt::format("{:<4}", severity)), text_of(a["what"]));
    fmt::print("     {}\n", view::wrap(text_of(a["why"]) + " Do: " + text_of(a["fix"]) + ".", style.width, 5));
  }
}

void print_text(const Json& doc) {
  const Style style = Style::of(STDOUT_FILENO);
  print_answer(style, doc);
  print_limits(style, doc);
  print_guide(style, doc["guide"]);
  print_launch(style, doc["launch"]);
}

int answer(const Settings& s) {
  const Json doc = s.list ? list_document() : document(s);
  if (s.as_json) fmt::print("{}\n", doc.dump(2));
  else if (s.list) print_list(doc);
  else print_text(doc);
  return kOk;
}

}  // namespace

void add_occupancy(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("occupancy", "How many waves fit on a SIMD, and what limits them");
  auto s = std::make_shared<Settings>();
  sub->add_option("--arch", s->arch, "Architecture, such as gfx942 or gfx1100");
  sub->add_option("--vgpr", s->kernel.vgpr, "VGPRs of the kernel, as .vgpr_count: with the AGPRs on gfx90a and later");
  sub->add_option("--agpr", s->kernel.agpr, "AGPRs of the kernel");
  sub->add_option("--sgpr", s->kernel.sgpr, "SGPRs of the kernel, as .sgpr_count");
  sub->add_option("--lds", s->kernel.lds, "Bytes of LDS of a workgroup");
  sub->add_option(names("dynamic_lds"), s->kernel.dynamic_lds, "Bytes of LDS given at launch");
  sub->add_option("--block", s->kernel.block, "Threads of a workgroup")->capture_default_str();
  sub->add_option("--wave", s->kernel.wave, "Wave size, 32 or 64; the architecture's default otherwise");
  CLI::Option* wgp =
      sub->add_flag(names("wgp_mode"), s->wgp_mode, "RDNA: a workgroup may use both CUs of a WGP (the default)");
  sub->add_flag(names("cu_mode"), s->cu_mode, "RDNA: a workgroup stays on one CU")->excludes(wgp);
  CLI::Option* grid = sub->add_option("--grid", s->grid, "Workgroups of a launch, X, X,Y or X,Y,Z: analyse it");
  sub->add_option("--cus", s->cus, "CUs of the machine; those of the architecture's first product otherwise")
      ->needs(grid);
  sub->add_flag("--list", s->list, "The architectures");
  sub->add_flag("--json", s->as_json, "As one JSON object");
  sub->callback([&run, s] { run = [s] { return answer(*s); }; });
}

}  // namespace pyflame::cli
