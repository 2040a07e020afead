// The report of a tuning file: its problems against the roofline, and rules over them. See tuned_read.h.
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

// For inputs of two types, "bf16 x fp8 -> f32", the peak is that of the first.
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

// The rules over tuning files. A rule's function returns what it found, or an empty text.
struct TunedCounts {
  size_t problems = 0;
  int64_t slow = 0, defaults = 0, untuned = 0, stale = 0, naive = 0, timed = 0;
  bool dropped_as_a_whole = false;  // results of TunableOp that name the versions that they are valid for
};

struct TunedRule {
  RuleText text;
  std::string (*find)(const TunedCounts&);
};

const TunedRule kTunedRules[] = {
    {{.id = "tuning",
      .severity = Severity::high,
      .title = "Chosen kernels were out of tolerance",
      .why = "A fast kernel with wrong results must not be chosen.",
      .fixes = {"Check these problems against a reference before you use the file."}},
     [](const TunedCounts& c) -> std::string {
       if (c.stale == 0) return "";
       return fmt::format("{} of {} rows were out of tolerance when they were tuned.", c.stale, c.problems);
     }},
    {{.id = "tuning",
      .severity = Severity::high,
      .title = "MIOpen's naive kernels were chosen",
      .why = "The search found nothing better, often because it was cut short.",
      .fixes = {"Search again for these problems with MIOPEN_FIND_MODE=1.",
                "The channels-last memory format opens the implicit-GEMM kernels on CDNA."}},
     [](const TunedCounts& c) -> std::string {
       return c.naive == 0 ? "" : fmt::format("{} convolutions run MIOpen's naive kernels.", c.naive);
     }},
    {{.id = "tuning",
      .severity = Severity::med,
      .title = "Problems far below the roofline",
      .why = "Neither arithmetic nor memory traffic explains their time.",
      .fixes = {"Tune these again with a rotating buffer and more iterations.", "Pad sizes to multiples of 64.",
                "Batch small products together."}},
     [](const TunedCounts& c) -> std::string {
       if (c.slow == 0) return "";
       return fmt::format("{} of {} timed problems reach less than 40 % of what the device could.", c.slow, c.timed);
     }},
    {{.id = "tuning",
      .severity = Severity::low,
      .title = "Problems without results",
      .why = "A list of problems changes nothing by itself.",
      .fixes = {"Tune them: PYTORCH_TUNABLEOP_TUNING=1, or torch.cuda.tunable.tune_gemm_in_file on this file."}},
     [](const TunedCounts& c) -> std::string {
       if (c.untuned == 0 || static_cast<size_t>(c.untuned) != c.problems) return "";
       return "These problems were recorded and not tuned.";
     }},
    {{.id = "tuning",
      .severity = Severity::info,
      .title = "The default kernel won",
      .why = "Tuning cannot help there.",
      .fixes = {"Leave these problems out of the next round."}},
     [](const TunedCounts& c) -> std::string {
       if (c.defaults == 0) return "";
       return fmt::format("The default kernel won for {} of {} problems.", c.defaults, c.problems);
     }},
    {{.id = "tuning",
      .severity = Severity::info,
      .title = "The file is valid for some versions only",
      .why = "After an update of PyTorch, ROCm or hipBLASLt nothing in it is used, and no message says so.",
      .fixes = {"Keep the file with the versions that it names.",
                "Look for 'tunable' in the log, or set PYTORCH_TUNABLEOP_VERBOSE=1 once."}},
     [](const TunedCounts& c) -> std::string {
       return c.dropped_as_a_whole ? "PyTorch drops this whole file when one of its keys differs." : "";
     }},
};

TunedCounts counts_of(const TunedFiles& files, const json& tuned, const std::vector<std::string>& formats) {
  TunedCounts c;
  c.problems = files.entries.size();
  for (size_t i = 0; i < files.entries.size(); ++i) {
    const TunedEntry& row = files.entries[i];
    const json& r = tuned[i]["roofline"];
    c.timed += row.us > 0;
    c.slow +=
        r.is_object() && r.contains("of_peak") && r.value("bound", "") != "latency" && r["of_peak"].get<double>() < 0.4;
    c.defaults += row.choice == "Default";
    c.untuned += row.choice.empty();
    c.stale += !row.stale.empty();
    c.naive += row.choice.find("Naive") != std::string::npos || row.choice.find("naive") != std::string::npos;
  }
  c.dropped_as_a_whole =
      std::find(formats.begin(), formats.end(), "TunableOp results") != formats.end() && !files.validators.empty();
  return c;
}

}  // namespace

std::vector<Finding> tuned_advice(const TunedFiles& files, const json& tuned, const std::vector<std::string>& formats) {
  const TunedCounts counts = counts_of(files, tuned, formats);
  std::vector<Finding> found;
  for (const TunedRule& rule : kTunedRules)
    if (std::string what = rule.find(counts); !what.empty()) found.push_back(make_finding(rule.text, std::move(what)));
  return found;
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
