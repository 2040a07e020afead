// Selects the device that the report is about, and its product.
#include <algorithm>
#include <map>

#include "pyflame/base/error.h"
#include "tools/base/text.h"
#include "tools/profile/analyse.h"

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

}  // namespace pyflame::tools::profile
