// Builds the JSON document of a report.
#include "tools/profile/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/profile/counters.h"
#include "tools/profile/text_values.h"
#include "tools/profile/tuned_read.h"
#include "tools/view/finding.h"

namespace pyflame::tools::profile {

namespace {

using nlohmann::json;

constexpr size_t kMaxTimeline = 20'000, kMaxTracks = 64;

// Three decimals of a microsecond: clocks count nanoseconds, and files stay small.
double rounded(double v) { return std::isfinite(v) ? std::round(v * 1000) / 1000 : 0; }
double fraction(double v) { return std::isfinite(v) ? std::round(v * 1e9) / 1e9 : 0; }
json positive(double v) { return v > 0 ? json(rounded(v)) : json(nullptr); }
json known(int32_t v) { return v >= 0 ? json(v) : json(nullptr); }

json dims(const std::array<uint32_t, 3>& d) {
  return d[0] == 0 ? json(nullptr) : json{d[0], std::max(1U, d[1]), std::max(1U, d[2])};
}

json peaks_of(const Ceilings& c) {
  json peaks = {{"measured", c.text}, {"bandwidth_gbs", positive(c.gbs)}};
  for (const auto& [dtype, rate] : c.tflops) peaks[dtype + "_tflops"] = positive(rate);
  return peaks;
}

json device_of(const Profile& p, const Analysis& a) {
  if (a.device == nullptr && a.product == nullptr && a.gfx.empty()) return nullptr;
  json d;
  d["id"] = a.device_id;
  const bool named = a.device != nullptr && !a.device->name.empty();
  d["name"] = a.product != nullptr && (!named || a.device->name.starts_with("gfx")) ? json(a.product->name)
              : named                                                               ? json(a.device->name)
                                                                                    : json(nullptr);
  d["gfx"] = a.gfx.empty() ? json(nullptr) : json(a.gfx);
  d["amd"] = a.amd && !p.trace.own;
  d["cus"] = a.product != nullptr                       ? json(a.product->cus)
             : a.device != nullptr && a.device->cus > 0 ? json(a.device->cus)
                                                        : json(nullptr);
  d["with_work"] = a.devices;
  d["in_trace"] = p.trace.devices.size();
  d["peaks"] = p.trace.ceilings ? peaks_of(*p.trace.ceilings) : json(nullptr);
  if (a.product != nullptr) {
    const GpuProduct& g = *a.product;
    d["peaks"] = {{"product", g.name},
                  {"bandwidth_gbs", positive(g.bandwidth_gbs)},
                  {"fp32_tflops", positive(g.fp32_tflops)},
                  {"fp16_tflops", positive(g.fp16_tflops)},
                  {"bf16_tflops", positive(g.bf16_tflops)},
                  {"fp8_tflops", positive(g.fp8_tflops)},
                  {"int8_tflops", positive(int8_tflops(g))},
                  {"fp64_tflops", positive(g.fp64_tflops)}};
  }
  return d;
}

json steps_of(const Analysis& a) {
  if (a.steps.empty()) return nullptr;
  std::vector<double> length;
  for (const Step& s : a.steps) length.push_back(us(s.end - s.start));
  const double first = length[0];
  std::sort(length.begin(), length.end());
  const size_t n = length.size();
  const double median = n % 2 == 1 ? length[n / 2] : (length[n / 2 - 1] + length[n / 2]) / 2;
  return {{"count", n},
          {"median_us", rounded(median)},
          {"spread", median > 0 ? fraction((length.back() - length[0]) / median) : 0},
          {"first_us", rounded(first)},
          {"first", a.steps.front().number},
          {"last", a.steps.back().number},
          {"by", a.step_source == StepSource::annotation ? "annotation" : "repetition"},
          {"name", a.step_name.empty() ? json(nullptr) : json(a.step_name)}};
}

// Work of the device that no step launched; null where there is none.
json outside_of(const Analysis& a) {
  if (a.outside.events == 0) return nullptr;
  return {{"events", a.outside.events}, {"us", rounded(a.outside.us)}, {"before_recording", a.outside.before}};
}

// What first runs did once, of which the other times have nothing; null where there is none.
json set_up_of(const Profile& p) {
  if (p.set_up.empty()) return nullptr;
  double total = 0;
  const SetUp* longest = &p.set_up.front();
  for (const SetUp& s : p.set_up) {
    total += us(s.end - s.start);
    if (s.end - s.start > longest->end - longest->start) longest = &s;
  }
  return {{"us", rounded(total)}, {"steps", p.set_up.size()}, {"longest", longest->step}};
}

json time_of(const Profile& p, const Analysis& a) {
  return {{"set_up", set_up_of(p)},
          {"device_span_us", rounded(a.timeline ? a.device_span_us : 0)},
          {"outside", outside_of(a)},
          {"wall_us", rounded(a.wall_us)},
          {"gpu_busy_us", rounded(a.busy_us)},
          {"idle_us", rounded(a.idle_us)},
          {"launch_bound_us", rounded(a.launch_us)},
          {"steps", steps_of(a)},
          {"timeline", a.timeline}};
}

json categories_of(const Analysis& a) {
  json out = json::array();
  if (a.wall_us <= 0) return out;
  const double wall = a.wall_us;
  for (size_t i = 0; i < kCategories; ++i) {
    if (a.kernels[i] == 0 && a.share_us[i] <= 0) continue;
    out.push_back({{"name", name_of(static_cast<Category>(i))},
                   {"us", rounded(a.share_us[i])},
                   {"share", fraction(a.share_us[i] / wall)},
                   {"kernel_us", rounded(a.kernel_us[i])},
                   {"kernels", a.kernels[i]}});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const json& x, const json& y) { return x["us"].get<double>() > y["us"].get<double>(); });
  if (a.timeline) {
    out.push_back({{"name", "launch-bound"},
                   {"us", rounded(a.launch_us)},
                   {"share", fraction(a.launch_us / wall)},
                   {"kernel_us", 0},
                   {"kernels", 0}});
    out.push_back({{"name", "idle"},
                   {"us", rounded(a.idle_us)},
                   {"share", fraction(a.idle_us / wall)},
                   {"kernel_us", 0},
                   {"kernels", 0}});
  }
  return out;
}

json roofline_of(const KernelGroup& g, const Trace& t, const GpuProduct* product) {
  if (g.sized_us <= 0) return nullptr;
  const Work total{g.flops, g.bytes, g.dtype};
  const double mean_us = g.us / static_cast<double>(g.calls);
  const Roof r =
      t.ceilings ? roof_of(total, g.sized_us, mean_us, *t.ceilings) : roof_of(total, g.sized_us, mean_us, product);
  json j = {{"flops", g.flops},
            {"bytes", g.bytes},
            {"intensity", rounded(r.intensity)},
            {"tflops", fraction(r.tflops)},
            {"gbs", rounded(r.gbs)},
            {"of_peak", r.of_peak >= 0 ? json(fraction(r.of_peak)) : json(nullptr)},
            {"bound", *r.bound != 0 ? json(r.bound) : json(nullptr)},
            {"dtype", g.dtype.empty() ? json(nullptr) : json(g.dtype)},
            {"known_share", fraction(g.us > 0 ? g.sized_us / g.us : 0)}};
  return j;
}

json counters_of(const Trace& t, const KernelGroup& g) {
  std::map<std::string, Counter> sums;
  for (NameId name : g.names)
    for (auto it = t.counters.lower_bound({name, 0}); it != t.counters.end() && it->first.first == name; ++it) {
      Counter& c = sums[t.names[it->first.second]];
      c.sum += it->second.sum;
      c.count += it->second.count;
    }
  json out = json::object();
  for (const auto& [name, c] : sums) out[name] = c.sum / static_cast<double>(std::max<int64_t>(1, c.count));
  return out;
}

json kernels_of(const Profile& p, const Analysis& a, int top) {
  json out = json::array();
  const double wall = a.wall_us > 0 ? a.wall_us : 1;
  for (const KernelGroup& g : a.groups) {
    if (out.size() >= static_cast<size_t>(top)) break;
    json k = {{"name", g.name},
              {"full", g.full},
              {"category", name_of(g.category)},
              {"library", g.library.empty() ? json(nullptr) : json(g.library)},
              {"op", g.op.empty() ? json(nullptr) : json(g.op)},
              {"calls", g.calls},
              {"us", rounded(g.us)},
              {"share", fraction(g.us / wall)},
              {"mean_us", rounded(g.us / static_cast<double>(std::max<int64_t>(1, g.calls)))},
              {"min_us", rounded(g.min_us)},
              {"max_us", rounded(g.max_us)},
              {"grid", dims(g.grid)},
              {"block", dims(g.block)},
              {"vgpr", known(g.vgpr)},
              {"lds", known(g.lds)},
              {"scratch", known(g.scratch)},
              {"narrow_share", fraction(g.us > 0 ? g.narrow_us / g.us : 0)},
              {"roofline", roofline_of(g, p.trace, a.product)}};
    json counters = counters_of(p.trace, g);
    if (!counters.empty()) k["counters"] = std::move(counters);
    out.push_back(std::move(k));
  }
  return out;
}

std::string label(const Trace& t, int32_t event) {
  if (event < 0) return "";
  const GpuEvent& e = t.gpu[static_cast<size_t>(event)];
  return e.kind == GpuKind::kernel && !t.own && !t.operators ? short_kernel_name(t.names[e.name]) : t.names[e.name];
}

json gaps_of(const Trace& t, const Analysis& a, int top) {
  json out = json::array();
  for (const Gap& g : a.gaps) {
    if (out.size() >= static_cast<size_t>(top)) break;
    const NameId cpu = g.frame != 0 ? g.frame : g.call;
    out.push_back({{"at_us", rounded(us(g.start - a.start))},
                   {"us", rounded(us(g.end - g.start))},
                   {"before", label(t, g.before)},
                   {"after", label(t, g.after)},
                   {"why", describe(g.cause, t.operators)},
                   {"launch_bound", is_launch_bound(g.cause)},
                   {"cpu", cpu != 0 ? json(t.names[cpu]) : json(nullptr)}});
  }
  return out;
}

const char* code_of(GapCause c) {
  static constexpr const char* codes[] = {"dispatch",    "dependency",   "launching",    "python",        "host_code",
                                          "synchronise", "copy_to_host", "data_loading", "allocation",    "compilation",
                                          "loading",     "capture",      "unseen",       "executor",      "recording",
                                          "overhead",    "between",      "no_processor", "unknown_short", "unknown"};
  return codes[static_cast<size_t>(c)];
}

// The Python functions, or else the calls, in which the CPU was during the gaps of one cause, longest first.
json in_what(const Trace& t, const std::map<NameId, double>& time) {
  constexpr size_t kMost = 3;
  json out = json::array();
  for (const auto& [name, spent] : time) out.push_back({{"name", t.names[name]}, {"us", rounded(spent)}});
  std::stable_sort(out.begin(), out.end(),
                   [](const json& x, const json& y) { return x["us"].get<double>() > y["us"].get<double>(); });
  if (out.size() > kMost) out.erase(out.begin() + kMost, out.end());
  return out;
}

// A warm-up is as many steps: what profile() and docs/report.md ask for.
constexpr int64_t kWarmUp = 3;

// Whether a warm-up had run before a time, by the number of the step that it is in: ProfilerStep#N counts the steps that were not recorded, too.
bool is_warm(const Analysis& a, int64_t time) {
  const auto after =
      std::upper_bound(a.steps.begin(), a.steps.end(), time, [](int64_t at, const Step& s) { return at < s.start; });
  return after != a.steps.begin() && std::prev(after)->number >= kWarmUp;
}

json gap_reasons_of(const Trace& t, const Analysis& a) {
  struct Sum {
    double us = 0, warm_us = 0;
    int64_t count = 0;
    std::map<NameId, double> in;
  };
  std::map<GapCause, Sum> sums;
  for (const Gap& g : a.gaps) {
    const double length = us(g.end - g.start);
    Sum& sum = sums[g.cause];
    sum.us += length;
    if (is_warm(a, g.start)) sum.warm_us += length;
    ++sum.count;
    if (const NameId name = g.frame != 0 ? g.frame : g.call; name != 0) sum.in[name] += length;
  }
  json out = json::array();
  for (const auto& [cause, sum] : sums)
    out.push_back({{"code", code_of(cause)},
                   {"why", describe(cause, t.operators)},
                   {"us", rounded(sum.us)},
                   {"share", fraction(a.wall_us > 0 ? sum.us / a.wall_us : 0)},
                   {"count", sum.count},
                   {"warm", fraction(sum.us > 0 ? sum.warm_us / sum.us : 0)},
                   {"launch_bound", is_launch_bound(cause)},
                   {"in", in_what(t, sum.in)}});
  std::stable_sort(out.begin(), out.end(),
                   [](const json& x, const json& y) { return x["us"].get<double>() > y["us"].get<double>(); });
  return out;
}

json copies_of(const Analysis& a) {
  json out = json::array();
  for (const CopyGroup& g : a.copies) {
    const char* host = g.host == HostMemory::pageable ? "pageable" : g.host == HostMemory::pinned ? "pinned" : nullptr;
    out.push_back({{"kind", g.kind == GpuKind::copy ? "copy" : "fill"},
                   {"direction", g.kind == GpuKind::copy ? json(name_of(g.direction)) : json(nullptr)},
                   {"host_memory", host == nullptr ? json(nullptr) : json(host)},
                   {"calls", g.calls},
                   {"us", rounded(g.us)},
                   {"bytes", g.sized_us > 0 || g.bytes > 0 ? json(g.bytes) : json(nullptr)},
                   {"small", g.small},
                   {"gbs", g.sized_us > 0 && g.bytes > 0 ? json(rounded(g.bytes / g.sized_us / 1e3)) : json(nullptr)}});
  }
  return out;
}

json communication_of(const Analysis& a) {
  if (a.collectives.empty()) return nullptr;
  json list = json::array();
  for (const CollectiveGroup& g : a.collectives)
    list.push_back({{"name", g.name},
                    {"calls", g.calls},
                    {"us", rounded(g.us)},
                    {"bytes", g.bytes > 0 ? json(g.bytes) : json(nullptr)},
                    {"gbs", g.bytes > 0 && g.us > 0 ? json(rounded(g.bytes / g.us / 1e3)) : json(nullptr)},
                    {"ranks", g.group > 0 ? json(g.group) : json(nullptr)}});
  return {{"us", rounded(a.communication_us)},
          {"overlapped_us", rounded(a.overlapped_us)},
          {"exposed_us", rounded(a.communication_us - a.overlapped_us)},
          {"exposed_share", fraction(a.wall_us > 0 ? (a.communication_us - a.overlapped_us) / a.wall_us : 0)},
          {"collectives", list}};
}

// The number of events is limited. If there are more, the events of one track in one slice of time become one event, with the category and name that took most of the slice.
class Timeline {
 public:
  Timeline(const Trace& t, const Analysis& a) : t_(t), a_(a) {}

