// Evaluates the visibility variables by the rules of ROCr's device filter and of HIP's device list.
#include "tools/system/visibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "tools/system/text.h"

namespace pyflame::tools::system {

namespace {

std::string upper(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

std::string ended(std::string_view entry, std::string_view why, bool last) {
  return fmt::format("entry '{}' {}: {}", entry, why, last ? "it is ignored" : "it and all after it are ignored");
}

// ROCr takes indices in any base of C, or the beginning of one GPU's UUID in upper or lower case. A repeated device ends the list too.
std::optional<int> rocr_index(std::string_view entry, const std::vector<std::string>& uuids, std::string& why) {
  const std::string token = upper(trim(entry));
  if (token.empty()) {
    why = "is empty";
    return std::nullopt;
  }
  if (token[0] == 'G') {
    int found = -1;
    for (size_t i = 0; i < uuids.size(); ++i) {
      if (token.size() < 5 || upper(uuids[i]).rfind(token, 0) != 0) continue;
      if (found >= 0) {
        why = "is the beginning of more than one UUID";
        return std::nullopt;
      }
      found = static_cast<int>(i);
    }
    if (found < 0) why = "is the UUID of no GPU";
    return found < 0 ? std::nullopt : std::optional(found);
  }
  char* end = nullptr;
  const long index = std::strtol(token.c_str(), &end, 0);
  if (*end != '\0') why = "is neither an index nor a UUID";
  else if (index < 0 || static_cast<size_t>(index) >= uuids.size())
    why = fmt::format("is not among the {} GPUs", uuids.size());
  else return static_cast<int>(index);
  return std::nullopt;
}

// HIP takes decimal indices, or a part of a UUID in the same case.
std::optional<int> hip_index(std::string_view entry, const std::vector<std::string>& uuids, std::string& why) {
  if (contains(entry, "GPU-")) {
    for (size_t i = 0; i < uuids.size(); ++i)
      if (contains(uuids[i], entry)) return static_cast<int>(i);
    why = "is the UUID of no GPU that is left";
    return std::nullopt;
  }
  const auto index = to_number(entry);
  if (!index || std::to_string(*index) != entry) why = "is neither an index nor a UUID";
  else if (*index < 0) why = "is negative";
  else if (static_cast<size_t>(*index) >= uuids.size())
    why = fmt::format("is not among the {} GPU{} that {} left", uuids.size(), uuids.size() == 1 ? "" : "s",
                      uuids.size() == 1 ? "is" : "are");
  else return static_cast<int>(*index);
  return std::nullopt;
}

VisibleStep filter(const std::string& variable, const std::string& value, const std::vector<int>& before,
                   const std::vector<std::string>& all, bool rocr) {
  VisibleStep step{variable, value, before, {}, ""};
  std::vector<std::string> uuids;
  for (int gpu : before) uuids.push_back(all[static_cast<size_t>(gpu)]);
  std::vector<std::string_view> entries = split(value, ',');
  if (entries.size() > 1 && entries.back().empty()) entries.pop_back();  // both accept a comma at the end
  if (rocr && value.empty()) {
    step.note = "set but empty: no GPU at all";
    return step;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool last = i + 1 == entries.size();
    if (rocr && i >= uuids.size()) {
      step.note = ended(entries[i], "is one more than there are GPUs", last);
      break;
    }
    std::string why;
    const std::optional<int> index = rocr ? rocr_index(entries[i], uuids, why) : hip_index(entries[i], uuids, why);
    const int gpu = index ? before[static_cast<size_t>(*index)] : -1;
    const bool seen = index && std::find(step.after.begin(), step.after.end(), gpu) != step.after.end();
    if (!index || (seen && rocr)) {
      step.note = ended(entries[i], seen ? "names a GPU for the second time" : why, last);
      break;
    }
    if (seen) step.note = fmt::format("entry '{}' names a GPU for the second time: it counts once", entries[i]);
    else step.after.push_back(gpu);
  }
  return step;
}

}  // namespace

Visibility visible_gpus(const std::vector<std::string>& uuids, const Environment& environment) {
  Visibility v;
  for (size_t i = 0; i < uuids.size(); ++i) v.gpus.push_back(static_cast<int>(i));
  const auto value = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::nullopt : std::optional(it->second);
  };
  const auto ignored = [&](const char* name, const std::string& text, const char* why) {
    v.steps.push_back({name, text, v.gpus, v.gpus, why});
  };
  if (const auto rocr = value("ROCR_VISIBLE_DEVICES")) {
    v.steps.push_back(filter("ROCR_VISIBLE_DEVICES", *rocr, v.gpus, uuids, true));
    v.gpus = v.steps.back().after;
  }
  if (const auto ordinal = value("GPU_DEVICE_ORDINAL"))
    ignored("GPU_DEVICE_ORDINAL", *ordinal, "OpenCL programs read it; HIP programs do not");
  const auto hip = value("HIP_VISIBLE_DEVICES"), cuda = value("CUDA_VISIBLE_DEVICES");
  const bool hip_counts = hip && !hip->empty(), cuda_counts = cuda && !cuda->empty();
  if (hip && !hip_counts) ignored("HIP_VISIBLE_DEVICES", *hip, "set but empty: HIP treats it as not set");
  if (cuda && !cuda_counts) ignored("CUDA_VISIBLE_DEVICES", *cuda, "set but empty: HIP treats it as not set");
  if (cuda_counts && hip_counts) ignored("CUDA_VISIBLE_DEVICES", *cuda, "ignored: HIP_VISIBLE_DEVICES is set");
  if (hip_counts || cuda_counts) {
    const char* name = hip_counts ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    v.steps.push_back(filter(name, hip_counts ? *hip : *cuda, v.gpus, uuids, false));
    v.gpus = v.steps.back().after;
  }
  return v;
}

}  // namespace pyflame::tools::system
