// Finds out what a file of settings is for.
#include "tools/doctor/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "pyflame/base/error.h"
#include "pyflame/base/gpu_arch.h"
#include "tools/base/text.h"
#include "tools/doctor/condition.h"
#include "tools/system/text.h"
#include "tools/view/text.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;

bool digit(char c) { return c >= '0' && c <= '9'; }
bool letter_or_digit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// The word of letters and digits at `at`.
std::string_view word_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && letter_or_digit(text[end])) ++end;
  return text.substr(at, end - at);
}

// Calls `use` with each word that begins with `start` in lower-case `text`.
template <class Use>
void each_word(std::string_view text, std::string_view start, Use&& use) {
  for (size_t at = text.find(start); at != std::string_view::npos; at = text.find(start, at + start.size()))
    if (at == 0 || !letter_or_digit(text[at - 1])) use(word_at(text, at));
}

// Architectures that are named: gfx942, MI300X.
void architectures(std::string_view text, std::set<std::string>& out) {
  each_word(text, "gfx", [&](std::string_view word) {
    if (word.size() >= 6 && word.size() <= 7 && digit(word[3])) out.insert(std::string(word));
  });
  each_word(text, "mi", [&](std::string_view word) {
    if (word.size() < 5 || word.size() > 6 || !digit(word[2]) || !digit(word[3]) || !digit(word[4])) return;
    for (const GpuProduct& product : gpu_products()) {
      const std::string name = lower(product.name);
      if (const size_t p = name.find(word); p != std::string::npos && name[p - 1] == ' ') {
        out.insert(std::string(product.gfx));
        return;
      }
    }
  });
}

// The version at `at`, "6.3" of "6.3.1-x"; empty if there is none.
std::string version_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && digit(text[end])) ++end;
  if (end == at || end - at > 2 || end + 1 >= text.size() || text[end] != '.' || !digit(text[end + 1])) return "";
  size_t last = end + 1;
  while (last < text.size() && digit(text[last])) ++last;
  return std::string(text.substr(at, last - at));
}

// Releases of ROCm that are named: rocm6.3, rocm-6.3.0, whl/rocm6.2, ROCM_VERSION=6.3, rocm/dev-ubuntu-22.04:6.3-complete.
std::set<std::string> releases(std::string_view text) {
  std::set<std::string> out;
  constexpr std::string_view kName = "rocm";
  for (size_t at = text.find(kName); at != std::string_view::npos; at = text.find(kName, at + kName.size())) {
    size_t after = at + kName.size();
    std::string_view rest = text.substr(after);
    if (rest.starts_with("_version=") || rest.starts_with("_version ")) {
      after += 9;
    } else if (rest.starts_with("/")) {
      const size_t end = std::min(rest.find_first_of(" \t\n\"'"), rest.size()), colon = rest.substr(0, end).find(':');
      if (colon == std::string_view::npos) continue;
      after += colon + 1;
    } else if (rest.starts_with("-") || rest.starts_with("==")) {
      after += rest.starts_with("==") ? 2 : 1;
    }
    if (after < text.size() && (text[after] == '"' || text[after] == 'v')) ++after;
    if (std::string version = version_at(text, after); !version.empty()) out.insert(std::move(version));
  }
  return out;
}

template <size_t n>
bool names_any(std::string_view text, const std::array<std::string_view, n>& words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return text.find(w) != text.npos; });
}

std::string workload_of(std::string_view text, std::string_view path) {
  static constexpr std::array<std::string_view, 6> kServing = {"vllm serve",           "vllm.entrypoints",
                                                               "sglang.launch_server", "text-generation-launcher",
                                                               "llama-server",         "ollama serve"};
  static constexpr std::array<std::string_view, 4> kTraining = {"torchrun", "accelerate launch",
                                                                "torch.distributed.run", "deepspeed"};
  static constexpr std::array<std::string_view, 2> kMeasuring = {"benchmark", "mlperf"};
  if (names_any(path, kMeasuring)) return "benchmark";
  const bool serving = names_any(text, kServing), training = names_any(text, kTraining);
  return serving == training ? "" : serving ? "inference" : "training";
}

// GPUs of data centres come in boards of eight.
constexpr int64_t kBoard = 8;

}  // namespace

Target target_of(std::string_view text, std::string_view path) {
  const std::string low = lower(text), name = lower(path.substr(path.rfind('/') + 1)), place = lower(path);
  Target out;
  std::set<std::string> archs;
  architectures(name, archs);
  if (archs.empty()) architectures(low, archs);
  if (archs.size() == 1 && find_gpu_arch(*archs.begin())) out.gfx = *archs.begin();
  const std::set<std::string> versions = releases(low);
  const auto two = [](const std::string& v) { return v.substr(0, v.find('.', v.find('.') + 1)); };
  if (!versions.empty() && std::all_of(versions.begin(), versions.end(),
                                       [&](const std::string& v) { return two(v) == two(*versions.begin()); }))
    out.rocm = *versions.rbegin();
  out.workload = workload_of(low, place);
  return out;
}

