#include "pyflame/runtime/libraries.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <hwy/highway.h>
#include <hwy/targets.h>
#include <oneapi/dnnl/dnnl.h>

namespace pyflame {

namespace {

std::string version(int major, int minor, int patch) { return fmt::format("{}.{}.{}", major, minor, patch); }

// OpenBLAS is looked up through the loader, so that this file does not load it if nothing else needs it.
std::string openblas() {
  using Config = char* (*)();
  const auto config = reinterpret_cast<Config>(::dlsym(RTLD_DEFAULT, "openblas_get_config"));
  return config ? config() : "not loaded";
}

std::string highway() {
  std::string text = version(HWY_MAJOR, HWY_MINOR, HWY_PATCH) + ",";
  // The best target that the processor supports; lower bits are better targets.
  const int64_t supported = hwy::SupportedTargets();
  const int64_t best = supported & -supported;
  return text + " best target here " + hwy::TargetName(best);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions() {
  const dnnl_version_t* d = dnnl_version();
  return {{"oneDNN", version(d->major, d->minor, d->patch)},
          {"OpenBLAS", openblas()},
          {"Highway", highway()},
          {"fmt", version(FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)}};
}

std::string build_type() {
  std::string type =
#ifdef NDEBUG
      "release";
#else
      "debug";
#endif
#if defined(__SANITIZE_ADDRESS__)
  type += " address-sanitizer";
#endif
#if defined(__SANITIZE_THREAD__)
  type += " thread-sanitizer";
#endif
  return type;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown compiler";
#endif
}

}  // namespace pyflame
