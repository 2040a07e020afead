// Matches the collectives of several ranks, aligns the ranks' clocks, and tells waiting from transfer.
#include "tools/profile/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "pyflame/base/error.h"
#include "tools/profile/importer.h"

namespace pyflame::tools::profile {

namespace {

constexpr int kMaxShift = 64;            // calls by which the recordings of two ranks may begin earlier or later
constexpr int64_t kSameClock = 200'000;  // clocks that differ by less than this are of one host, or synchronised
// Ranks leave together if their ends differ by no more than this time or this part of the longest call.
constexpr int64_t kTogether = 100'000, kTogetherPart = 10;
constexpr double kLittleWaiting = 0.05;  // of the time in collectives

double in_us(int64_t ns) { return static_cast<double>(ns) / 1000; }

template <class T>
T median(std::vector<T> values) {
  if (values.empty()) return T{};
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The same call of a collective on several ranks, by the position of the rank.
using Instance = std::map<size_t, const Collective*>;
using Calls = std::vector<const Collective*>;

// An all-to-all may have other sizes on each rank.
bool same_call(const Trace& t, const Collective& a, const Collective& b) {
  if (a.name != b.name || a.dtype != b.dtype) return false;
  return a.elements == b.elements || t.names[a.name].find("all_to_all") != std::string::npos ||
         t.names[a.name].find("alltoall") != std::string::npos;
}

// Messages between two ranks are no collectives.
bool is_message(const std::string& name) {
  return name == "send" || name == "recv" || name.find("isend") != std::string::npos ||
         name.find("irecv") != std::string::npos || name.find("SendRecv") != std::string::npos;
}

// Whether each rank needs the data of all others, so that none can leave before the last came. That a broadcast's root
// leaves early says nothing about clocks.
bool needs_all(const std::string& name) {
  for (const char* word : {"allreduce", "all_reduce", "AllReduce", "allgather", "all_gather", "AllGather",
                           "reduce_scatter", "ReduceScatter", "all_to_all", "alltoall", "AllToAll", "barrier"})
    if (name.find(word) != std::string::npos) return true;
  return name.starts_with("ncclDevKernel_Generic");  // of any kind: their ends show whether it is one of these
}

// How well the calls fit if those of `b` are moved by `shift`: how much the differences of their ends differ. Negative:
// they are not the same calls.
int64_t misfit(const Trace& t, const Calls& a, const Calls& b, int64_t shift) {
  std::vector<int64_t> differences;
  size_t matched = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const int64_t k = static_cast<int64_t>(i) + shift;
    if (k < 0 || k >= static_cast<int64_t>(b.size())) continue;
    const Collective& other = *b[static_cast<size_t>(k)];
    if (!same_call(t, *a[i], other)) return -1;
    ++matched;
    if (needs_all(t.names[other.name])) differences.push_back(other.end - a[i]->end);
  }
  if (matched * 2 < std::min(a.size(), b.size())) return -1;
  if (differences.empty()) return shift == 0 ? 0 : -1;
  const int64_t middle = median(differences);
  for (int64_t& d : differences) d = std::abs(d - middle);
  return median(differences);
}

// By how many calls the recording of `b` began earlier than that of `a`; false if the calls do not match.
bool find_shift(const Trace& t, const Calls& a, const Calls& b, int64_t& shift) {
  int64_t best = a.size() == b.size() ? misfit(t, a, b, 0) : -1;
  shift = 0;
  if (best >= 0) return true;
  for (int64_t s = -kMaxShift; s <= kMaxShift; ++s) {
    const int64_t value = misfit(t, a, b, s);
    if (value < 0 || (best >= 0 && value >= best)) continue;
    best = value;
    shift = s;
  }
  return best >= 0;
}

class Comparison {
 public:
  Comparison(const Trace& trace, const std::vector<RankTrace>& ranks) : t_(trace) {
    for (const RankTrace& r : ranks) {
      out_.rows.push_back({.rank = r.rank, .process = r.process});
      out_.world = std::max(out_.world, r.world);
    }
  }

