// Loads the functions of HIP or CUDA.
#include "pyflame/backends/gpu/driver/rt.h"

#include <mutex>

#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

struct Loaded {
  std::once_flag once;
  Rt rt;
  bool ok = false;
  std::string why;
};

void load(DeviceType type, Loaded& out) {
  const bool hip = type == DeviceType::rocm;
  const Dylib::Opened& opened = (hip ? kHip : kCuda).open();
  void* library = opened.handle;
  if (!library) {
    out.why = opened.why;
    return;
  }
  out.rt.type = type;
  out.rt.library = library;
  std::string missing;
#define PYFLAME_RT_LOAD(member, hip_name, cuda_name, parameters)                                            \
  out.rt.member = reinterpret_cast<Result(*) parameters>(find_symbol(library, hip ? hip_name : cuda_name)); \
  if (!out.rt.member) missing += (missing.empty() ? "" : ", ") + std::string(hip ? hip_name : cuda_name);
  PYFLAME_RT_FUNCTIONS(PYFLAME_RT_LOAD)
#undef PYFLAME_RT_LOAD
#define PYFLAME_RT_LOAD(member, vendor, name, parameters) \
  if (type == vendor) out.rt.member = reinterpret_cast<Result(*) parameters>(find_symbol(library, name));
  PYFLAME_RT_OPTIONAL_FUNCTIONS(PYFLAME_RT_LOAD)
#undef PYFLAME_RT_LOAD
  if (hip && !find_symbol(library, kHipProperties))
    missing += (missing.empty() ? "" : ", ") + std::string(kHipProperties);
  if (!missing.empty()) {
    out.why = fmt::format("the {} is too old: it lacks {}{}", hip ? "HIP runtime" : "CUDA driver", missing,
                          hip ? "; install ROCm 6.0 or later" : "");
    return;
  }
  if (hip)
    if (out.why = override_refusal(); !out.why.empty()) return;
  int count = 0;
  Result result = out.rt.init(0);
  if (result == 0) result = out.rt.device_count(&count);
  if (result != 0 || count == 0) {
    const char* text = nullptr;
    if (result != 0) out.rt.error_string(result, &text);
    out.why = fmt::format("the {} sees no device{}{}", hip ? "HIP runtime" : "CUDA driver", text ? ": " : "",
                          text ? text : "");
    return;
  }
  out.ok = true;
}

}  // namespace

const Rt* runtime(DeviceType type, std::string* why) {
  static Loaded* loaded = new Loaded[2];  // leaked: threads may outlive static destruction
  PF_CHECK(has_own_memory(type), Value, "runtime: not a GPU; got '{}'", Device{type}.str());
  Loaded& l = loaded[type == DeviceType::rocm ? 0 : 1];
  std::call_once(l.once, [&] { load(type, l); });
  if (!l.ok && why) *why = l.why;
  return l.ok ? &l.rt : nullptr;
}

bool is_fatal(Result result) {
  // Uncorrectable memory error, illegal address, timeout, assert, hardware stack, illegal instruction, misaligned
  // address, address space, program counter, launch failure: HIP and CUDA use the same numbers.
  for (const Result r : {46, 214, 700, 702, 710, 714, 715, 716, 717, 718, 719})
    if (result == r) return true;
  return false;
}

int Rt::attribute(Attribute which, int device) const {
  const AttributeNumbers n = kAttributeNumbers[static_cast<size_t>(which)];
  const int number = type == DeviceType::rocm ? n.hip : n.cuda;
  int value = 0;
  return number >= 0 && device_attribute(&value, number, device) == 0 ? value : 0;
}

void Rt::check(Result result, const char* what) const {
  if (result == 0) return;
  const char* text = nullptr;
  error_string(result, &text);
  const std::string words = fmt::format("{}: {} failed with error {}{}{}", type == DeviceType::rocm ? "rocm" : "cuda",
                                        what, result, text ? ": " : "", text ? text : "");
  if (result == kOutOfMemory) fail(ErrorKind::OutOfMemory, words);  // the same number in HIP and CUDA
  fail(is_fatal(result) ? ErrorKind::Device : ErrorKind::Runtime, words);
}

}  // namespace pyflame::gpu
