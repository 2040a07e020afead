// The report of a tuning file: its problems against the roofline, and rules over them. See tuned_read.h.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pyflame/base/gpu_arch.h"
#include "tools/profile/roofline.h"
#include "tools/profile/text_values.h"
#include "tools/profile/tuned_read.h"
#include "tools/view/text.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;

// For inputs of two types, "bf16 x fp4 -> f32", the peak is that of the first, which is the wider one.
std::string_view peak_type(std::string_view dtype) { return type_family(dtype.substr(0, dtype.find(' '))); }

// The product on which a row was tuned. Files may have rows of several, and older ones of aiter name compute units only.
const GpuProduct* product_of_row(const TunedEntry& row, const TunedFiles& files, const GpuProduct* otherwise) {
  const std::string_view gfx = row.gfx.empty() ? files.gfx : row.gfx;
  const int cus = row.cus > 0 ? row.cus : files.cus;
  if (gfx.empty() && cus == 0) return otherwise;
  for (const GpuProduct& p : gpu_products()) {
    const bool fits = gfx.empty() ? p.name.starts_with("AMD Instinct") : find_gpu_arch(gfx) == find_gpu_arch(p.gfx);
    if (fits && (cus == 0 || p.cus == cus)) return &p;
  }
  return nullptr;
}

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
  int64_t slow = 0, defaults = 0, untuned = 0, unmeasured = 0, stale = 0, naive = 0, timed = 0, impossible = 0;
  bool aiter = false, tunable_op = false;
  bool dropped_as_a_whole = false;  // results of TunableOp that name the versions that they are valid for
};

struct TunedRule {
  RuleText text;
  std::string (*find)(const TunedCounts&);
};

const TunedRule kTunedRules[] = {
    {{.id = "tuning-out-of-tolerance",
      .severity = Severity::high,
      .title = "Chosen kernels were out of tolerance",
      .why = "A fast kernel with wrong results must not be chosen.",
      .fixes = {"Check these problems against a reference before you use the file."}},
     [](const TunedCounts& c) -> std::string {
       if (c.stale == 0) return "";
       return fmt::format("{} of {} rows were out of tolerance when they were tuned.", c.stale, c.problems);
     }},
    {{.id = "tuning-naive-convolution",
      .severity = Severity::high,
      .title = "MIOpen's naive kernels were chosen",
      .why = "The search found nothing better, often because it was cut short.",
      .fixes = {"Search again for these problems with MIOPEN_FIND_MODE=1.",
                "The channels-last memory format opens the implicit-GEMM kernels on CDNA."}},
     [](const TunedCounts& c) -> std::string {
       return c.naive == 0 ? "" : fmt::format("{} convolutions run MIOpen's naive kernels.", c.naive);
     }},
    {{.id = "tuning-below-roofline",
      .severity = Severity::med,
      .title = "Problems far below the roofline",
      .why = "Neither arithmetic nor memory traffic explains their time.",
      .fixes = {"Tune these again with a rotating buffer and more iterations.", "Pad sizes to multiples of 64.",
                "Batch small products together."}},
     [](const TunedCounts& c) -> std::string {
       if (c.slow == 0) return "";
       return fmt::format("{} of {} timed problems reach less than 40 % of what the device could.", c.slow, c.timed);
     }},
    {{.id = "tuning-impossible-times",
      .severity = Severity::low,
      .title = "Times that this device cannot reach",
      .why = "The row was measured for another problem or on another device, or it was copied.",
      .fixes = {"Tune these problems again, or name the device with --product."}},
     [](const TunedCounts& c) -> std::string {
       if (c.impossible == 0) return "";
       return fmt::format("{} of {} timed problems are faster than arithmetic and memory of the device allow.",
                          c.impossible, c.timed);
     }},
    {{.id = "tuning-without-results",
      .severity = Severity::low,
      .title = "Problems without results",
      .why = "A list of problems changes nothing by itself.",
      .fixes = {"Tune them outside of PyTorch: pyflame tune --problems FILE --device rocm --export tunableop=FILE.",
                "Or within it: PYTORCH_TUNABLEOP_TUNING=1, or torch.cuda.tunable.tune_gemm_in_file on this file."}},
     [](const TunedCounts& c) -> std::string {
       if (c.aiter || c.untuned == 0 || static_cast<size_t>(c.untuned) != c.problems) return "";
       return "These problems were recorded and not tuned.";
     }},
    {{.id = "tuning-without-results",
      .severity = Severity::low,
      .title = "Problems without results",
      .why = "A list of problems changes nothing by itself.",
      .fixes = {"Tune them with aiter's tuner for this kind of table; its folders in csrc and gradlib say how."}},
     [](const TunedCounts& c) -> std::string {
       if (!c.aiter || c.untuned == 0 || static_cast<size_t>(c.untuned) != c.problems) return "";
       return "These problems were listed and not tuned.";
     }},
    {{.id = "tuning-without-times",
      .severity = Severity::info,
      .title = "Rows without a measured time",
      .why = "A time of 0 or inf is none: nothing was compared, so the choice says nothing about speed.",
      .fixes = {"Tune these problems again."}},
     [](const TunedCounts& c) -> std::string {
       if (c.unmeasured == 0 || (!c.aiter && !c.tunable_op)) return "";
       return fmt::format("{} of {} rows have a choice and no time.", c.unmeasured, c.problems);
     }},
    {{.id = "tuning-default-won",
      .severity = Severity::info,
      .title = "The default kernel won",
      .why = "Tuning cannot help there.",
      .fixes = {"Leave these problems out of the next round."}},
     [](const TunedCounts& c) -> std::string {
       if (c.defaults == 0) return "";
       return fmt::format("The default kernel won for {} of {} problems.", c.defaults, c.problems);
     }},
    {{.id = "tuning-versions",
      .severity = Severity::info,
      .title = "The file is valid for some versions only",
      .why = "After an update of PyTorch, ROCm or hipBLASLt nothing in it is used, and no message says so.",
      .fixes = {"Keep the file with the versions that it names.",
                "Look for 'tunable' in the log, or set PYTORCH_TUNABLEOP_VERBOSE=1 once."}},
     [](const TunedCounts& c) -> std::string {
       return c.dropped_as_a_whole ? "PyTorch drops this whole file when one of its keys differs." : "";
     }},
};

