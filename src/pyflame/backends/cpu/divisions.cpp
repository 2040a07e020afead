#include "pyflame/backends/cpu/divisions.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/estimate.h"
#include "pyflame/base/threads.h"

namespace pyflame::cpu {

namespace {

// "threads=2", "grain=0.25", or both, as "threads=2,grain=0.25".
std::string name_of(const Division& d) {
  std::string name = d.threads > 0 ? fmt::format("threads={}", d.threads) : "";
  if (d.chunk != 1) name += fmt::format("{}grain={}", name.empty() ? "" : ",", d.chunk);
  return name;
}
constexpr double kShortest = 1.0 / 16, kLongest = 16;
// Whether it differs from how loops are divided anyway.
bool is_other(const Division& d) {
  return (d.threads > 0 || d.chunk != 1) && d.threads < num_threads() && d.chunk >= kShortest && d.chunk <= kLongest;
}
std::optional<Division> named(const std::string& name) {
  Division d;
  const size_t grain = name.find("grain=");
  std::sscanf(name.c_str(), "threads=%d", &d.threads);
  if (grain != std::string::npos) std::sscanf(name.c_str() + grain, "grain=%lf", &d.chunk);
  return is_other(d) && name_of(d) == name ? std::optional(d) : std::nullopt;
}

std::vector<std::string> names_of(const std::vector<Division>& divisions, const std::string& without) {
  std::vector<std::string> names;
  for (const Division& d : divisions)
    if (std::string name = name_of(d);
        is_other(d) && name != without && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  return names;
}
// What a problem touches and computes.
struct Amount {
  double elements = 0, bytes = 0, us = 0;  // of one thread
  explicit Amount(const Problem& p) {
    constexpr double kRate = 8e3;  // elements of a vector instruction in a microsecond, with their loads
    for (const NodeId m : p.group.nodes) {
      const Node& n = p.graph.nodes[m];
      double most = 0;
      for (const auto* operands : {&n.ins, &n.outs})
        for (const Operand& o : *operands) {
          if (o.is_param) continue;
          most = std::max(most, static_cast<double>(o.shape.numel()));
          if (p.group.stores(o)) bytes += static_cast<double>(o.nbytes());
        }
      elements = std::max(elements, most);
      us += most * n.info().cpu_cost / kRate;
    }
  }
};
// By arithmetic, with the chunks of parallel_for: at least a grain, and some for each thread.
double division_us(const Amount& a, const Division& d) {
  constexpr double kChunksPerThread = 4;
  const double threads = d.threads > 0 ? d.threads : num_threads();
  const double most = std::max(threads, kChunksPerThread * threads / d.chunk);
  Tasks t;
  t.number = threads == 1 ? 1 : std::clamp(std::floor(a.elements / (kGrainElements * d.chunk)), 1.0, most);
  t.computes_us = a.us / t.number, t.bytes = a.bytes / t.number, t.all_bytes = a.bytes;
  return tasks_us(t, threads);
}
// Those with the shortest estimates first. One thread computes with any grain.
std::vector<std::string> usual(const Problem& p) {
  const int all = num_threads();
  std::vector<Division> divisions{{.threads = 1}};
  if (all > 1)
    for (const double chunk : {0.25, 2.0, 4.0}) divisions.push_back({.chunk = chunk});
  for (const int threads : {all / 2, all / 4})
    if (threads > 1) divisions.push_back({.threads = threads});
  const Amount amount(p);
  std::stable_sort(divisions.begin(), divisions.end(), [&](const Division& x, const Division& y) {
    return division_us(amount, x) < division_us(amount, y);
  });
  return names_of(divisions, "");
}
std::vector<std::string> near(const std::string& name) {
  const std::optional<Division> d = named(name);
  if (!d || d->threads == 1) return {};
  std::vector<Division> divisions{{d->threads, d->chunk / 2}, {d->threads, d->chunk * 2}};
  const int all = num_threads();
  for (const int threads : {d->threads + 1, d->threads - 1, d->threads * 3 / 2, all / 2})
    if (threads > 1) divisions.push_back({threads, d->chunk});
  return names_of(divisions, name);
}

// Smaller problems are not worth the time of a measurement: one thread computes most of them.
bool is_divided(const Problem& p) {
  int64_t elements = 0;
  for (const NodeId m : p.group.nodes)
    for (const auto* operands : {&p.graph.nodes[m].ins, &p.graph.nodes[m].outs})
      for (const Operand& o : *operands) elements = std::max(elements, o.shape.numel());
  return elements >= 2 * kGrainElements;
}

class Divided final : public Executable {
 public:
  Divided(std::unique_ptr<Executable> inner, const Division& division)
      : inner_(std::move(inner)), division_(division) {}
  void run(const RunContext& ctx) override {
    const DividedBy division(division_);
    inner_->run(ctx);
  }
  size_t workspace() const override { return inner_->workspace(); }
  void end_stand_in() override { inner_->end_stand_in(); }
  bool capturable() const override { return inner_->capturable(); }
  bool repeats() const override { return inner_->repeats(); }

 private:
  std::unique_ptr<Executable> inner_;
  Division division_;
};

class Divisions final : public Configurations {
 public:
  explicit Divisions(const Impl& impl) : name_(impl.name), make_(impl.make), own_(impl.configurations) {}
  std::vector<std::string> list(const Problem& p) const override {
    std::vector<std::string> names = own_ ? own_->list(p) : std::vector<std::string>();
    if (is_divided(p))
      for (std::string& each : usual(p)) names.push_back(std::move(each));
    return names;
  }
  std::unique_ptr<Executable> make(const Problem& p, const std::string& configuration) const override {
    if (const auto division = named(configuration)) return std::make_unique<Divided>(make_(p), *division);
    if (own_) return own_->make(p, configuration);
    const std::vector<std::string> names = usual(p);
    PF_FAIL(Value, "{}: no such configuration; got '{}'; expected {}", name_, configuration,
            names.empty() ? "none, as there is one thread" : one_of(names));
  }
  bool has(const Problem& p, const std::string& configuration) const override {
    return (is_divided(p) && named(configuration)) || (own_ && own_->has(p, configuration));
  }
  std::vector<std::string> neighbours(const Problem& p, const std::string& configuration) const override {
    std::vector<std::string> names = near(configuration);
    if (own_ && names.empty() && !named(configuration)) names = own_->neighbours(p, configuration);
    return names;
  }
  bool for_any_size() const override { return !own_ || own_->for_any_size(); }

 private:
  const char* name_;
  decltype(Impl::make) make_;
  const Configurations* own_;
};

}  // namespace

Impl with_divisions(const Impl& impl) {
  Impl divided = impl;
  divided.configurations = new Divisions(impl);  // as long as the process, like the backend's lists
  return divided;
}

}  // namespace pyflame::cpu
