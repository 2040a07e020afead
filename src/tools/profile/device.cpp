// Selects the device that the report is about, and says which product it is. A wrong product gives a wrong roofline, so a name must fit word by word (an A100-PG509 is no A10, an L4 no L40S), and units and memory must not contradict it: a partition of a device has other peaks than the whole.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "pyflame/base/error.h"
#include "tools/base/text.h"
#include "tools/profile/analyse.h"

namespace pyflame::tools::profile {

namespace {

using Words = std::vector<std::string>;

bool has_word(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "NVIDIA A100-SXM4-80GB" -> a100, sxm4, 80gb. Words of vendors and families are left out.
Words name_words(std::string_view name) {
  static constexpr std::string_view families[] = {"amd",   "nvidia", "instinct", "radeon",   "geforce",
                                                  "tesla", "rx",     "pro",      "graphics", "rtx",
                                                  "tm",    "device", "gpu",      "quadro"};
  Words words(1);
  for (char c : lower(name)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) words.back() += c;
    else if (!words.back().empty()) words.emplace_back();
  }
  std::erase_if(words, [&](const std::string& w) {
    return w.empty() || std::find(std::begin(families), std::end(families), w) != std::end(families);
  });
  return words;
}

bool contains_all(const Words& words, const Words& wanted) {
  return !wanted.empty() &&
         std::all_of(wanted.begin(), wanted.end(), [&](const auto& w) { return has_word(words, w); });
}

// What a profile says of a device. Zero and empty mean that it does not.
struct Seen {
  Words words;
  std::string gfx;
  bool amd = true;
  int major = 0, minor = 0, cus = 0;
  int64_t memory_bytes = 0;
};

// gfx90a -> 9.0, gfx1151 -> 11.5, sm_90 -> 9.0: as the runtime gives it.
bool has_capability(std::string_view gfx, int major, int minor) {
  const bool amd = gfx.starts_with("gfx");
  const std::string_view digits = gfx.substr(3);
  const size_t last = digits.size() - (amd ? 2 : 1);
  return digits.size() > (amd ? 2U : 1U) && digits.substr(0, last) == std::to_string(major) &&
         digits.substr(last, 1) == std::to_string(minor);
}

bool numbers_fit(const GpuProduct& p, const Seen& seen) {
  const GpuArch* arch = find_gpu_arch(p.gfx);
  if (arch == nullptr || arch->amd != seen.amd) return false;
  if (!seen.gfx.empty() && find_gpu_arch(seen.gfx) != arch) return false;
  if (seen.gfx.empty() && seen.major > 0 && !has_capability(p.gfx, seen.major, seen.minor)) return false;
  // HIP counts pairs of compute units on RDNA.
  if (seen.cus > 0 && p.cus > 0 && p.cus != seen.cus && !(arch->has_wgp && p.cus == 2 * seen.cus)) return false;
  constexpr double kReserved = 0.1;  // of the memory is kept by the driver at most
  const double gib = static_cast<double>(seen.memory_bytes) / (1 << 30), whole = static_cast<double>(p.memory_gib);
  return gib <= 0 || whole <= 0 || std::abs(gib - whole) <= kReserved * whole;
}

// A word with a digit is the name of a model, or of its memory and socket.
bool names_a_model(const Words& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& w) {
    return w.size() > 1 && std::any_of(w.begin(), w.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  });
}

const GpuProduct* product_seen(const Seen& seen) {
  const GpuProduct* best = nullptr;
  size_t most = 0;
  for (const GpuProduct& p : gpu_products()) {
    const Words words = name_words(p.name);
    if (contains_all(seen.words, words) && words.size() > most && numbers_fit(p, seen)) {
      best = &p;
      most = words.size();
    }
  }
  if (best != nullptr) return best;
  const bool named = names_a_model(seen.words);
  if (!named && (seen.cus == 0 || (seen.gfx.empty() && seen.major == 0))) return nullptr;
  for (const GpuProduct& p : gpu_products()) {
    if (!numbers_fit(p, seen)) continue;
    const Words words = name_words(p.name);  // the first is the model: a100, mi300x, 7900
    if (!named || (!words.empty() && seen.cus > 0 && has_word(seen.words, words[0]))) return &p;
  }
  return nullptr;
}

// What a user calls a product: "7900 XT", "MI300X"; the shortest name that has these words.
const GpuProduct* product_called(const std::string& name) {
  const Words asked = name_words(name);
  const GpuProduct* best = nullptr;
  const auto search = [&](auto fits) {
    for (const GpuProduct& p : gpu_products())
      if (best == nullptr || p.name.size() < best->name.size())
        if (fits(name_words(p.name))) best = &p;
    return best != nullptr;
  };
  if (asked.empty() || search([&](const Words& words) { return contains_all(words, asked); })) return best;
  if (search([&](const Words& words) { return contains_all(asked, words); })) return best;
  search([&](const Words& words) { return words[0].starts_with(asked[0]); });
  return best;
}

// The vendor, from what is most certain first.
bool is_amd(const Trace& t, const Device* device) {
  const auto one_of = [](std::string_view text, std::initializer_list<std::string_view> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
  };
  if (device != nullptr) {
    const std::string name = lower(device->name);
    if (!device->gfx.empty()) return device->gfx.starts_with("gfx");
    if (one_of(name, {"amd", "radeon", "instinct", "gfx"})) return true;
    if (one_of(name, {"nvidia", "geforce", "tesla", "quadro"})) return false;
    if (device->wave == 64) return true;
  }
  for (const ApiCall& c : t.calls) {
    const std::string& name = t.names[c.name];
    if (name.starts_with("hip") || name.starts_with("hsa")) return true;
    if (name.starts_with("cu")) return false;
  }
  constexpr size_t kLooked = 10000;
  for (size_t i = 0; i < std::min(t.gpu.size(), kLooked); ++i) {
    const std::string& name = t.names[t.gpu[i].name];
    if (one_of(name, {"Cijk_", "__amd_", "ck::", "ck_tile", "miopen"})) return true;
    if (one_of(name, {"nvjet_", "cutlass", "_xmma_", "cudnn", "cublas", "ampere_", "volta_"})) return false;
  }
  return true;
}

// Whether --gfx names the device of the trace. If not, the trace is wrong, or means another device.
bool could_be(const Device& device, std::string_view gfx) {
  if (!device.gfx.empty()) return find_gpu_arch(device.gfx) == find_gpu_arch(gfx);
  return device.major == 0 || has_capability(gfx, device.major, device.minor);
}

void identify_device(const Trace& t, const Options& options, Analysis& a) {
  PF_CHECK(options.gfx.empty() || find_gpu_arch(options.gfx) != nullptr, Value,
           "report: --gfx: unknown architecture; got {}; expected a name such as gfx942", options.gfx);
  a.gfx = options.gfx;
  if (!options.product.empty()) {
    a.product = product_called(options.product);
    PF_CHECK(a.product != nullptr, Value,
             "report: --product: unknown product; got '{}'; expected a name such as 'MI300X'", options.product);
  } else {
    const Device* device = a.device;
    if (!options.gfx.empty() && device != nullptr && !could_be(*device, options.gfx)) device = nullptr;
    Seen seen;
    seen.amd = is_amd(t, device);
    if (device != nullptr) {
      if (a.gfx.empty()) a.gfx = device->gfx;
      if (a.gfx.empty() && !seen.amd && device->major > 0) a.gfx = fmt::format("sm_{}{}", device->major, device->minor);
      seen.words = name_words(device->name.starts_with("gfx") ? "" : device->name);
      seen.major = device->major;
      seen.minor = device->minor;
      seen.cus = device->cus;
      seen.memory_bytes = device->memory_bytes;
    }
    if (const GpuArch* arch = find_gpu_arch(a.gfx)) seen.amd = arch->amd;
    seen.gfx = a.gfx;
    a.amd = seen.amd;
    a.product = product_seen(seen);
    // Nothing but the architecture is known.
    if (a.product == nullptr && seen.cus == 0 && !names_a_model(seen.words)) a.product = find_gpu_product(a.gfx);
  }
  if (a.product != nullptr && a.gfx.empty()) a.gfx = a.product->gfx;
  if (const GpuArch* arch = find_gpu_arch(a.gfx)) a.amd = arch->amd;
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
  // A profiler lists the machine's GPUs also where only the CPU worked. Its operators have nothing to do with them.
  if (t.operators) {
    const bool named = !options.gfx.empty() || !options.product.empty();
    PF_CHECK(!named, Value,
             "report: {}: the profile has operators of the CPU and no work of a GPU; got '{}'; expected a profile with "
             "work of a GPU; hint: leave the option out",
             options.gfx.empty() ? "--product" : "--gfx", options.gfx.empty() ? options.product : options.gfx);
    return;
  }
  for (const Device& d : t.devices)
    if (d.id == a.device_id) a.device = &d;
  // Device numbers may count GPUs only, or agents. If all devices are of one kind, it does not matter.
  if (a.device == nullptr && !t.devices.empty()) {
    const bool same =
        std::all_of(t.devices.begin(), t.devices.end(), [&](const Device& d) { return d.name == t.devices[0].name; });
    if (same) a.device = &t.devices[0];
  }
  identify_device(t, options, a);
}

}  // namespace pyflame::tools::profile
