// Selects the device and the time that the report is about.
#include <algorithm>
#include <map>

#include "pyflame/base/error.h"
#include "tools/base/text.h"
#include "tools/profile/analyse.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace {

// Finds the product whose name is contained in the device name of the trace.
const GpuProduct* product_by_name(const std::string& name) {
  const std::string given = lower(name);
  const GpuProduct* best = nullptr;
  for (const GpuProduct& p : gpu_products()) {
    const std::string known = lower(p.name);
    if (known.empty() || given.empty()) continue;
    const bool fits = given.find(known) != std::string::npos || known.find(given) != std::string::npos;
    // "MI300X" is not an MI300X VF, and an RX 7900 XTX is not an RX 7900 XT, so the name of the nearest length is taken.
    const auto apart = [&](const GpuProduct& of) {
      return std::max(of.name.size(), given.size()) - std::min(of.name.size(), given.size());
    };
    if (fits && (best == nullptr || apart(p) < apart(*best))) best = &p;
  }
  return best;
}

void identify(const Trace& t, const Options& options, Analysis& a) {
  std::string name = options.product;
  if (name.empty() && a.device != nullptr) name = a.device->name;
  a.gfx = options.gfx;
  if (a.gfx.empty() && options.product.empty() && a.device != nullptr) a.gfx = a.device->gfx;
  PF_CHECK(options.gfx.empty() || find_gpu_arch(options.gfx) != nullptr, Value,
           "report: --gfx: unknown architecture; got {}; expected a name such as gfx942", options.gfx);
  a.product = a.gfx.empty() ? nullptr : find_gpu_product(a.gfx, name, a.device == nullptr ? 0 : a.device->cus);
  if (const GpuProduct* by_name = product_by_name(name);
      by_name != nullptr && (a.product == nullptr || options.gfx.empty()))
    a.product = by_name;
  PF_CHECK(options.product.empty() || a.product != nullptr, Value,
           "report: --product: unknown product; got '{}'; expected a name such as 'MI300X'", options.product);
  if (a.product != nullptr && a.gfx.empty()) a.gfx = a.product->gfx;
  const GpuArch* arch = find_gpu_arch(a.gfx);
  const bool cuda = std::any_of(t.calls.begin(), t.calls.end(),
                                [&](const ApiCall& c) { return t.names[c.name].starts_with("cuda"); });
  a.amd = arch != nullptr ? arch->amd : !cuda && lower(name).find("nvidia") == std::string::npos;
}

// The number in "ProfilerStep#12"; -1 if the name is not that of a step.
int64_t step_number(std::string_view name) {
  constexpr std::string_view prefix = "ProfilerStep#";
  int64_t n = -1;
  if (!name.starts_with(prefix)) return -1;
  return to_int(name.substr(prefix.size()), n) && n >= 0 ? n : -1;
}

void annotated_steps(const Trace& t, Analysis& a) {
  for (const CpuOp& op : t.ops) {
    if (!op.annotation) continue;
    const int64_t n = step_number(t.names[op.name]);
    if (n >= 0) a.steps.push_back({op.start, op.end, n});
  }
  if (!a.steps.empty()) a.step_source = StepSource::annotation;
}

// Training and serving repeat the same kernels. A step is the distance at which the sequence of names repeats. Candidates are the distances between occurrences of a name, beginning with the rarest names. A candidate is accepted if nearly all of the sequence agrees with it.
void repeated_steps(const Trace& t, Analysis& a) {
  std::vector<int32_t> kernels;
  for (int32_t e : a.events)
    if (t.gpu[static_cast<size_t>(e)].kind == GpuKind::kernel) kernels.push_back(e);
  const size_t n = kernels.size();
  if (n < 12 || n > 2'000'000) return;
  const auto name = [&](size_t i) { return t.gpu[static_cast<size_t>(kernels[i])].name; };
  std::map<NameId, std::vector<size_t>> where;
  for (size_t i = 0; i < n; ++i) where[name(i)].push_back(i);
  std::vector<const std::vector<size_t>*> candidates;
  for (const auto& [id, at] : where)
    if (at.size() >= 3) candidates.push_back(&at);
  std::stable_sort(candidates.begin(), candidates.end(), [](auto* x, auto* y) { return x->size() < y->size(); });
  for (size_t c = 0; c < std::min<size_t>(candidates.size(), 8); ++c) {
    const std::vector<size_t>& at = *candidates[c];
    const size_t period = at[at.size() / 2] - at[at.size() / 2 - 1], first = at[0], last = at.back();
    if (period < 4 || (last - first) < 2 * period) continue;
    size_t same = 0, compared = 0;
    for (size_t i = first; i + period <= last; ++i, ++compared) same += name(i) == name(i + period);
    if (static_cast<double>(same) < 0.9 * static_cast<double>(compared) ||
        static_cast<double>(last - first) < 0.5 * static_cast<double>(n))
      continue;
    for (size_t i = first, number = 0; i + period <= last + 1 || i <= last; i += period, ++number) {
      if (i + period > n) break;
      const int64_t begin = t.gpu[static_cast<size_t>(kernels[i])].start;
      const int64_t end = i + period < n ? t.gpu[static_cast<size_t>(kernels[i + period])].start
                                         : t.gpu[static_cast<size_t>(kernels[n - 1])].end;
      a.steps.push_back({begin, end, static_cast<int64_t>(number)});
    }
    if (a.steps.size() >= 3) {
      a.step_source = StepSource::repetition;
      return;
    }
    a.steps.clear();
  }
}