bool uses_pytorch(std::string_view text) {
  static constexpr std::array<std::string_view, 5> kWords = {"torch", "vllm", "sglang", "deepspeed", "megatron"};
  return names_any(lower(text), kWords);
}

bool uses_unified_memory(std::string_view text, std::string_view path) {
  static constexpr std::array<std::string_view, 9> kWords = {
      "managed", "unified", "mi300a", "xnack+", "page migration", "openmp", "stdpar", "el capitan", "apu"};
  return names_any(lower(text), kWords) || names_any(lower(path.substr(path.rfind('/') + 1)), kWords);
}

bool uses_one_gpu(std::string_view text, std::string_view path) {
  const std::string low = lower(text), place = lower(path.substr(path.rfind('/') + 1));
  if (place.find("1gpu") != place.npos || place.find("single_gpu") != place.npos) return true;
  for (std::string_view key :
       {"gpus_per_node=1", "nproc_per_node=1", "nproc-per-node=1", "nproc_per_node 1", "nproc-per-node 1"})
    if (const size_t at = low.find(key);
        at != low.npos && (at + key.size() == low.size() || !digit(low[at + key.size()])))
      return true;
  return false;
}

Json wheels_of(std::string_view text) {
  // The first release of PyTorch in the index of each ROCm.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kFirst = {{{"5.6", "2.1.0"},
                                                                                           {"5.7", "2.2.0"},
                                                                                           {"6.0", "2.3.0"},
                                                                                           {"6.1", "2.4.0"},
                                                                                           {"6.2", "2.5.0"},
                                                                                           {"6.3", "2.7.0"},
                                                                                           {"6.4", "2.8.0"},
                                                                                           {"7.1", "2.10.0"}}};
  constexpr std::string_view kIndex = "download.pytorch.org/whl/rocm";
  Json out = Json::array();
  const std::string low = lower(text);
  std::set<std::string> indices;
  for (size_t at = low.find(kIndex); at != low.npos; at = low.find(kIndex, at + kIndex.size()))
    indices.insert(version_at(low, at + kIndex.size()));
  if (indices.size() != 1) return out;  // which index a package is for is not known
  const auto first =
      std::find_if(kFirst.begin(), kFirst.end(), [&](const auto& row) { return row.first == *indices.begin(); });
  if (first == kFirst.end()) return out;
  constexpr std::string_view kPinned = "torch==";
  for (size_t at = low.find(kPinned); at != low.npos && out.size() < 20; at = low.find(kPinned, at + kPinned.size())) {
    if (at > 0 && (letter_or_digit(low[at - 1]) || low[at - 1] == '-' || low[at - 1] == '_')) continue;
    const size_t begin = at + kPinned.size(), end = std::min(low.find_first_not_of("0123456789.", begin), low.size());
    const std::string torch = low.substr(begin, end - begin);
    if (version_at(low, begin).empty() || low.substr(begin).starts_with("*")) continue;
    const int64_t line = 1 + std::count(low.begin(), low.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const bool older = compare_versions(torch, first->second) < 0;
    out.push_back({{"name", "torch"},
                   {"torch", torch},
                   {"rocm", first->first},
                   {"line", line},
                   {"first", older ? Json(first->second) : Json()}});
  }
  return out;
}

void aim_at(Json& facts, const Target& target) {
  if (!target.rocm.empty()) {
    PF_CHECK(system::parse_version(target.rocm), Value,
             "doctor: this is not a release of ROCm; got '{}'; expected for example 6.3", view::clean(target.rocm, 60));
    facts["rocm"] = {{"version", target.rocm}};
    facts["frameworks"] = Json::array();
  }
  if (target.gfx.empty()) return;
  const GpuArch* arch = find_gpu_arch(target.gfx);
  PF_CHECK(arch && arch->amd, Value, "doctor: unknown architecture; got '{}'; expected for example gfx942 or gfx1100",
           view::clean(target.gfx, 60));
  facts["gpus"] = facts["links"] = Json::array();
  facts["absence"] = nullptr;
  const int64_t count = arch->family.rfind("CDNA", 0) == 0 ? kBoard : 1;
  for (int64_t i = 0; i < count; ++i)
    facts["gpus"].push_back({{"index", i},
                             {"node", i},
                             {"gfx", std::string(arch->gfx)},
                             {"name", std::string(arch->gfx)},
                             {"uuid", nullptr},
                             {"integrated", false},
                             {"assumed", true},
                             {"override", nullptr}});
  facts["host"] = Json::object();  // it says nothing about the machine that has this GPU
}

}  // namespace pyflame::tools::doctor
