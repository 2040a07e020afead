// The report of a tuning file: problems by the time that they cost, against the roofline, and what to do about them. See tuned_read.h.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pyflame/base/gpu_arch.h"
#include "pyflame/profile/tuned_read.h"
#include "pyflame/view/text.h"

namespace pyflame::profile {

namespace {

using nlohmann::json;

double peak_tflops(const GpuProduct& product, const std::string& dtype) {
  if (dtype.rfind("bf16", 0) == 0) return product.bf16_tflops;
  if (dtype.rfind("f16", 0) == 0) return product.fp16_tflops;
  if (dtype.rfind("fp8", 0) == 0) return product.fp8_tflops;
  if (dtype.rfind("f32", 0) == 0) return product.fp32_tflops;
  if (dtype.rfind("f64", 0) == 0) return product.fp64_tflops;
  return 0;
}

json roofline(const TunedEntry& row, const GpuProduct* product) {
  if (row.us <= 0 || row.flops <= 0) return nullptr;
  json r = {{"flops", row.flops}, {"tflops", row.flops / row.us * 1e-6}};
  if (row.bytes <= 0) return r;
  r["bytes"] = row.bytes;
  r["gbs"] = row.bytes / row.us * 1e-3;
  r["intensity"] = row.flops / row.bytes;
  if (product == nullptr || product->bandwidth_gbs <= 0) return r;
  const double peak = peak_tflops(*product, row.dtype);
  if (peak <= 0) return r;
  const double compute_us = row.flops / peak * 1e-6, memory_us = row.bytes / product->bandwidth_gbs * 1e-3;
  const double floor_us = std::max(compute_us, memory_us);
  r["of_peak"] = floor_us / row.us;
  // A kernel of a few microseconds is as long as what starts and ends it.
  r["bound"] = row.us < 10 && floor_us < row.us / 4 ? "latency" : compute_us >= memory_us ? "compute" : "memory";
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

}  // namespace pyflame::profile
