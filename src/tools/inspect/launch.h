// How a grid fills a GPU: rounds of workgroups over the CUs, the last incomplete round, the share of XCDs, idle lanes.
#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/base/finding.h"
#include "tools/inspect/occupancy.h"

namespace pyflame::tools::inspect {

struct Machine {
  std::string name;  // empty: only the counts are known
  int cus = 0, xccs = 1;
};

// The product of the architecture that has `cus` CUs, or its first one if `cus` is 0. For a partition of a product with
// XCDs, the number of XCDs follows from the CUs. Throws Error(Value) if no product is known and no CUs are given.
Machine machine_of(const GpuArch& arch, int cus = 0);

// Workgroups are distributed evenly: to the XCDs in turn, and within an XCD to the CU with the most free space. All are
// assumed to take the same time.
struct Launch {
  Machine machine;
  std::array<int64_t, 3> grid;  // workgroups
  int64_t workgroups, waves;
  int64_t units;                // CUs, or WGPs in WGP mode, that hold workgroups
  bool wgps;                    // which of them
  int64_t at_once;              // workgroups that the machine holds
  int64_t rounds, tail;         // `tail` workgroups in the last round
  int64_t busy_units;           // that have any work
  int64_t unit_most;            // workgroups of the fullest unit in the whole run
  double fill;                  // of `at_once`, in the first round
  double tail_fill;             // of `at_once`, in the last round
  double balance;               // mean work of a unit over that of the fullest: 1 is even
  double waves_per_simd;        // mean over the machine in the first round
  double idle_lanes;            // share of all lanes of all waves
  int64_t xcd_most, xcd_least;  // workgroups per XCD
  std::vector<Finding> findings;
};

// `grid` is in workgroups. Throws Error(Value) if a size is not 1 to 2^31-1, if there are more than 2^40 workgroups, or
// if the kernel cannot be launched.
Launch analyse_launch(const Occupancy& o, const Machine& machine, const std::array<int64_t, 3>& grid);

nlohmann::json to_json(const Launch& launch);  // "launch" of the documents

}  // namespace pyflame::tools::inspect
