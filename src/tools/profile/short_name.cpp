// Short names of kernels, for tables. See classify.h.
#include <algorithm>
#include <cctype>

#include "tools/profile/classify.h"

namespace pyflame::tools::profile {

namespace {

bool identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The names of a mangled symbol's outermost scope: _ZN2at6native13reduce_kernelI… -> at::native::reduce_kernel. Only the lengths in the symbol are used, because a full demangler may need any amount of memory for hostile input.
std::string unmangled(std::string_view name) {
  if (!name.starts_with("_Z")) return std::string(name);
  size_t at = 2;
  const bool nested = at < name.size() && name[at] == 'N';
  at += nested;
  while (at < name.size() && (name[at] == 'K' || name[at] == 'L')) ++at;
  std::string out;
  while (at < name.size() && name[at] >= '0' && name[at] <= '9') {
    size_t n = 0;
    while (at < name.size() && name[at] >= '0' && name[at] <= '9' && n < 4096)
      n = n * 10 + static_cast<size_t>(name[at++] - '0');
    if (n == 0 || n > name.size() - at) break;
    const std::string_view part = name.substr(at, n);
    if (!part.starts_with("_GLOBAL__N")) out += (out.empty() ? "" : "::") + std::string(part);
    at += n;
    if (!nested) break;
  }
  return out.empty() ? std::string(name) : out;
}

// Text at the end of a function's template arguments that says what it computes.
std::string functor_of(std::string_view name) {
  static constexpr std::string_view noise[] = {"at",
                                               "native",
                                               "array",
                                               "std",
                                               "detail",
                                               "Array",
                                               "c10",
                                               "memory",
                                               "float",
                                               "double",
                                               "int",
                                               "unsigned",
                                               "char",
                                               "bool",
                                               "anonymous",
                                               "namespace",
                                               "binary_internal",
                                               "gpu_kernel_impl_nocast",
                                               "gpu_kernel_impl",
                                               "BinaryFunctor",
                                               "AUnaryFunctor",
                                               "BUnaryFunctor",
                                               "CUDAFunctorOnSelf_add_",
                                               "ReduceOp",
                                               "func_wrapper_t",
                                               "BFloat16",
                                               "Half",
                                               "long",
                                               "TensorListMetadata",
                                               "ck_tile",
                                               "ck",
                                               "true",
                                               "false",
                                               "void",
                                               "operator",
                                               "const",
                                               "lambda",
                                               "opmath_gpu_kernel_with_scalars",
                                               "OpaqueType",
                                               "TrivialOffsetCalculator",
                                               "kattr_no_packed_fp32_ops_v"};
  const size_t open = name.find('<');
  if (open == std::string_view::npos) return "";
  size_t i = open;
  while (i < name.size()) {
    if (!identifier(name[i]) || std::isdigit(static_cast<unsigned char>(name[i])) != 0) {
      while (i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) != 0) ++i;
      if (i < name.size() && !identifier(name[i])) ++i;
      else if (i < name.size() && std::isdigit(static_cast<unsigned char>(name[i])) != 0) ++i;
      continue;
    }
    size_t end = i;
    while (end < name.size() && identifier(name[end])) ++end;
    const std::string_view word = name.substr(i, end - i);
    const bool gfx = word.starts_with("gfx");
    if (word.size() > 2 && !gfx && std::find(std::begin(noise), std::end(noise), word) == std::end(noise))
      return std::string(word);
    i = end;
  }
  return "";
}

// Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_… : problem type, macro tile and matrix instruction.
std::string short_tensile(std::string_view name) {
  std::string out;
  size_t parts = 0;
  bool tile = false;
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('_', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    const bool sized = part.size() > 2 && std::isdigit(static_cast<unsigned char>(part[2])) != 0;
    if (part.starts_with("MT") && sized) {
      out += " " + std::string(part);
      tile = true;
    } else if (tile && part.starts_with("MI") && sized) {
      return out + " " + std::string(part);
    } else if (!tile && ++parts <= 5 && part != "Bias") {
      out += (out.empty() ? "" : "_") + std::string(part);
    }
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string short_kernel_name(std::string_view full) {
  std::string storage = unmangled(full.substr(0, 4096));
  std::string_view name = storage;
  if (name.ends_with(".kd")) name.remove_suffix(3);
  const size_t tensile = name.find("Cijk_");
  if (tensile != std::string_view::npos && name.find("_MT") != std::string_view::npos)
    return short_tensile(name.substr(tensile));
  if (name.starts_with("void ")) name.remove_prefix(5);
  // Removes template arguments and the parameter list. "(anonymous namespace)" is part of a name.
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (depth == 0 && name.substr(i).starts_with("(anonymous namespace)")) {
      i += std::string_view("(anonymous namespace)").size() - 1;
      if (name.substr(i + 1).starts_with("::")) i += 2;
      continue;
    }
    if (c == '<') {
      ++depth;
    } else if (c == '>') {
      depth = std::max(0, depth - 1);
    } else if (depth == 0) {
      if (c == '(') break;
      out += c;
    }
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == ',')) out.pop_back();
  // Names that many kernels share need their first template argument to be distinct.
  static constexpr std::string_view wrappers[] = {"elementwise",   "reduce_kernel", "multi_tensor_apply",
                                                  "kentry",        "enable_if",     "cutlass::Kernel",
                                                  "device_kernel", "kernel_gemm",   "launch_clamp"};
  for (std::string_view w : wrappers) {
    if (out.find(w) == std::string::npos) continue;
    const std::string functor = functor_of(name);
    if (out.starts_with("std::enable_if")) out = "kernel";
    if (!functor.empty()) out += " [" + functor + "]";
    break;
  }
  if (out.starts_with("at::native::")) out.erase(0, 12);
  return out.empty() ? std::string(name.substr(0, 200)) : out;
}

}  // namespace pyflame::tools::profile
