// Computes how a grid fills the compute units of a GPU.
#include "tools/inspect/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "tools/view/severity.h"

namespace pyflame::tools::inspect {

namespace {

// The MI300X workload guide asks for this many workgroups on 304 CUs.
constexpr int64_t kGuideWorkgroups = 1024;
constexpr int kLargeMachineCus = 256;
// Less than this of the machine's time is not worth a word.
constexpr double kWorthMention = 0.1;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::string percent(double fraction) { return fmt::format("{:.0f} %", 100 * fraction); }

void advise_on_size(Launch& l) {
  const char* unit = l.wgps ? "WGPs" : "CUs";
  if (l.workgroups < l.units)
    l.advice.push_back(
        {"HIGH", fmt::format("{} of {} {} have no workgroup", l.units - l.workgroups, l.units, unit),
         "A workgroup runs on one of them only, whatever its size.",
         fmt::format("smaller tiles or a split of the reduction (split-K), to at least {} workgroups", l.units)});
  if (l.machine.cus >= kLargeMachineCus && l.workgroups < kGuideWorkgroups)
    l.advice.push_back(
        {l.workgroups < l.units ? "LOW" : "MED", fmt::format("{} workgroups for {} CUs", l.workgroups, l.machine.cus),
         fmt::format(
             "The MI300X workload guide asks for at least {} and prefers more: several for each CU hide waits and even "
             "out what is left over.",
             kGuideWorkgroups),
         fmt::format("smaller tiles or split-K, to at least {} workgroups", kGuideWorkgroups)});
  if (l.workgroups >= l.units && 1 - l.balance > kWorthMention)
    l.advice.push_back(
        {1 - l.balance > 0.25 ? "MED" : "LOW",
         fmt::format("the fullest {} runs {} workgroups, the mean is {:.2f}", l.wgps ? "WGP" : "CU", l.unit_most,
                     static_cast<double>(l.workgroups) / static_cast<double>(l.units)),
         fmt::format("Where a workgroup keeps its {} busy, {} of the machine's time is the tail.",
                     l.wgps ? "WGP" : "CU", percent(1 - l.balance)),
         fmt::format("a grid of a multiple of {} workgroups, {} or {}, or a persistent kernel with {}", l.units,
                     std::max<int64_t>(1, l.workgroups / l.units) * l.units, l.unit_most * l.units, l.at_once)});
  if (l.rounds > 1 && l.tail_fill < 0.5 && 1 - l.tail_fill > kWorthMention * static_cast<double>(l.rounds))
    l.advice.push_back(
        {"MED", fmt::format("the last of {} rounds fills {} of the machine", l.rounds, percent(l.tail_fill)),
         fmt::format("{} workgroups run at once; {} are left for a round of their own.", l.at_once, l.tail),
         fmt::format("{} workgroups, or smaller ones so that the tail is short", (l.rounds - 1) * l.at_once)});
}

void advise_on_shape(Launch& l, const Occupancy& o) {
  if (l.xcd_most != l.xcd_least && l.xcd_most > 0 &&
      static_cast<double>(l.xcd_most - l.xcd_least) / static_cast<double>(l.xcd_most) > kWorthMention / 2)
    l.advice.push_back(
        {"LOW",
         fmt::format("{} workgroups are not a multiple of the {} XCDs: some get {}, others {}", l.workgroups,
                     l.machine.xccs, l.xcd_most, l.xcd_least),
         "Workgroups are dealt to the XCDs in turn; each has its own L2 cache.",
         fmt::format("a multiple of {} workgroups, and an order of tiles that keeps neighbours on one XCD",
                     l.machine.xccs)});
  if (o.idle_lanes > 0)
    l.advice.push_back(
        {l.idle_lanes > 0.25 ? "HIGH" : "MED",
         fmt::format("{} threads are not a multiple of the wave: {} of {} lanes of each workgroup idle", o.kernel.block,
                     o.idle_lanes, o.waves_per_workgroup * o.kernel.wave),
         fmt::format("A wave has {} lanes, and {} of all lanes never work.", o.kernel.wave, percent(l.idle_lanes)),
         fmt::format("a block of {} or {} threads", std::max(1, o.kernel.block / o.kernel.wave) * o.kernel.wave,
                     o.waves_per_workgroup * o.kernel.wave)});
}

}  // namespace

Machine machine_of(const GpuArch& arch, int cus) {
  PF_CHECK(cus >= 0 && cus <= 100000, Value, "launch: no machine has that many CUs; got {}; expected 1 to 100000", cus);
  const GpuProduct* product = find_gpu_product(arch.gfx, {}, cus);
  PF_CHECK(product != nullptr || cus > 0, Value,
           "launch: no product with {} is known; hint: say how many CUs the machine has (--cus)", arch.gfx);
  if (product == nullptr) return {"", cus, 1};
  if (cus == 0 || cus == product->cus) return {std::string(product->name), product->cus, product->xccs};
  const int per_xcc = product->cus / product->xccs;
  return {"", cus, product->xccs == 1 ? 1 : std::max(1, (cus + per_xcc / 2) / per_xcc)};
}

Launch analyse_launch(const Occupancy& o, const Machine& machine, const std::array<int64_t, 3>& grid) {
  PF_CHECK(o.workgroups > 0, Value, "launch: the kernel cannot be launched with {} threads; got a limit by {}",
           o.kernel.block, to_string(o.limiter));
  PF_CHECK(machine.cus > 0 && machine.xccs > 0, Value, "launch: the machine has no CUs");
  constexpr int64_t kMostPerDimension = std::numeric_limits<int32_t>::max(), kMost = int64_t{1} << 40;
  Launch l{};
  l.workgroups = 1;
  for (const int64_t n : grid) {
    PF_CHECK(n >= 1 && n <= kMostPerDimension, Value,
             "launch: a grid cannot have that size; got {}x{}x{}; expected 1 to {} each", grid[0], grid[1], grid[2],
             kMostPerDimension);
    PF_CHECK(l.workgroups <= kMost / n, Value, "launch: too many workgroups; got {}x{}x{}; expected at most 2^40",
             grid[0], grid[1], grid[2]);
    l.workgroups *= n;
  }
  l.machine = machine;
  l.grid = grid;
  l.waves = l.workgroups * o.waves_per_workgroup;
  l.wgps = o.kernel.wgp_mode;
  l.units = l.wgps ? std::max(1, machine.cus / 2) : machine.cus;
  l.at_once = l.units * o.workgroups;
  l.rounds = ceil_div(l.workgroups, l.at_once);
  l.tail = l.workgroups - (l.rounds - 1) * l.at_once;
  l.busy_units = std::min(l.workgroups, l.units);
  l.unit_most = ceil_div(l.workgroups, l.units);
  const auto share = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  const int64_t first = std::min(l.workgroups, l.at_once);
  l.fill = share(first, l.at_once);
  l.tail_fill = share(l.tail, l.at_once);
  l.balance = share(l.workgroups, l.units) / static_cast<double>(l.unit_most);
  l.waves_per_simd = share(first * o.waves_per_workgroup, l.units * o.simds);
  l.idle_lanes = share(o.idle_lanes, int64_t{o.waves_per_workgroup} * o.kernel.wave);
  l.xcd_most = ceil_div(l.workgroups, machine.xccs);
  l.xcd_least = l.workgroups / machine.xccs;
  advise_on_size(l);
  advise_on_shape(l, o);
  const auto rank = [](const Launch::Advice& a) { return view::severity_rank(a.severity); };
  std::stable_sort(l.advice.begin(), l.advice.end(),
                   [&](const Launch::Advice& a, const Launch::Advice& b) { return rank(a) < rank(b); });
  return l;
}

nlohmann::json to_json(const Launch& l) {
  nlohmann::json j = {
      {"machine", {{"name", nullptr}, {"cus", l.machine.cus}, {"xccs", l.machine.xccs}}},
      {"grid", l.grid},
      {"workgroups", l.workgroups},
      {"waves", l.waves},
      {"units", l.units},
      {"unit", l.wgps ? "WGP" : "CU"},
      {"at_once", l.at_once},
      {"rounds", l.rounds},
      {"tail", l.tail},
      {"busy_units", l.busy_units},
      {"unit_most", l.unit_most},
      {"fill", l.fill},
      {"tail_fill", l.tail_fill},
      {"balance", l.balance},
      {"waves_per_simd", l.waves_per_simd},
      {"idle_lanes", l.idle_lanes},
      {"xcd_most", l.xcd_most},
      {"xcd_least", l.xcd_least},
      {"advice", nlohmann::json::array()},
      {"assumptions",
       {"workgroups are dealt to the XCDs in turn and evenly over their CUs", "all workgroups last equally long"}}};
  if (!l.machine.name.empty()) j["machine"]["name"] = l.machine.name;
  for (const Launch::Advice& a : l.advice)
    j["advice"].push_back({{"severity", a.severity}, {"what", a.what}, {"why", a.why}, {"fix", a.fix}});
  return j;
}

}  // namespace pyflame::tools::inspect
