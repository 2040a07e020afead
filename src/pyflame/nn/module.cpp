#include "pyflame/nn/module.h"

#include <map>

#include "pyflame/tensor/grad_node.h"

namespace pyflame::nn::detail {

void load_tensors(const NamedTensors& own, const NamedTensors& given, bool strict) {
  std::map<std::string, Tensor> source(given.begin(), given.end());
  std::string problems;
  for (const auto& [name, t] : own) {
    const auto it = source.find(name);
    if (it == source.end()) {
      if (strict) problems += fmt::format("\n  missing: {}", name);
    } else if (!(it->second.shape() == t.shape())) {
      problems +=
          fmt::format("\n  misshapen: {}; got {}; expected {}", name, it->second.shape().str(), t.shape().str());
    }
  }
  if (strict) {
    std::map<std::string, Tensor> names(own.begin(), own.end());
    for (const auto& [name, t] : given) {
      if (!names.contains(name)) problems += fmt::format("\n  unexpected: {}", name);
    }
  }
  PF_CHECK(problems.empty(), Value, "load_state_dict: the names or shapes do not match:{}", problems);
  grad_mode::Guard no_grad(false);
  for (const auto& [name, t] : own) {
    const auto it = source.find(name);
    if (it != source.end()) copy_(t, it->second);
  }
}

}  // namespace pyflame::nn::detail
