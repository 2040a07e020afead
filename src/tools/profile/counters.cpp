// AMD's metrics over hardware counters. See counters.h.
#include "tools/profile/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/profile/classify.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;
using MetricValue = std::optional<double>;

constexpr double kWavesOfDefinition = 32;  // waves of a compute unit, as AMD's definition of the occupancy has it

// The counters of one kernel, and the device that they were read on.
struct Counted {
  const std::map<std::string, double>& mean;  // of a call
  const Analysis& analysis;
  double call_us;

  // Files have a counter as the sum over the instances of its block, with or without "_sum" in its name.
  MetricValue of(const std::string& name) const {
    auto found = mean.find(name);
    if (found == mean.end()) found = mean.find(name + "_sum");
    return found == mean.end() ? MetricValue() : MetricValue(found->second);
  }
  bool gfx_is(std::initializer_list<std::string_view> prefixes) const {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](std::string_view p) { return analysis.gfx.starts_with(p); });
  }
  bool cdna() const { return gfx_is({"gfx90a", "gfx94"}); }
  bool rdna() const { return gfx_is({"gfx10", "gfx11"}); }
  double cus() const { return analysis.compute_units; }
  // Cycles in which the device worked. The definitions take the largest of the accelerator dies, and files have their
  // sum, so the dies must be known.
  MetricValue cycles() const {
    const MetricValue sum = of("GRBM_GUI_ACTIVE");
    const bool dies = gfx_is({"gfx94", "gfx95"});
    if (!sum || *sum <= 0 || cus() <= 0 || (dies && analysis.product == nullptr)) return {};
    return *sum / (dies ? analysis.product->xccs : 1);
  }
};

MetricValue quotient(MetricValue part, MetricValue whole, double factor = 1) {
  return part && whole && *whole > 0 ? MetricValue(factor * *part / *whole) : MetricValue();
}
MetricValue scaled(MetricValue v, double factor) { return v ? MetricValue(*v * factor) : v; }
MetricValue first_of(MetricValue a, MetricValue b) { return a ? a : b; }

MetricValue occupancy(const Counted& k) {
  if (const MetricValue told = k.of("OccupancyPercent")) return scaled(told, 0.01);
  if (const GpuArch* arch = find_gpu_arch(k.analysis.gfx))
    if (const MetricValue waves = k.of("MeanOccupancyPerCU"))
      return quotient(waves, static_cast<double>(arch->max_waves_per_simd) * arch->simds_per_cu);
  if (!k.cdna() && !k.rdna()) return {};
  // A counter of CDNA counts once in four cycles.
  const MetricValue per_cycle = quotient(k.of("SQ_WAVE_CYCLES"), k.cycles(), k.cdna() ? 4 : 1);
  return scaled(per_cycle, 1 / (std::max(1.0, k.cus()) * kWavesOfDefinition));
}

MetricValue vector_busy(const Counted& k) {
  if (const MetricValue told = first_of(k.of("VALUBusy"), k.of("ValuPipeIssueUtil"))) return scaled(told, 0.01);
  if (!k.gfx_is({"gfx90", "gfx94"})) return {};
  return scaled(quotient(k.of("SQ_ACTIVE_INST_VALU"), k.cycles()), 1 / std::max(1.0, k.cus()));
}

MetricValue vector_threads(const Counted& k) {
  if (const MetricValue told = k.of("VALUUtilization")) return scaled(told, 0.01);
  if (!k.gfx_is({"gfx90", "gfx94"})) return {};
  return quotient(k.of("SQ_THREAD_CYCLES_VALU"), k.of("SQ_ACTIVE_INST_VALU"), 1.0 / 64);
}

MetricValue matrix_busy(const Counted& k) {
  if (const MetricValue told = k.of("MfmaUtil")) return scaled(told, 0.01);
  if (!k.cdna()) return {};
  return scaled(quotient(k.of("SQ_VALU_MFMA_BUSY_CYCLES"), k.cycles()), 1 / (4 * std::max(1.0, k.cus())));
}

MetricValue l2_hits(const Counted& k) {
  if (const MetricValue told = k.of("L2CacheHit")) return scaled(told, 0.01);
  for (const char* block : {"TCC", "GL2C"}) {
    const MetricValue hit = k.of(fmt::format("{}_HIT", block)), miss = k.of(fmt::format("{}_MISS", block));
    if (hit && miss) return quotient(hit, *hit + *miss);
  }
  return {};
}