  Ranks make() {
    match();
    align();
    std::map<std::tuple<NameId, int32_t, int64_t>, std::vector<size_t>> kinds;
    for (size_t i = 0; i < instances_.size(); ++i) {
      if (!measure(i)) continue;
      const Collective& c = *instances_[i].begin()->second;
      kinds[{c.name, c.size, c.bytes}].push_back(i);
    }
    for (const auto& [key, members] : kinds) add_kind(members);
    std::stable_sort(out_.collectives.begin(), out_.collectives.end(), [](const auto& a, const auto& b) {
      return static_cast<double>(a.calls) * a.skew_us > static_cast<double>(b.calls) * b.skew_us;
    });
    out_.precision_us = in_us(median(spreads_));
    other_work();
    judge();
    return std::move(out_);
  }

 private:
  void match() {
    std::map<NameId, std::map<size_t, Calls>> groups;
    std::map<int32_t, size_t> position;
    for (size_t i = 0; i < out_.rows.size(); ++i) position[out_.rows[i].process] = i;
    for (const Collective& c : t_.collectives)
      if (const auto at = position.find(c.process); at != position.end() && !is_message(t_.names[c.name]))
        groups[c.group][at->second].push_back(&c);
    for (auto& [group, ranks] : groups) {
      for (auto& [rank, calls] : ranks)
        std::stable_sort(calls.begin(), calls.end(), [](auto* a, auto* b) { return a->start < b->start; });
      const bool numbered = std::all_of(ranks.begin(), ranks.end(), [](const auto& r) {
        return std::all_of(r.second.begin(), r.second.end(), [](auto* c) { return c->sequence >= 0; });
      });
      if (numbered) by_number(ranks);
      else by_order(ranks);
    }
  }

  // Calls may share a number if they were coalesced: then their order tells them apart.
  void by_number(const std::map<size_t, Calls>& ranks) {
    std::map<std::tuple<int64_t, NameId, int>, Instance> found;
    for (const auto& [rank, calls] : ranks) {
      std::map<std::pair<int64_t, NameId>, int> seen;
      for (const Collective* c : calls) found[{c->sequence, c->name, seen[{c->sequence, c->name}]++}][rank] = c;
    }
    for (auto& [key, instance] : found) keep(std::move(instance));
  }

  void by_order(const std::map<size_t, Calls>& ranks) {
    const auto& [first, reference] = *ranks.begin();
    std::vector<Instance> found(reference.size());
    for (size_t i = 0; i < reference.size(); ++i) found[i][first] = reference[i];
    for (const auto& [rank, calls] : ranks) {
      int64_t shift = 0;
      if (rank == first) continue;
      if (!find_shift(t_, reference, calls, shift)) {
        out_.unmatched += static_cast<int64_t>(calls.size());
        continue;
      }
      for (size_t i = 0; i < calls.size(); ++i) {
        const int64_t k = static_cast<int64_t>(i) - shift;
        if (k >= 0 && k < static_cast<int64_t>(found.size())) found[static_cast<size_t>(k)][rank] = calls[i];
        else ++out_.unmatched;
      }
    }
    for (Instance& instance : found) keep(std::move(instance));
  }

  void keep(Instance instance) {
    if (instance.size() < 2) out_.unmatched += static_cast<int64_t>(instance.size());
    else instances_.push_back(std::move(instance));
  }

