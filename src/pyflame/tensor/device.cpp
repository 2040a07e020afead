// Device names. Only device types of which a machine can have several carry an index in the name.
#include "pyflame/tensor/device.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "pyflame/base/error.h"

namespace pyflame {

namespace {
constexpr std::string_view kTypes[] = {"cpu", "reference", "null", "rocm", "cuda"};
static_assert(std::size(kTypes) == kNumDeviceTypes);

thread_local Device t_current{};

bool has_index(DeviceType t) { return t == DeviceType::rocm || t == DeviceType::cuda; }
}  // namespace

std::string Device::str() const {
  std::string s(kTypes[static_cast<size_t>(type)]);
  return has_index(type) ? s + ":" + std::to_string(index) : s;
}

Device parse_device(std::string_view text) {
  const size_t colon = text.find(':');
  std::string_view name = text.substr(0, colon);
  if (name == "meta") name = "null";  // PyTorch's name for tensors without values
  for (int i = 0; i < kNumDeviceTypes; ++i) {
    if (kTypes[i] != name) continue;
    Device d{static_cast<DeviceType>(i), 0};
    if (colon == std::string_view::npos) return d;
    const std::string_view digits = text.substr(colon + 1);
    int value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool number = !digits.empty() && error == std::errc() && end == digits.data() + digits.size();
    const int most = has_index(d.type) ? 127 : 0;
    PF_CHECK(number && value >= 0 && value <= most, Value,
             "device: bad device index; got '{}'; expected '{}:N' with 0 <= N <= {}", text, name, most);
    d.index = static_cast<int8_t>(value);
    return d;
  }
  // What other programs call a GPU.
  constexpr std::array<std::string_view, 5> kElsewhere{"hip", "gpu", "amd", "xpu", "mps"};
  const bool elsewhere = std::find(kElsewhere.begin(), kElsewhere.end(), name) != kElsewhere.end();
  PF_FAIL(Value, "device: no such device; got '{}'; expected cpu, rocm, rocm:N, cuda, cuda:N, reference or null{}",
          text, elsewhere ? "; hint: an AMD GPU is 'rocm', an NVIDIA GPU 'cuda'" : "");
}

Device current_device() { return t_current; }
void set_current_device_unchecked(Device d) { t_current = d; }

}  // namespace pyflame