MetricValue lds_conflicts(const Counted& k) {
  if (const MetricValue told = k.of("LDSBankConflict")) return scaled(told, 0.01);
  if (k.rdna()) return quotient(k.of("SQC_LDS_BANK_CONFLICT"), k.of("SQC_LDS_IDX_ACTIVE"));
  if (!k.gfx_is({"gfx90", "gfx94"})) return {};
  return scaled(quotient(k.of("SQ_LDS_BANK_CONFLICT"), k.cycles()), 1 / std::max(1.0, k.cus()));
}

MetricValue memory_read(const Counted& k) {
  if (const MetricValue told = first_of(k.of("FETCH_SIZE"), k.of("FetchSize"))) return scaled(told, 1024);
  if (k.gfx_is({"gfx94"})) {
    const MetricValue all = k.of("TCC_EA0_RDREQ"), small = k.of("TCC_EA0_RDREQ_32B"), large = k.of("TCC_BUBBLE");
    if (all && small && large) return *large * 128 + (*all - *large - *small) * 64 + *small * 32;
  }
  if (k.gfx_is({"gfx900", "gfx908", "gfx90a"})) {
    const MetricValue all = k.of("TCC_EA_RDREQ"), small = k.of("TCC_EA_RDREQ_32B");
    if (all && small) return *small * 32 + (*all - *small) * 64;
  }
  if (k.rdna()) {
    double sum = 0;
    for (const int size : {32, 64, 96, 128}) {
      const MetricValue requests = k.of(fmt::format("GL2C_EA_RDREQ_{}B", size));
      if (!requests) return {};
      sum += *requests * size;
    }
    return sum;
  }
  return {};
}

MetricValue memory_written(const Counted& k) {
  if (const MetricValue told = first_of(k.of("WRITE_SIZE"), k.of("WriteSize"))) return scaled(told, 1024);
  const auto from = [](MetricValue all, MetricValue large) {
    return all && large ? MetricValue((*all - *large) * 32 + *large * 64) : MetricValue();
  };
  if (k.gfx_is({"gfx94"})) return from(k.of("TCC_EA0_WRREQ"), k.of("TCC_EA0_WRREQ_64B"));
  if (k.gfx_is({"gfx900", "gfx908", "gfx90a"})) return from(k.of("TCC_EA_WRREQ"), k.of("TCC_EA_WRREQ_64B"));
  if (k.rdna()) return from(k.of("GL2C_MC_WRREQ"), k.of("GL2C_EA_WRREQ_64B"));
  return {};
}

MetricValue memory_rate(const Counted& k) {
  const MetricValue read = memory_read(k), written = memory_written(k);
  if (!read || !written || k.call_us <= 0) return {};
  return (*read + *written) / k.call_us / 1e3;
}

MetricValue memory_of_peak(const Counted& k) {
  const GpuProduct* product = k.analysis.product;
  return product == nullptr ? MetricValue() : quotient(memory_rate(k), product->bandwidth_gbs);
}

struct CounterMetric {
  const char *id, *title, *unit, *definition;
  MetricValue (*value)(const Counted&);
  const char* collect;  // what rocprofv3 --pmc collects it with; null: follows from others
};

constexpr CounterMetric kMetrics[] = {
    {"occupancy", "occupancy", "fraction", "waves on a compute unit, of the most that fit (OccupancyPercent)",
     occupancy, "OccupancyPercent"},
    {"valu_busy", "VALU", "fraction", "time in which vector instructions are issued (VALUBusy)", vector_busy,
     "VALUBusy"},
    {"valu_threads", "threads", "fraction", "threads of a wave that vector instructions use (VALUUtilization)",
     vector_threads, "VALUUtilization"},
    {"mfma_busy", "MFMA", "fraction", "time in which the matrix cores work (MfmaUtil)", matrix_busy, "MfmaUtil"},
    {"l2_hit", "L2 hits", "fraction", "accesses to the L2 cache that find their data there (L2CacheHit)", l2_hits,
     "TCC_HIT_sum TCC_MISS_sum"},
    {"lds_bank_conflict", "LDS conflicts", "fraction",
     "time in which LDS is stalled by bank conflicts; on RDNA, of the cycles of LDS accesses (LDSBankConflict)",
     lds_conflicts, "SQ_LDS_BANK_CONFLICT GRBM_GUI_ACTIVE"},
    {"fetch_bytes", "HBM read", "bytes", "read from video memory by a call (FETCH_SIZE)", memory_read, "FETCH_SIZE"},
    {"write_bytes", "HBM written", "bytes", "written to video memory by a call (WRITE_SIZE)", memory_written,
     "WRITE_SIZE"},
    {"hbm_gbs", "HBM GB/s", "GB/s", "bytes read and written, by the time of a call", memory_rate, nullptr},
    {"hbm_of_peak", "of peak", "fraction", "the same, of the product's bandwidth", memory_of_peak, nullptr},
};