  // The clock of a rank is that of the first plus the median of what their ends differ. A rank that shares no
  // collective with the first is reached over others.
  void align() {
    offset_.assign(out_.rows.size(), 0);
    std::vector<bool> known(out_.rows.size(), false);
    known[0] = true;
    for (bool more = true; more;) {
      more = false;
      for (size_t r = 0; r < known.size(); ++r) {
        if (known[r]) continue;
        std::vector<int64_t> differences;
        for (const Instance& instance : instances_) {
          const auto mine = instance.find(r);
          if (mine == instance.end() || !needs_all(t_.names[mine->second->name])) continue;
          for (const auto& [rank, c] : instance)
            if (known[rank]) {
              differences.push_back(mine->second->end - c->end + offset_[rank]);
              break;
            }
        }
        if (differences.empty()) continue;
        offset_[r] = median(differences);
        known[r] = more = true;
        out_.aligned = out_.aligned || std::abs(offset_[r]) > kSameClock;
      }
    }
  }

  int64_t start(size_t rank, const Collective& c) const { return c.start - offset_[rank]; }
  int64_t end(size_t rank, const Collective& c) const { return c.end - offset_[rank]; }

  struct Arrival {
    size_t last = 0;
    int64_t first_start = 0, last_start = 0;
  };
  Arrival arrival_of(const Instance& instance) const {
    Arrival a{instance.begin()->first, INT64_MAX, INT64_MIN};
    for (const auto& [rank, c] : instance) {
      a.first_start = std::min(a.first_start, start(rank, *c));
      if (start(rank, *c) > a.last_start) {
        a.last_start = start(rank, *c);
        a.last = rank;
      }
    }
    return a;
  }

  // Divides the time of a call into waiting and transfer; false if the ranks do not leave together.
  bool measure(size_t index) {
    const Instance& instance = instances_[index];
    int64_t first_end = INT64_MAX, last_end = INT64_MIN, longest = 0;
    for (const auto& [rank, c] : instance) {
      first_end = std::min(first_end, end(rank, *c));
      last_end = std::max(last_end, end(rank, *c));
      longest = std::max(longest, c->end - c->start);
    }
    const bool together = needs_all(t_.names[instance.begin()->second->name]);
    if (!together || last_end - first_end > std::max(kTogether, longest / kTogetherPart)) {
      ++out_.uneven;
      return false;
    }
    spreads_.push_back(last_end - first_end);
    const Arrival a = arrival_of(instance);
    for (const auto& [rank, c] : instance) {
      RankRow& row = out_.rows[rank];
      const double wait = in_us(std::clamp<int64_t>(a.last_start - start(rank, *c), 0, c->end - c->start));
      row.total_us += in_us(c->end - c->start);
      row.waiting_us += wait;
      out_.rows[a.last].caused_us += wait;
      auto& [from, to] = windows_.try_emplace(rank, c->start, c->end).first->second;
      from = std::min(from, c->start);
      to = std::max(to, c->end);
    }
    ++out_.rows[a.last].last;
    out_.partial += instance.begin()->second->size > static_cast<int32_t>(instance.size());
    ++out_.compared;
    return true;
  }

  void add_kind(const std::vector<size_t>& members) {
    CollectiveRow row;
    const Collective& one = *instances_[members[0]].begin()->second;
    row.name = t_.names[one.name];
    row.size = one.size;
    row.bytes = one.bytes;
    row.calls = static_cast<int64_t>(members.size());
    std::vector<int64_t> skews, transfers;
    std::map<size_t, int64_t> last;
    for (size_t i : members) {
      const Arrival a = arrival_of(instances_[i]);
      const Collective& c = *instances_[i].at(a.last);
      skews.push_back(a.last_start - a.first_start);
      transfers.push_back(c.end - c.start);
      ++last[a.last];
    }
    for (const auto& [rank, calls] : last)
      if (calls > row.last_calls) {
        row.last_calls = calls;
        row.last_rank = out_.rows[rank].rank;
      }
    row.longest_skew_us = in_us(*std::max_element(skews.begin(), skews.end()));
    row.skew_us = in_us(median(skews));
    row.transfer_us = in_us(median(transfers));
    out_.collectives.push_back(std::move(row));
  }

