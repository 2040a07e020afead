// How a grid fills a machine: rounds of workgroups over the CUs, the tail of the last round, the share of XCDs, lanes
// without work.
#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/inspect/occupancy.h"

namespace pyflame::tools::inspect {

struct Machine {
  std::string name;  // empty: only the counts are known
  int cus = 0, xccs = 1;
};

// The product of the architecture that has `cus` CUs, or its first where `cus` is 0. A partition of a product with XCDs
// has as many of them as its CUs fill. Throws Error(Value) where no product is known and no CUs are given.
Machine machine_of(const GpuArch& arch, int cus = 0);

// Workgroups are dealt evenly: to the XCDs in turn, on each XCD to the CU with the most room. All are taken to
// last equally long.
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
  struct Advice {
    std::string severity, what, why, fix;
  };
  std::vector<Advice> advice;
};

// `grid` counts workgroups. Throws Error(Value) where a size is not 1 to 2^31-1, where there are more than 2^40
// workgroups and where the kernel cannot be launched.
Launch analyse_launch(const Occupancy& o, const Machine& machine, const std::array<int64_t, 3>& grid);

nlohmann::json to_json(const Launch& launch);  // "launch" of the documents

}  // namespace pyflame::tools::inspect