// The counters of the names that one short name stands for.
struct CountedKernel {
  std::string name;
  int64_t calls = 0;
  double total_us = 0, call_us = 0;
  std::map<std::string, Counter> sums;
};

std::vector<CountedKernel> kernels_with_counters(const Trace& t, const Analysis& a) {
  std::map<std::string, CountedKernel> by_name;
  for (const auto& [key, counter] : t.counters) {
    std::string name = short_kernel_name(t.names[key.first]);
    CountedKernel& k = by_name[name];
    k.name = std::move(name);
    Counter& sum = k.sums[t.names[key.second]];
    sum.sum += counter.sum;
    sum.count += counter.count;
    k.calls = std::max(k.calls, sum.count);
  }
  for (const KernelGroup& g : a.groups) {
    const auto found = by_name.find(g.name);
    if (found == by_name.end() || g.calls <= 0) continue;
    found->second.total_us += g.us;
    found->second.call_us = g.us / static_cast<double>(g.calls);
  }
  std::vector<CountedKernel> out;
  for (auto& [name, kernel] : by_name) out.push_back(std::move(kernel));
  std::stable_sort(out.begin(), out.end(),
                   [](const CountedKernel& x, const CountedKernel& y) { return x.total_us > y.total_us; });
  return out;
}

// Why metrics over cycles are missing although their counters are there; empty if they are not.
std::string why_not(const Trace& t, const Analysis& a) {
  const bool cycles = std::any_of(t.counters.begin(), t.counters.end(), [&](const auto& c) {
    return t.names[c.first.second].starts_with("GRBM_GUI_ACTIVE");
  });
  if (a.gfx.empty())
    return "the profile does not name the architecture, on which the metrics depend: give --gfx or --product";
  if (cycles && a.compute_units <= 0) return "the number of compute units is not known: give --product";
  if (cycles && a.product == nullptr) return "the number of accelerator dies is not known: give --product";
  return "";
}

}  // namespace

json counters_json(const Trace& trace, const Analysis& analysis, int top) {
  if (trace.counters.empty()) return nullptr;
  const std::vector<CountedKernel> kernels = kernels_with_counters(trace, analysis);
  std::set<std::string> found;
  json rows = json::array();
  for (const CountedKernel& k : kernels) {
    if (rows.size() >= static_cast<size_t>(top)) break;
    std::map<std::string, double> mean;
    for (const auto& [name, c] : k.sums) mean[name] = c.sum / static_cast<double>(std::max<int64_t>(1, c.count));
    json metrics = json::object();
    for (const CounterMetric& m : kMetrics)
      if (const MetricValue v = m.value({mean, analysis, k.call_us}); v && std::isfinite(*v)) {
        metrics[m.id] = *v;
        found.insert(m.id);
      }
    rows.push_back({{"name", k.name},
                    {"calls", k.calls},
                    {"mean_us", k.call_us > 0 ? json(k.call_us) : json(nullptr)},
                    {"metrics", std::move(metrics)},
                    {"counters", mean}});
  }
  json metrics = json::array(), missing = json::array();
  for (const CounterMetric& m : kMetrics) {
    if (found.count(m.id) != 0)
      metrics.push_back({{"id", m.id}, {"title", m.title}, {"unit", m.unit}, {"definition", m.definition}});
    else if (m.collect != nullptr) missing.push_back({{"id", m.id}, {"title", m.title}, {"collect", m.collect}});
  }
  const std::string why = missing.empty() ? "" : why_not(trace, analysis);
  return {{"metrics", std::move(metrics)},
          {"kernels", std::move(rows)},
          {"kernel_names", kernels.size()},
          {"missing", std::move(missing)},
          {"why_not", why.empty() ? json(nullptr) : json(why)}};
}

}  // namespace pyflame::tools::profile