void keep_chosen_steps(const Options& options, Analysis& a) {
  if (options.first_step < 0 && options.last_step < 0) return;
  PF_CHECK(
      !a.steps.empty(), Value,
      "report: --steps: the trace has no steps; expected annotations ProfilerStep#N or a repeated sequence of kernels");
  const int64_t low = a.steps.front().number, high = a.steps.back().number;
  const int64_t first = std::max<int64_t>(0, options.first_step),
                last = options.last_step < 0 ? INT64_MAX : options.last_step;
  std::erase_if(a.steps, [&](const Step& s) { return s.number < first || s.number > last; });
  PF_CHECK(!a.steps.empty(), Value, "report: --steps: no such step; expected numbers from {} to {}", low, high);
}

}  // namespace

void choose_device(const Trace& t, const Options& options, Analysis& a) {
  std::map<int32_t, double> time;
  for (const GpuEvent& e : t.gpu) time[e.device] += us(e.end - e.start);
  for (const auto& [id, spent] : time) a.devices.push_back(id);
  if (options.device >= 0) {
    PF_CHECK(time.count(options.device) != 0, Value,
             "report: --device: the device has no work in this profile; got {}; expected one of {}", options.device,
             fmt::join(a.devices, ", "));
    a.device_id = options.device;
  } else if (!time.empty()) {
    a.device_id = std::max_element(time.begin(), time.end(), [](const auto& x, const auto& y) {
                    return x.second < y.second;
                  })->first;
  } else if (!t.devices.empty()) {
    a.device_id = t.devices[0].id;
  }
  for (const Device& d : t.devices)
    if (d.id == a.device_id) a.device = &d;
  // Device numbers may count GPUs only, or agents. If all devices are of one kind, it does not matter.
  if (a.device == nullptr && !t.devices.empty()) {
    const bool same =
        std::all_of(t.devices.begin(), t.devices.end(), [&](const Device& d) { return d.name == t.devices[0].name; });
    if (same) a.device = &t.devices[0];
  }
  identify(t, options, a);
}

void choose_window(const Trace& t, const Options& options, Analysis& a) {
  for (size_t i = 0; i < t.gpu.size(); ++i)
    if (t.gpu[i].device == a.device_id) a.events.push_back(static_cast<int32_t>(i));
  annotated_steps(t, a);
  if (a.steps.empty()) repeated_steps(t, a);
  const int64_t trace_ends = a.steps.empty() ? 0 : a.steps.back().end;
  keep_chosen_steps(options, a);
  if (a.events.empty()) return;
  a.timeline = true;
  a.start = t.gpu[static_cast<size_t>(a.events.front())].start;
  for (int32_t e : a.events) a.end = std::max(a.end, t.gpu[static_cast<size_t>(e)].end);
  if (a.steps.empty()) return;
  const int64_t first = a.steps.front().start, last = a.steps.back().end;
  int64_t end = last;
  // Work that was launched in the last step of the trace belongs to it, although the device runs it later. In the middle of a trace, the time of the next step begins there.
  for (int32_t i : a.events) {
    if (last < trace_ends) break;
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    if (e.call < 0) continue;
    const int64_t launched = t.calls[static_cast<size_t>(e.call)].start;
    if (launched >= first && launched <= last) end = std::max(end, e.end);
  }
  const bool any = std::any_of(a.events.begin(), a.events.end(), [&](int32_t i) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    return e.end > first && e.start < end;
  });
  if (!any) {  // annotations of another clock or device
    a.steps.clear();
    a.step_source = StepSource::whole;
    return;
  }
  a.start = first;
  a.end = end;
  std::erase_if(a.events, [&](int32_t i) {
    const GpuEvent& e = t.gpu[static_cast<size_t>(i)];
    return e.end <= a.start || e.start >= a.end;
  });
}

}  // namespace pyflame::tools::profile