  json make() {
    std::map<int32_t, std::vector<int32_t>> streams;
    for (int32_t i : a_.events) streams[t_.gpu[static_cast<size_t>(i)].stream].push_back(i);
    while (streams.size() > kMaxTracks) streams.erase(std::prev(streams.end()));
    const bool all = a_.events.size() <= kMaxTimeline;
    const auto slices = static_cast<int64_t>(kMaxTimeline / std::max<size_t>(1, streams.size()));
    const int64_t slice = all ? 0 : (a_.end - a_.start) / slices + 1;
    json tracks = json::array();
    for (const auto& [stream, events] : streams) {
      json list = json::array();
      if (slice == 0) whole(events, list);
      else sliced(events, slice, list);
      tracks.push_back({{"name", t_.on_host ? fmt::format("thread {}", stream)
                                            : fmt::format("GPU {} stream {}", a_.device_id, stream & 0xFFFFF)},
                        {"events", std::move(list)}});
    }
    json steps = json::array();
    for (const Step& s : a_.steps) {
      if (steps.size() >= 1000) break;
      steps.push_back({rounded(us(s.start - a_.start)), rounded(us(s.end - s.start)), s.number});
    }
    json categories = json::array();
    for (int c = 0; c < kCategories; ++c) categories.push_back(name_of(static_cast<Category>(c)));
    return {{"tracks", std::move(tracks)},
            {"names", std::move(names_)},
            {"categories", std::move(categories)},
            {"steps", std::move(steps)},
            {"merged", slice != 0}};
  }

