// The report of a tuning file: problems by the time that they cost, against the roofline, and what to do about them. See tuned_read.h.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/profile/roofline.h"
#include "tools/profile/text_values.h"
#include "tools/profile/tuned_read.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;

// Inputs of two types, "bf16 x fp8 -> f32", run at the pace of the first.
std::string_view peak_type(std::string_view dtype) { return type_family(dtype.substr(0, dtype.find(' '))); }

json roofline(const TunedEntry& row, const GpuProduct* product) {
  if (row.us <= 0 || row.flops <= 0) return nullptr;
  const Roof roof =
      roof_of({row.flops, std::max(0.0, row.bytes), std::string(peak_type(row.dtype))}, row.us, row.us, product);
  json r = {{"flops", row.flops}, {"tflops", roof.tflops}};
  if (row.bytes <= 0) return r;
  r["bytes"] = row.bytes;
  r["gbs"] = roof.gbs;
  r["intensity"] = roof.intensity;
  if (roof.of_peak < 0) return r;
  r["of_peak"] = roof.of_peak;
  r["bound"] = roof.bound;
  return r;
}

}  // namespace

json tuned_advice(const TunedFiles& files, const json& tuned, const std::vector<std::string>& formats) {
  json advice = json::array();
  const auto add = [&](const char* severity, std::string what, std::string why, std::vector<std::string> to_do,
                       json command = nullptr) {
    advice.push_back({{"severity", severity},
                      {"what", std::move(what)},
                      {"why", std::move(why)},
                      {"do", std::move(to_do)},
                      {"command", std::move(command)}});
  };
  int64_t slow = 0, defaults = 0, untuned = 0, stale = 0, naive = 0, timed = 0;
  for (size_t i = 0; i < files.entries.size(); ++i) {
    const TunedEntry& row = files.entries[i];
    const json& r = tuned[i]["roofline"];
    timed += row.us > 0;
    slow +=
        r.is_object() && r.contains("of_peak") && r.value("bound", "") != "latency" && r["of_peak"].get<double>() < 0.4;
    defaults += row.choice == "Default";
    untuned += row.choice.empty();
    stale += !row.stale.empty();
    naive += row.choice.find("Naive") != std::string::npos || row.choice.find("naive") != std::string::npos;
  }
  const auto n = static_cast<int64_t>(files.entries.size());
  if (stale > 0)
    add("HIGH", fmt::format("{} of {} rows were out of tolerance when they were tuned", stale, n),
        "a fast kernel with wrong results is not a choice",
        {"check these problems against a reference before using the file"});
  if (naive > 0)
    add("HIGH", fmt::format("{} convolutions run MIOpen's naive kernels", naive),
        "nothing better was found when the search ran, often because it was cut short",
        {"search again for these problems with MIOPEN_FIND_MODE=1",
         "channels-last layout opens the implicit-GEMM kernels on CDNA"});
  if (slow > 0)
    add("MED", fmt::format("{} of {} timed problems reach less than 40 % of what the device could", slow, timed),
        "their time is neither explained by arithmetic nor by memory traffic",
        {"tune these again with a rotating buffer and more iterations", "pad sizes to multiples of 64",
         "batch small products together"});
  if (untuned > 0 && untuned == n)
    add("LOW", "these problems were recorded and not tuned", "a list of problems changes nothing by itself",
        {"tune them: PYTORCH_TUNABLEOP_TUNING=1, or torch.cuda.tunable.tune_gemm_in_file on this file"});
  if (defaults > 0)
    add("INFO", fmt::format("for {} of {} problems the default kernel won", defaults, n), "tuning cannot help there",
        {"leave them out of the next round"});
  if (std::find(formats.begin(), formats.end(), "TunableOp results") != formats.end() && !files.validators.empty())
    add("INFO", "PyTorch drops this whole file when one of its keys differs",
        "after an update of PyTorch, ROCm or hipBLASLt nothing in it is used, and nothing says so",
        {"keep the file with the versions that it names",
         "look for 'tunable' in the log, or set PYTORCH_TUNABLEOP_VERBOSE=1 once"});
  return advice;
}

json tuned_rows(const TunedFiles& files, const GpuProduct* product) {
  json rows = json::array();
  for (const TunedEntry& entry : files.entries) {
    json others = json::array();
    for (const auto& [name, us] : entry.others)
      others.push_back({{"choice", name}, {"us", us > 0 ? json(us) : json(nullptr)}});
    json r = roofline(entry, product);
    rows.push_back({{"problem", entry.problem},
                    {"kind", entry.kind},
                    {"dtype", entry.dtype},
                    {"choice", entry.choice.empty() ? json(nullptr) : json(entry.choice)},
                    {"us", entry.us > 0 ? json(entry.us) : json(nullptr)},
                    {"tflops", r.is_object() ? r["tflops"] : json(nullptr)},
                    {"roofline", r},
                    {"stale", entry.stale.empty() ? json(nullptr) : json(entry.stale)},
                    {"file", entry.file},
                    {"line", entry.line},
                    {"calls", entry.calls},
                    {"others", others}});
  }
  return rows;
}

std::string tuned_verdict(const TunedFiles& files, const std::vector<std::string>& formats) {
  std::string from;
  for (const std::string& format : formats) from += (from.empty() ? "" : ", ") + format;
  std::string verdict =
      fmt::format("{} {} in {}", files.entries.size(), files.entries.size() == 1 ? "problem" : "problems", from);
  if (!files.gfx.empty())
    verdict += fmt::format(" for {}{}", files.gfx, files.cus > 0 ? fmt::format(" with {} CUs", files.cus) : "");
  const auto longest = std::max_element(files.entries.begin(), files.entries.end(),
                                        [](const TunedEntry& a, const TunedEntry& b) { return a.us < b.us; });
  if (longest != files.entries.end() && longest->us > 0)
    verdict += fmt::format("; the longest is {} ({})", longest->problem, view::microseconds(longest->us));
  return verdict + ".";
}

}  // namespace pyflame::tools::profile
