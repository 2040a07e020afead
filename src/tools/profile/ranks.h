// Compares the ranks of a job: which of them comes last to a collective, and how much of the time in collectives is
// waiting for it. The traces may be of several hosts, whose clocks differ: they are aligned at the ends of collectives,
// because all ranks leave an all-reduce, an all-gather or a reduce-scatter at nearly the same time.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/profile/trace.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

struct Profile;

struct RankRow {
  int32_t rank = 0, process = 0;
  int64_t last = 0;  // collectives to which it came last
  // In the compared collectives: all of the time, the part before the last rank came, and the waiting of the other
  // ranks for this one.
  double total_us = 0, waiting_us = 0, caused_us = 0;
  double window_us = 0, compute_us = 0;  // from the first to the last of them; with other kernels
};

struct CollectiveRow {
  std::string name;
  int32_t size = 0;
  int64_t bytes = -1, calls = 0, last_calls = 0;
  int32_t last_rank = -1;                                    // that came last most often, in last_calls
  double skew_us = 0, longest_skew_us = 0, transfer_us = 0;  // medians over the calls, but for the longest
};

struct Ranks {
  std::vector<RankRow> rows;  // by rank; empty: there is only one
  std::vector<CollectiveRow> collectives;
  int32_t world = -1;  // ranks of the job; -1: unknown
  int64_t compared = 0;
  int64_t partial = 0;      // of the compared: collectives with ranks whose traces are not given
  int64_t unmatched = 0;    // calls without a partner in the other traces
  int64_t uneven = 0;       // collectives that ranks left at different times, such as broadcasts: they are not compared
  double precision_us = 0;  // how far the ends of a collective differ, after the clocks were aligned
  bool aligned = false;     // the clocks differed
  int32_t straggler = -1;   // the rank for which the others wait; -1: none, or it changes
  int32_t reported = -1;    // the rank of which the rest of the report is
  double waiting_share = 0;    // of the time in collectives, of all ranks
  double waiting_of_wall = 0;  // of the compared time, the mean of all ranks
};

// Compares the ranks of a profile and keeps the events of one of them: `rank`, or if it is negative, the straggler or
// else the first. Call it after the last file and before link().
void merge_ranks(Profile& profile, int rank);

nlohmann::json ranks_json(const Ranks& ranks);  // null for one rank
std::string ranks_text(const nlohmann::json& document, const view::Style& style);
std::string ranks_verdict(const nlohmann::json& document);  // empty: the ranks are not the headline

}  // namespace pyflame::tools::profile