 private:
  size_t name(int32_t i) {
    const NameId id = t_.gpu[static_cast<size_t>(i)].name;
    const auto [at, fresh] = index_.try_emplace(id, names_.size());
    if (fresh) names_.push_back(label(t_, i));
    return at->second;
  }
  size_t category(int32_t i) const { return static_cast<size_t>(a_.classes[static_cast<size_t>(i)].category); }

  void whole(const std::vector<int32_t>& events, json& list) {
    for (int32_t i : events) {
      const GpuEvent& e = t_.gpu[static_cast<size_t>(i)];
      list.push_back({rounded(us(e.start - a_.start)), rounded(us(e.end - e.start)), category(i), name(i)});
    }
  }

  void sliced(const std::vector<int32_t>& events, int64_t slice, json& list) {
    for (size_t k = 0; k < events.size();) {
      const GpuEvent& first = t_.gpu[static_cast<size_t>(events[k])];
      const int64_t stop = first.start + slice;
      int64_t longest = -1;
      double busy = 0;
      int32_t stands = events[k];
      size_t n = k;
      for (; n < events.size() && t_.gpu[static_cast<size_t>(events[n])].start < stop; ++n) {
        const GpuEvent& e = t_.gpu[static_cast<size_t>(events[n])];
        busy += us(e.end - e.start);
        if (e.end - e.start > longest) {
          longest = e.end - e.start;
          stands = events[n];
        }
      }
      list.push_back({rounded(us(first.start - a_.start)), rounded(busy), category(stands), name(stands)});
      k = n;
    }
  }

