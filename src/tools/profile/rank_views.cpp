// The comparison of ranks in the document, in the text, and in the headline.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/profile/advice.h"
#include "tools/profile/ranks.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;
using view::percent;

constexpr size_t kMaxRankRows = 1024, kRankRows = 16;
// Waiting below this part of the time is no finding.
constexpr double kMuchWaiting = 0.05;

double rank_time(double v) { return std::isfinite(v) ? std::round(v * 1000) / 1000 : 0; }

// Bytes that each rank sends over its links, as NCCL's tests count them; 0: unknown.
double bus_bytes(const CollectiveRow& c) {
  if (c.bytes <= 0 || c.size < 2) return 0;
  const double n = c.size;
  const auto bytes = static_cast<double>(c.bytes);  // of the input
  const auto is = [&](const char* word) { return c.name.find(word) != std::string::npos; };
  if (is("allreduce") || is("all_reduce")) return 2 * (n - 1) / n * bytes;
  if (is("allgather") || is("all_gather")) return (n - 1) * bytes;
  return is("reduce_scatter") || is("all_to_all") || is("alltoall") ? (n - 1) / n * bytes : 0;
}

json rank_or_null(int64_t v) { return v >= 0 ? json(v) : json(nullptr); }

const json& rank_row(const json& ranks, const json& rank) {
  for (const json& r : ranks["rows"])
    if (r["rank"] == rank) return r;
  return ranks["rows"][0];
}

// How the straggler differs from the other ranks: its kernels take longer, or they come later.
std::string straggler_difference(const json& ranks) {
  const json& late = rank_row(ranks, ranks["straggler"]);
  double others = 0;
  for (const json& r : ranks["rows"])
    if (r != late) others += r["compute_us"].get<double>() / static_cast<double>(ranks["rows"].size() - 1);
  const double own = late["compute_us"];
  if (others <= 0 || own <= 0) return "";
  if (own > 1.03 * others)
    return fmt::format(" Its other kernels take {} longer than those of the others.", percent(own / others - 1));
  return " Its other kernels take no longer than those of the others, so its CPU launches them later.";
}

const TraceRule kRankRules[] = {
    {{.id = "straggler",
      .severity = Severity::high,
      .title = "The ranks wait for one of them",
      .why = "A collective begins when its last rank comes. Faster links do not shorten the wait for it.",
      .fixes = {"Compare the ranks: --rank N reports another one. Look for work that only this rank does (logging, "
                "checkpoints, evaluation), for a slower data loader, and for longer inputs.",
                "If its kernels take longer, look at the clocks, power and temperature of its device.",
                on_amd("amd-smi metric shows these. Use one process per device, bound to the cores near it.")},
      .command = on_amd("amd-smi metric"),
      .source = "comparison of the given traces"},
     [](const Facts& f) -> std::string {
       const json& r = f.d["ranks"];
       if (!r.is_object() || r["straggler"].is_null() || r["waiting_of_wall"] < kMuchWaiting) return "";
       const json& late = rank_row(r, r["straggler"]);
       return fmt::format(
           "Rank {} comes last to {} of {} collectives, and the others wait {} for it in all, of {} that "
           "all ranks are in collectives.{}",
           late["rank"].get<int>(), late["last"].get<int64_t>(), r["compared"].get<int64_t>(),
           view::microseconds(late["caused_us"].get<double>()), view::microseconds(r["total_us"].get<double>()),
           straggler_difference(r));
     }},
    {{.id = "uneven-ranks",
      .severity = Severity::med,
      .title = "The ranks wait for each other",
      .why = "A collective begins when its last rank comes. Faster links do not shorten the wait for it.",
      .fixes = {"Give all ranks the same work: lengths of sequences, tokens per expert, layers per pipeline stage.",
                "If the work is the same, the CPU is not: bind each process to cores, and use fewer data loader "
                "workers than cores."},
      .source = "comparison of the given traces"},
     [](const Facts& f) -> std::string {
       const json& r = f.d["ranks"];
       if (!r.is_object() || !r["straggler"].is_null() || r["waiting_of_wall"] < kMuchWaiting) return "";
       return fmt::format(
           "{} of the time in collectives is waiting for the rank that comes last{}.",
           percent(r["waiting_share"].get<double>()),
           r["partial"] > 0 ? ", which may be one whose trace is not given" : ", and that is not always the same rank");
     }},
};

std::string rank_note(const json& r) {
  if (r["compared"] == 0)
    return "The collectives of these traces do not match, or the ranks do not leave them together, so waiting and "
           "transfer are not known.\n";
  std::string text = fmt::format("{} collectives compared; ends agree to {}", r["compared"].get<int64_t>(),
                                 view::microseconds(r["precision_us"].get<double>()));
  if (r["aligned"]) text += " after the clocks, which differ, were aligned at them";
  if (r["uneven"] > 0)
    text += fmt::format("; {} whose ranks do not leave together, such as broadcasts, are left out",
                        r["uneven"].get<int64_t>());
  if (r["unmatched"] > 0)
    text += fmt::format("; {} calls have no partner in the other traces", r["unmatched"].get<int64_t>());
  if (r["partial"] > 0)
    text += fmt::format(
        "; to {} of them come ranks whose traces are not given, so what is called transfer may be "
        "waiting for these",
        r["partial"].get<int64_t>());
  return text + "\n";
}

}  // namespace

