#include "pyflame/io/checkpoint.h"

namespace pyflame {

namespace {
constexpr const char* kFormatKey = "format";
constexpr const char* kFormat = "pyflame.checkpoint.1";
constexpr std::string_view kModel = "model.";
constexpr std::string_view kOptimizer = "optimizer.";
}  // namespace

const std::string& Checkpoint::at(const std::string& name) const {
  const auto it = state.find(name);
  PF_CHECK(it != state.end(), Value,
           "load_checkpoint: the checkpoint has no '{}'; it was not written by this kind of run", name);
  return it->second;
}

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  NamedTensors all;
  all.reserve(checkpoint.model.size() + checkpoint.optimizer.size());
  for (const auto& [name, t] : checkpoint.model) all.emplace_back(std::string(kModel) + name, t);
  for (const auto& [name, t] : checkpoint.optimizer) all.emplace_back(std::string(kOptimizer) + name, t);
  Metadata metadata = checkpoint.state;
  PF_CHECK(metadata.emplace(kFormatKey, kFormat).second, Value,
           "save_checkpoint: a name in the state is reserved; got '{}'; expected another one", kFormatKey);
  save_safetensors(path, all, metadata);
}

Checkpoint load_checkpoint(const std::string& path, DeviceOpt device) {
  SafetensorsFile file = load_safetensors(path, device);
  const auto format = file.metadata.find(kFormatKey);
  PF_CHECK(format != file.metadata.end() && format->second == kFormat, Value,
           "load_checkpoint: '{}' is not a checkpoint that this version reads; got format '{}'; expected '{}'", path,
           format == file.metadata.end() ? "none" : format->second.substr(0, 80), kFormat);
  file.metadata.erase(format);
  Checkpoint result;
  result.state = std::move(file.metadata);
  for (auto& [name, t] : file.tensors) {
    if (name.starts_with(kModel)) {
      result.model.emplace_back(name.substr(kModel.size()), t);
    } else if (name.starts_with(kOptimizer)) {
      result.optimizer.emplace_back(name.substr(kOptimizer.size()), t);
    } else {
      PF_FAIL(Value, "load_checkpoint: '{}' has a tensor outside of model.* and optimizer.*; got '{}'", path,
              name.substr(0, 80));
    }
  }
  return result;
}

}  // namespace pyflame