  const Trace& t_;
  const Analysis& a_;
  json names_ = json::array();
  std::map<NameId, size_t> index_;
};

// Whether one operator runs so many products that TunableOp is trying them out.
bool tries_products(const Profile& p, const Analysis& a) {
  constexpr int kTrials = 16;
  std::map<int32_t, int> products;
  for (int32_t i : a.events) {
    const int32_t op = p.trace.gpu[static_cast<size_t>(i)].op;
    if (op < 0 || !reaches_tunable_op(a.classes[static_cast<size_t>(i)], "")) continue;
    const std::string& name = p.trace.names[p.trace.ops[static_cast<size_t>(op)].name];
    if (classify_op(name) == Category::gemm && ++products[op] >= kTrials) return true;
  }
  return false;
}

// What makes the matrix products.
json products_of(const Profile& p, const Analysis& a) {
  std::map<std::string, double> by;
  double tunable = 0, narrow = 0, all = 0;
  for (const KernelGroup& g : a.groups) {
    if (g.category != Category::gemm) continue;
    const bool reached = reaches_tunable_op({g.category, g.library}, g.op);
    by[reached ? "TunableOp" : g.library.empty() ? "unknown" : std::string(g.library)] += g.us;
    all += g.us;
    if (reached) tunable += g.us;
    if (few_bits(g.full) || g.dtype == "fp8" || g.dtype == "fp4" || g.dtype == "int8") narrow += g.us;
  }
  const auto most =
      std::max_element(by.begin(), by.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  const bool from_file = std::find(p.formats.begin(), p.formats.end(), "TunableOp results") != p.formats.end();
  return {{"by", most == by.end() ? json(nullptr) : json(most->first)},
          {"tunable_share", fraction(a.wall_us > 0 ? tunable / a.wall_us : 0)},
          {"other_share", fraction(a.wall_us > 0 ? (all - tunable) / a.wall_us : 0)},
          {"few_bits", all > 0 && narrow > all / 2},
          {"tunable_op", from_file || tries_products(p, a)}};
}

// Values that rules need in addition to times.
json signals_of(const Profile& p, const Analysis& a) {
  double triton = 0, inductor = 0, eager = 0, naive = 0, transposes = 0, spilled = 0, fp32_gemm = 0, narrow = 0,
         sdpa_math = 0, softmax = 0;
  int64_t small = 0, kernels = 0;
  double kernel_us = 0, gemm_us = 0, gemm_roof = 0, gemm_known = 0;
  for (const KernelGroup& g : a.groups) {
    kernels += g.calls;
    kernel_us += g.us;
    const bool pointwise = g.category == Category::elementwise || g.category == Category::reduction ||
                           g.category == Category::normalisation || g.category == Category::memory;
    if (g.library == "Triton") triton += g.us;
    if (g.full.starts_with("triton_")) inductor += g.us;
    if (g.library == "PyTorch" && pointwise) eager += g.us;
    if (g.full.find("naive_conv") != std::string::npos) naive += g.us;
    if (g.full.find("batched_transpose") != std::string::npos) transposes += g.us;
    if (g.scratch > 0) spilled += g.us;
    if (g.full.find("oftMax") != std::string::npos || g.full.find("oftmax") != std::string::npos) softmax += g.us;
    if (g.calls > 0 && g.us / static_cast<double>(g.calls) < 10) small += g.calls;
    const bool tensile_fp32 = g.full.find("Cijk_") != std::string::npos && g.full.find("_SB_") != std::string::npos;
    if (g.category == Category::gemm) {
      gemm_us += g.us;
      if (g.dtype == "fp32" || tensile_fp32) fp32_gemm += g.us;
      if (g.sized_us > 0 && a.product != nullptr) {
        const Roof r = roof_of({g.flops, g.bytes, g.dtype}, g.sized_us, g.us / static_cast<double>(g.calls), a.product);
        if (r.of_peak >= 0) {
          gemm_roof += r.of_peak * g.sized_us;
          gemm_known += g.sized_us;
        }
      }
    }
    // Only long kernels count, and no collectives: they use few workgroups on purpose.
    if (g.category != Category::communication && g.calls > 0 && g.us / static_cast<double>(g.calls) >= 5)
      narrow += g.narrow_us;
  }
  for (const CpuOp& op : p.trace.ops)
    if (p.trace.names[op.name] == "aten::_scaled_dot_product_attention_math") sdpa_math += us(op.end - op.start);
  const double wall = a.wall_us > 0 ? a.wall_us : 1;
  return {{"kernels", kernels},
          {"mean_kernel_us", kernels > 0 ? rounded(kernel_us / static_cast<double>(kernels)) : 0},
          {"mean_launch_us", rounded(a.mean_launch_us)},
          {"shorter_than_launch", a.short_kernels},
          {"under_10us", small},
          {"triton_share", fraction(triton / wall)},
          {"inductor_share", fraction(inductor / wall)},
          {"eager_share", fraction(eager / wall)},
          {"naive_conv_share", fraction(naive / wall)},
          {"transpose_share", fraction(transposes / wall)},
          {"scratch_share", fraction(spilled / wall)},
          {"fp32_gemm_share", fraction(fp32_gemm / wall)},
          {"products", products_of(p, a)},
          {"gemm_of_peak",
           gemm_known > 0.5 * gemm_us && gemm_known > 0 ? json(fraction(gemm_roof / gemm_known)) : json(nullptr)},
          {"narrow_share", fraction(narrow / wall)},
          {"compute_units", a.compute_units},
          {"math_attention", sdpa_math > 0},
          {"softmax_share", fraction(softmax / wall)},
          {"has_calls", a.has_calls},
          {"has_ops", !p.trace.ops.empty()},
          {"own", p.trace.own},
          {"on_host", p.trace.on_host},
          {"operators", p.trace.operators},
          {"truncated", p.trace.truncated},
          {"python_stacks", p.trace.python_calls > 0}};
}

json tuned_of(const Profile& p, const Analysis& a, const Options& options) {
  const bool told = !options.gfx.empty() || !options.product.empty();
  return tuned_rows(p.tuned, told ? a.product : nullptr, a.product);
}

json advice_of(const Profile& p, const json& document) {
  std::vector<Finding> advice = make_advice(document);
  for (Finding& f : tuned_advice(p.tuned, document["tuned"], p.formats)) advice.push_back(std::move(f));
  sort_findings(advice);
  return view::to_json(advice);
}

}  // namespace

json make_document(const Profile& p, const Options& options) {
  const Analysis a = analyse(p, options);
  json d;
  d["schema"] = "pyflame.report/1";
  d["inputs"] = p.inputs;
  d["format"] = fmt::format("{}", fmt::join(p.formats, ", "));
  d["device"] = device_of(p, a);
  d["time"] = time_of(p, a);
  d["categories"] = categories_of(a);
  d["kernels"] = kernels_of(p, a, options.top);
  d["kernel_names"] = a.groups.size();
  d["counters"] = counters_json(p.trace, a, options.top);
  d["gaps"] = gaps_of(p.trace, a, options.top);
  d["gap_reasons"] = gap_reasons_of(p.trace, a);
  d["copies"] = copies_of(a);
  d["communication"] = communication_of(a);
  d["ranks"] = ranks_json(p.ranks);
  d["timeline"] = Timeline(p.trace, a).make();
  d["tuned"] = tuned_of(p, a, options);
  d["top"] = options.top;
  d["validators"] = json::object();
  for (const auto& [name, value] : p.tuned.validators) d["validators"][name] = value;
  d["fallbacks"] = p.trace.fallbacks;
  d["signals"] = signals_of(p, a);
  d["problems"] = json::array();
  for (const Problem& problem : p.problems) d["problems"].push_back({{"where", problem.where}, {"what", problem.what}});
  d["advice"] = advice_of(p, d);
  d["verdict"] = p.trace.empty() && only_tuned(p.formats) ? tuned_verdict(p.tuned, p.formats) : make_verdict(d);
  return d;
}

}  // namespace pyflame::tools::profile