  // The time with other kernels between the first and the last compared call of a rank.
  void other_work() {
    for (const auto& [rank, window] : windows_) {
      std::vector<std::pair<int64_t, int64_t>> spans;
      for (const GpuEvent& e : t_.gpu)
        if (e.process == out_.rows[rank].process && e.kind == GpuKind::kernel && e.collective == 0 &&
            !t_.names[e.name].starts_with("nccl") && e.end > window.first && e.start < window.second)
          spans.emplace_back(std::max(e.start, window.first), std::min(e.end, window.second));
      std::sort(spans.begin(), spans.end());
      int64_t busy = 0, at = INT64_MIN;
      for (const auto& [from, to] : spans) {
        busy += std::max<int64_t>(0, to - std::max(from, at));
        at = std::max(at, to);
      }
      out_.rows[rank].compute_us = in_us(busy);
      out_.rows[rank].window_us = in_us(window.second - window.first);
    }
  }

  void judge() {
    double total = 0, waiting = 0, window = 0;
    const RankRow* worst = nullptr;
    for (const RankRow& r : out_.rows) {
      total += r.total_us;
      waiting += r.waiting_us;
      window += r.window_us;
      if (worst == nullptr || r.caused_us > worst->caused_us) worst = &r;
    }
    out_.waiting_share = total > 0 ? waiting / total : 0;
    out_.waiting_of_wall = window > 0 ? waiting / window : 0;
    // Most of the waiting must be for one rank, more often than by chance. It may be for a rank that is not given.
    const double chance = static_cast<double>(out_.compared) / static_cast<double>(out_.rows.size());
    if (out_.partial * 2 <= out_.compared && waiting > kLittleWaiting * total && worst->caused_us > 0.6 * waiting &&
        static_cast<double>(worst->last) > 1.5 * chance)
      out_.straggler = worst->rank;
  }

  const Trace& t_;
  std::vector<Instance> instances_;
  std::vector<int64_t> offset_, spreads_;
  std::map<size_t, std::pair<int64_t, int64_t>> windows_;
  Ranks out_;
};

// The traces of different ranks, by rank. What is no part of the comparison is removed from the profile.
std::vector<RankTrace> different_ranks(Profile& p) {
  std::vector<RankTrace> kept;
  std::vector<int32_t> removed;
  for (const RankTrace& r : p.trace.ranks) {
    const bool again = std::any_of(kept.begin(), kept.end(),
                                   [&](const RankTrace& k) { return k.rank == r.rank || k.rank < 0 || r.rank < 0; });
    if (again) {
      const std::string& name = p.processes[static_cast<size_t>(r.process)];
      p.problem(name, fmt::format("got a second trace {}, so it is left out; expected one trace, or those of different "
                                  "ranks of one job",
                                  r.rank < 0 ? "that names no rank" : fmt::format("of rank {}", r.rank)));
      removed.push_back(r.process);
    } else {
      kept.push_back(r);
    }
  }
  p.trace.remove_processes(removed);
  std::sort(kept.begin(), kept.end(), [](const RankTrace& a, const RankTrace& b) { return a.rank < b.rank; });
  return kept;
}

}  // namespace

void merge_ranks(Profile& p, int rank) {
  const std::vector<RankTrace> ranks = different_ranks(p);
  std::vector<int32_t> given;
  for (const RankTrace& r : ranks) given.push_back(r.rank);
  PF_CHECK(rank < 0 || std::find(given.begin(), given.end(), rank) != given.end(), Value,
           "report: --rank: there is no trace of this rank; got {}; expected one of {}", rank, fmt::join(given, ", "));
  if (ranks.size() < 2) return;
  p.ranks = Comparison(p.trace, ranks).make();
  p.ranks.reported = rank >= 0 ? rank : p.ranks.straggler >= 0 ? p.ranks.straggler : given[0];
  std::vector<int32_t> others;
  for (const RankTrace& r : ranks)
    if (r.rank != p.ranks.reported) others.push_back(r.process);
  p.trace.remove_processes(others);
}

}  // namespace pyflame::tools::profile