TunedCounts counts_of(const TunedFiles& files, const json& rows, const std::vector<std::string>& formats) {
  TunedCounts c;
  c.problems = rows.size();
  for (const json& row : rows) {
    const json& r = row["roofline"];
    const std::string choice = row["choice"].is_string() ? row["choice"].get<std::string>() : "";
    const bool timed = row["us"].is_number();
    c.timed += timed;
    constexpr double kImpossible = 1.2;  // sizes are estimates, and products of one architecture differ
    c.impossible += r.is_object() && r.contains("of_peak") && r["of_peak"].get<double>() > kImpossible;
    c.slow +=
        r.is_object() && r.contains("of_peak") && r.value("bound", "") != "latency" && r["of_peak"].get<double>() < 0.4;
    c.defaults += timed && choice == "Default";
    c.untuned += choice.empty();
    c.unmeasured += !timed && !choice.empty();
    c.stale += row["stale"].is_string();
    c.naive += choice.find("Naive") != std::string::npos || choice.find("naive") != std::string::npos;
  }
  c.aiter = std::any_of(formats.begin(), formats.end(), [](const auto& f) { return f.starts_with("aiter"); });
  c.tunable_op = std::find(formats.begin(), formats.end(), "TunableOp results") != formats.end();
  c.dropped_as_a_whole = c.tunable_op && !files.validators.empty();
  return c;
}

// The time of a row that its roofline does not explain; all of its time if that is not known.
double to_win(const json& row) {
  if (!row["us"].is_number()) return -1;
  const json& r = row["roofline"];
  const double reached = r.is_object() && r.contains("of_peak") ? r["of_peak"].get<double>() : 0;
  return row["us"].get<double>() * row["calls"].get<double>() * std::max(0.0, 1 - reached);
}

// "gfx942 and gfx950", in the order of the rows.
std::string archs_of(const TunedFiles& files) {
  std::vector<std::string_view> archs;
  for (const TunedEntry& row : files.entries)
    if (const std::string_view gfx = row.gfx.empty() ? files.gfx : row.gfx;
        !gfx.empty() && std::find(archs.begin(), archs.end(), gfx) == archs.end() && archs.size() < 8)
      archs.push_back(gfx);
  return fmt::format("{}", fmt::join(archs, " and "));
}

}  // namespace

std::vector<Finding> tuned_advice(const TunedFiles& files, const json& tuned, const std::vector<std::string>& formats) {
  const TunedCounts counts = counts_of(files, tuned, formats);
  std::vector<Finding> found;
  for (const TunedRule& rule : kTunedRules)
    if (std::string what = rule.find(counts); !what.empty()) found.push_back(make_finding(rule.text, std::move(what)));
  return found;
}

bool only_tuned(const std::vector<std::string>& formats) {
  const std::span<const Importer> tuned = tuned_importers();
  return !formats.empty() && std::all_of(formats.begin(), formats.end(), [&](const std::string& format) {
    return std::any_of(tuned.begin(), tuned.end(), [&](const Importer& i) { return format == i.name; });
  });
}

json tuned_rows(const TunedFiles& files, const GpuProduct* told, const GpuProduct* otherwise) {
  json rows = json::array();
  for (const TunedEntry& entry : files.entries) {
    const GpuProduct* own = told != nullptr ? told : product_of_row(entry, files, otherwise);
    json others = json::array();
    for (const auto& [name, us] : entry.others)
      others.push_back({{"choice", name}, {"us", us > 0 ? json(us) : json(nullptr)}});
    json r = roofline(entry, own);
    rows.push_back({{"problem", entry.problem},
                    {"kind", entry.kind},
                    {"dtype", entry.dtype},
                    {"product", own == nullptr ? json(nullptr) : json(own->name)},
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
  std::stable_sort(rows.begin(), rows.end(), [](const json& x, const json& y) { return to_win(x) > to_win(y); });
  return rows;
}

std::string tuned_verdict(const TunedFiles& files, const std::vector<std::string>& formats) {
  std::string from;
  for (const std::string& format : formats) from += (from.empty() ? "" : ", ") + format;
  std::string verdict =
      fmt::format("{} {} in {}", files.entries.size(), files.entries.size() == 1 ? "problem" : "problems", from);
  if (const std::string archs = archs_of(files); !archs.empty())
    verdict += fmt::format(" for {}{}", archs, files.cus > 0 ? fmt::format(" with {} CUs", files.cus) : "");
  const auto longest = std::max_element(files.entries.begin(), files.entries.end(),
                                        [](const TunedEntry& a, const TunedEntry& b) { return a.us < b.us; });
  if (longest != files.entries.end() && longest->us > 0)
    verdict += fmt::format("; the longest is {} ({})", longest->problem, view::microseconds(longest->us));
  return verdict + ".";
}

}  // namespace pyflame::tools::profile
