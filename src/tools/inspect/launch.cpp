// Computes how a grid fills the compute units of a GPU.
#include "tools/inspect/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "tools/view/finding.h"

namespace pyflame::tools::inspect {

namespace {

// The number of workgroups that the MI300X workload guide asks for on 304 CUs.
constexpr int64_t kGuideWorkgroups = 1024;
constexpr int kLargeMachineCus = 256;
// A smaller share of the machine's time is not reported.
constexpr double kWorthMention = 0.1;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::string percent(double fraction) { return fmt::format("{:.0f} %", 100 * fraction); }

void add(Launch& l, RuleText rule, std::string what) { l.findings.push_back(make_finding(rule, std::move(what))); }

// The rules over a launch. Severities and texts depend on the numbers, so each rule is a condition with its text.
void judge_size(Launch& l) {
  const char *unit = l.wgps ? "WGP" : "CU", *units = l.wgps ? "WGPs" : "CUs";
  if (l.workgroups < l.units)
    add(l,
        {.id = "idle-units",
         .severity = Severity::high,
         .title = fmt::format("Some {} have no work", units),
         .why = "A workgroup runs on one of them only, whatever its size.",
         .fixes = {fmt::format("Use smaller tiles, or split the reduction (split-K), for at least {} workgroups.",
                               l.units)}},
        fmt::format("{} of {} {} have no workgroup.", l.units - l.workgroups, l.units, units));
  if (l.machine.cus >= kLargeMachineCus && l.workgroups < kGuideWorkgroups)
    add(l,
        {.id = "few-workgroups",
         .severity = l.workgroups < l.units ? Severity::low : Severity::med,
         .title = "Few workgroups for this GPU",
         .why = fmt::format("The MI300X workload guide asks for at least {} workgroups and prefers more. Several "
                            "workgroups for each CU hide waits and balance the load.",
                            kGuideWorkgroups),
         .fixes = {fmt::format("Use smaller tiles or split-K, for at least {} workgroups.", kGuideWorkgroups)},
         .source = "MI300X workload guide"},
        fmt::format("{} workgroups for {} CUs.", l.workgroups, l.machine.cus));
  if (l.workgroups >= l.units && 1 - l.balance > kWorthMention)
    add(l,
        {.id = "uneven-units",
         .severity = 1 - l.balance > 0.25 ? Severity::med : Severity::low,
         .title = fmt::format("The {} have different amounts of work", units),
         .why = fmt::format("If one workgroup keeps its {} busy, {} of the machine's time is spent on the tail.", unit,
                            percent(1 - l.balance)),
         .fixes = {fmt::format(
             "Use a grid of a multiple of {} workgroups ({} or {}), or a persistent kernel with {} workgroups.",
             l.units, std::max<int64_t>(1, l.workgroups / l.units) * l.units, l.unit_most * l.units, l.at_once)}},
        fmt::format("The fullest {} runs {} workgroups, the mean is {:.2f}.", unit, l.unit_most,
                    static_cast<double>(l.workgroups) / static_cast<double>(l.units)));
  if (l.rounds > 1 && l.tail_fill < 0.5 && 1 - l.tail_fill > kWorthMention * static_cast<double>(l.rounds))
    add(l,
        {.id = "partial-last-round",
         .severity = Severity::med,
         .title = "The last round fills little of the machine",
         .why = fmt::format("{} workgroups run at once. {} remain for a round of their own.", l.at_once, l.tail),
         .fixes = {fmt::format("Use {} workgroups, or smaller ones, so that the tail is short.",
                               (l.rounds - 1) * l.at_once)}},
        fmt::format("The last of {} rounds fills {} of the machine.", l.rounds, percent(l.tail_fill)));
}

void judge_shape(Launch& l, const Occupancy& o) {
  if (l.xcd_most != l.xcd_least && l.xcd_most > 0 &&
      static_cast<double>(l.xcd_most - l.xcd_least) / static_cast<double>(l.xcd_most) > kWorthMention / 2)
    add(l,
        {.id = "uneven-xcds",
         .severity = Severity::low,
         .title = "The XCDs have different amounts of work",
         .why = "Workgroups are given to the XCDs in turn. Each XCD has its own L2 cache.",
         .fixes = {fmt::format(
             "Use a multiple of {} workgroups, and an order of tiles that keeps neighbours on one XCD.",
             l.machine.xccs)}},
        fmt::format("{} workgroups are not a multiple of the {} XCDs: some XCDs get {}, others {}.", l.workgroups,
                    l.machine.xccs, l.xcd_most, l.xcd_least));
  if (o.idle_lanes > 0)
    add(l,
        {.id = "idle-lanes",
         .severity = l.idle_lanes > 0.25 ? Severity::high : Severity::med,
         .title = "Lanes without a thread",
         .why =
             fmt::format("A wave has {} lanes, and {} of all lanes never work.", o.kernel.wave, percent(l.idle_lanes)),
         .fixes = {fmt::format("Use a block of {} or {} threads.",
                               std::max(1, o.kernel.block / o.kernel.wave) * o.kernel.wave,
                               o.waves_per_workgroup * o.kernel.wave)}},
        fmt::format("{} threads are not a multiple of the wave: {} of {} lanes of each workgroup are idle.",
                    o.kernel.block, o.idle_lanes, o.waves_per_workgroup * o.kernel.wave));
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
  judge_size(l);
  judge_shape(l, o);
  sort_findings(l.findings);
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
      {"advice", view::to_json(l.findings)},
      {"assumptions",
       {"workgroups are given to the XCDs in turn, and evenly to their CUs", "all workgroups take the same time"}}};
  if (!l.machine.name.empty()) j["machine"]["name"] = l.machine.name;
  return j;
}

}  // namespace pyflame::tools::inspect
