#include "apps/gpt/ranks.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "pyflame/ops/ops.h"

namespace pyflame::apps::gpt {

namespace {

constexpr double kTimeout = 1800;  // seconds; the others wait while rank 0 writes a checkpoint

distributed::Call call(const char* what, size_t count) {
  const std::string text = fmt::format("train gpt: {} of {} numbers", what, count);
  return {text, text, kTimeout, [] { return false; }};  // an interrupt ends the run between two steps
}

// A copy of a tensor's bytes behind the others in `bytes`.
void append(std::vector<char>& bytes, const Tensor& t) {
  const Tensor host = to_device(contiguous(t), Device{});
  const auto* from = static_cast<const char*>(host.data());
  bytes.insert(bytes.end(), from, from + host.nbytes());
}

}  // namespace

Ranks::Ranks(const std::string& connected) {
  using Ints = std::vector<int>;
  try {
    const auto j = nlohmann::json::parse(connected);
    Ints names(j.at("control").size());
    std::iota(names.begin(), names.end(), 0);
    local_rank_ = j.at("local_rank");
    group_ = std::make_unique<distributed::Group>(j.at("rank").get<int>(), names, j.at("control").get<Ints>(),
                                                  j.at("data").get<Ints>(), j.at("messages").get<Ints>(),
                                                  j.at("memory").get<Ints>(), Ints());
  } catch (const nlohmann::json::exception&) {
    PF_FAIL(Value, "train gpt: --connected does not fit; got '{}'; expected what pyflame.train passes", connected);
  }
}

void Ranks::average(const Tensors& parameters, std::vector<float>& values) {
  if (!group_) return;
  std::vector<char> bytes;
  for (const Tensor& p : parameters) append(bytes, p.grad() ? p.grad() : zeros(p.shape(), p.dtype(), p.device()));
  const size_t gradients = bytes.size();
  bytes.resize(gradients + values.size() * sizeof(float));
  std::memcpy(bytes.data() + gradients, values.data(), values.size() * sizeof(float));
  const size_t count = bytes.size() / sizeof(float);
  group_->all_reduce(call("the mean gradients", count), bytes.data(), count, DType::float32,
                     distributed::Reduction::avg);
  std::memcpy(values.data(), bytes.data() + gradients, values.size() * sizeof(float));
  const char* at = bytes.data();
  for (const Tensor& p : parameters) {
    p.set_grad(from_host(at, p.shape(), p.dtype(), p.device()));
    at += p.nbytes();
  }
}

double Ranks::sum(double value) {
  if (group_) group_->all_reduce(call("a sum", 1), &value, 1, DType::float64, distributed::Reduction::sum);
  return value;
}

NamedTensors Ranks::of_first(const NamedTensors& tensors) {
  if (!group_) return tensors;
  NamedTensors found;
  for (const auto& [name, t] : tensors) {
    std::vector<char> bytes;
    append(bytes, t);
    group_->broadcast(call("the values", bytes.size()), bytes.data(), bytes.size(), 0);
    found.emplace_back(name, from_host(bytes.data(), t.shape(), t.dtype(), t.device()));
  }
  return found;
}

}  // namespace pyflame::apps::gpt