std::span<const TraceRule> rank_rules() { return kRankRules; }

json ranks_json(const Ranks& r) {
  if (r.rows.empty()) return nullptr;
  json rows = json::array(), collectives = json::array();
  double total = 0;
  for (const RankRow& row : r.rows) {
    total += row.total_us;
    if (rows.size() < kMaxRankRows)
      rows.push_back({{"rank", row.rank},
                      {"last", row.last},
                      {"total_us", rank_time(row.total_us)},
                      {"waiting_us", rank_time(row.waiting_us)},
                      {"transfer_us", rank_time(row.total_us - row.waiting_us)},
                      {"caused_us", rank_time(row.caused_us)},
                      {"compute_us", rank_time(row.compute_us)},
                      {"window_us", rank_time(row.window_us)}});
  }
  for (const CollectiveRow& c : r.collectives) {
    if (collectives.size() >= kMaxRankRows) break;
    const double bus = bus_bytes(c);
    collectives.push_back(
        {{"name", c.name},
         {"ranks", c.size > 0 ? json(c.size) : json(nullptr)},
         {"bytes", rank_or_null(c.bytes)},
         {"calls", c.calls},
         {"skew_us", rank_time(c.skew_us)},
         {"longest_skew_us", rank_time(c.longest_skew_us)},
         {"transfer_us", rank_time(c.transfer_us)},
         {"bus_gbs", bus > 0 && c.transfer_us > 0 ? json(rank_time(bus / c.transfer_us / 1e3)) : json(nullptr)},
         {"last_rank", c.last_rank},
         {"last_calls", c.last_calls}});
  }
  return {{"world", rank_or_null(r.world)},
          {"reported", r.reported},
          {"straggler", rank_or_null(r.straggler)},
          {"compared", r.compared},
          {"partial", r.partial},
          {"unmatched", r.unmatched},
          {"uneven", r.uneven},
          {"aligned", r.aligned},
          {"precision_us", rank_time(r.precision_us)},
          {"total_us", rank_time(total)},
          {"waiting_share", r.waiting_share},
          {"waiting_of_wall", r.waiting_of_wall},
          {"rows", std::move(rows)},
          {"collectives", std::move(collectives)}};
}

std::string ranks_verdict(const json& d) {
  const json& r = d["ranks"];
  if (!r.is_object() || r["waiting_of_wall"] < 2 * kMuchWaiting || r["waiting_share"] < 0.5) return "";
  const std::string waiting = percent(r["waiting_share"].get<double>());
  if (r["straggler"].is_null())
    return fmt::format(
        "The ranks wait for each other: {} of their time in collectives is waiting. Next: give them even "
        "work.",
        waiting);
  return fmt::format(
      "The ranks wait for rank {}: {} of their time in collectives is waiting, not transfer. Next: find "
      "out why it comes late.{}",
      r["straggler"].get<int>(), waiting, r["reported"] == r["straggler"] ? " What follows is of this rank." : "");
}

std::string ranks_text(const json& d, const view::Style& s) {
  const json& r = d["ranks"];
  if (!r.is_object()) return "";
  const auto time = [](const json& v) { return view::microseconds(v.get<double>()); };
  std::string out = "\n" + view::paint(s, view::Tone::bold, "Ranks") +
                    fmt::format("\n{} traces; all other parts of this report are of rank {} (--rank N)\n",
                                r["rows"].size(), r["reported"].get<int>()) +
                    view::wrap(rank_note(r), s.width);
  if (r["compared"] == 0) return out;
  std::vector<std::vector<std::string>> rows;
  for (const json& row : r["rows"])
    if (rows.size() < kRankRows)
      rows.push_back({std::to_string(row["rank"].get<int>()), std::to_string(row["last"].get<int64_t>()),
                      time(row["total_us"]), time(row["waiting_us"]), time(row["transfer_us"]), time(row["caused_us"]),
                      time(row["compute_us"])});
  out += view::table(
      s,
      {">rank", ">last to come", ">in collectives", ">waiting", ">transfer", ">others wait for it", ">other kernels"},
      rows);
  rows.clear();
  for (const json& c : r["collectives"])
    if (rows.size() < kRankRows)
      rows.push_back({view::clean(c["name"].get<std::string>(), 40), std::to_string(c["calls"].get<int64_t>()),
                      c["bytes"].is_number() ? view::bytes(c["bytes"].get<double>()) : "-", time(c["skew_us"]),
                      time(c["longest_skew_us"]), time(c["transfer_us"]),
                      c["bus_gbs"].is_number() ? fmt::format("{:.1f}", c["bus_gbs"].get<double>()) : "-",
                      fmt::format("{} ({} of {})", c["last_rank"].get<int>(), c["last_calls"].get<int64_t>(),
                                  c["calls"].get<int64_t>())});
  return out + "\n" +
         view::table(s, {"collective", ">calls", ">bytes", ">skew", ">longest", ">transfer", ">bus GB/s", "last rank"},
                     rows);
}

}  // namespace pyflame::tools::profile
