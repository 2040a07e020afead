// Optimizer steps over lists of tensors: kernels/optim/optim.h. Contiguous tensors of a dtype share launches of up to
// kMostTensors each. A tensor with other strides has its own launch.
#include <algorithm>
#include <array>
#include <optional>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/optim/optim_args.h"
#include "pyflame/ops/attrs.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kMostChunks = 4096, kSmallestChunk = 1024;
constexpr unsigned kStridedGroups = 64;

using pf::AdamNumbers, pf::SgdNumbers, pf::Strided, pf::TensorList;
using pf::kMaxRank, pf::kMostTensors;

// The tensors of a node, divided into launches. Role r of tensor t is operand r * count + t.
template <int kRoles>
class Lists {
 public:
  struct Launch {
    TensorList<kRoles> list{};
    std::array<std::array<BindingId, kMostTensors>, kRoles> bindings{};
    unsigned chunks = 0;
  };
  struct One {
    Strided<kRoles> tensor{};
    std::array<BindingId, kRoles> bindings{};
  };

  // `dtype`: only the tensors of this dtype.
  Lists(const std::vector<Operand>& operands, size_t count, DType dtype) {
    int64_t total = 0;
    for (size_t t = 0; t < count; ++t)
      if (operands[t].dtype == dtype) total += operands[t].numel();
    const int64_t wanted = (total + kMostChunks - 1) / kMostChunks;
    const int64_t chunk = std::clamp<int64_t>((wanted + kSmallestChunk - 1) / kSmallestChunk * kSmallestChunk,
                                              kSmallestChunk, int64_t{1} << 20);
    for (size_t t = 0; t < count; ++t) {
      const int64_t n = operands[t].numel();
      if (operands[t].dtype != dtype || n == 0) continue;
      bool contiguous = true;
      for (size_t r = 0; r < kRoles; ++r) contiguous &= operands[r * count + t].contiguous;
      if (!contiguous) {
        One& one = ones.emplace_back();
        one.tensor.size = n;
        for (size_t r = 0; r < kRoles; ++r) {
          const Operand& o = operands[r * count + t];
          one.bindings[r] = o.binding;
          const View v = view_of(o.shape, o.strides);
          one.tensor.rank = v.rank;
          std::copy_n(v.shape, kMaxRank, one.tensor.shape);
          std::copy_n(v.strides, kMaxRank, one.tensor.strides[r]);
        }
        continue;
      }
      if (launches.empty() || launches.back().list.count == kMostTensors) {
        launches.emplace_back();
        launches.back().list.chunk = static_cast<int32_t>(chunk);
      }
      Launch& l = launches.back();
      const auto at = static_cast<size_t>(l.list.count++);
      l.list.size[at] = n;
      l.list.first[at] = static_cast<int32_t>(l.chunks);
      l.chunks += static_cast<unsigned>((n + chunk - 1) / chunk);
      for (size_t r = 0; r < kRoles; ++r) l.bindings[r][at] = operands[r * count + t].binding;
    }
  }

  // Calls f(list, chunks) for each launch and g(tensor) for each strided tensor, with the addresses of this run.
  template <class F, class G>
  void each(const RunContext& ctx, const F& f, const G& g) {
    for (Launch& l : launches) {
      for (size_t r = 0; r < kRoles; ++r)
        for (size_t t = 0; t < static_cast<size_t>(l.list.count); ++t)
          l.list.data[r][t] = ctx.bindings[l.bindings[r][t]];
      f(l.list, l.chunks);
    }
    for (One& one : ones) {
      for (size_t r = 0; r < kRoles; ++r) one.tensor.data[r] = ctx.bindings[one.bindings[r]];
      g(one.tensor);
    }
  }

  std::vector<Launch> launches;
  std::vector<One> ones;
};

std::vector<Operand> tensors_of(const Node& n) {
  std::vector<Operand> tensors;
  for (const Operand& o : n.ins)
    if (!o.is_param) tensors.push_back(o);
  return tensors;
}
std::vector<DType> dtypes_of(const std::vector<Operand>& tensors, size_t count) {
  std::vector<DType> found;
  for (size_t t = 0; t < count; ++t)
    if (std::find(found.begin(), found.end(), tensors[t].dtype) == found.end()) found.push_back(tensors[t].dtype);
  return found;
}

// An update in place, with the kernel's Step struct filled from the run's params.
template <int kRoles, class Numbers>
class Update : public Executable {
 public:
  // `step`: the kernel's type, with "{}" for the compute type.
  Update(const Problem& p, size_t count, const std::vector<Operand>& tensors, const char* step) {
    for (const DType d : dtypes_of(tensors, count)) {
      const std::string s = stored_type(d), type = fmt::format(fmt::runtime(step), fmt::format("pf::C<{}>", s));
      const auto source = [&](const char* list, const char* function) {
        return kernel_source({"optim/optim.h"}, kGroupThreads,
                             fmt::format("(pf::{0}<{1}> x, {2} step) {{ pf::{3}<{4}, {5}>(x, step); }}", list, kRoles,
                                         type, function, s, kGroupThreads));
      };
      Part& part = parts_.emplace_back(Part{Lists<kRoles>(tensors, count, d), {}, {}});
      if (!part.lists.launches.empty())
        part.kernel.emplace(p.graph.device.type, kGroupThreads, source("TensorList", "update_list"));
      if (!part.lists.ones.empty())
        part.strided.emplace(p.graph.device.type, kGroupThreads, source("Strided", "update_strided"));
    }
  }
  void run(const RunContext& ctx) override {
    const Numbers numbers = this->numbers(ctx);
    for (Part& part : parts_)
      part.lists.each(
          ctx,
          [&](const auto& list, unsigned chunks) {
            part.kernel->launch(ctx.device, {chunks, 1, 1}, list, numbers);
          },
          [&](const auto& tensor) {
            part.strided->launch(ctx.device, {groups_for(tensor.size, kGroupThreads), 1, 1}, tensor, numbers);
          });
  }

 protected:
  virtual Numbers numbers(const RunContext& ctx) const = 0;

 private:
  struct Part {
    Lists<kRoles> lists;
    std::optional<Kernel> kernel, strided;
  };
  std::vector<Part> parts_;
};

class Params {
 public:
  explicit Params(const Node& n) {
    for (const Operand& o : n.ins)
      if (o.is_param) index_.push_back(o.param);
  }
  double at(const RunContext& ctx, size_t i) const { return ctx.params[index_[i]].as_f64(); }

 private:
  std::vector<ParamId> index_;
};

class Adam final : public Update<4, AdamNumbers> {
 public:
  explicit Adam(const Problem& p)
      : Update(p, static_cast<size_t>(p.root().attr<OptimAttrs>().count), tensors_of(p.root()), "pf::AdamStep<{}>"),
        params_(p.root()),
        attrs_(p.root().attr<OptimAttrs>()) {}
  AdamNumbers numbers(const RunContext& ctx) const override {
    const auto at = [&](size_t i) { return params_.at(ctx, i); };
    return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), attrs_.decoupled != 0, attrs_.maximize != 0};
  }

 private:
  Params params_;
  OptimAttrs attrs_;
};

SgdNumbers sgd_numbers(const Params& params, const OptimAttrs& a, const RunContext& ctx) {
  const auto at = [&](size_t i) { return params.at(ctx, i); };
  return {at(0), at(1), at(2), at(3), at(4) != 0, a.nesterov != 0, a.maximize != 0};
}

template <int kRoles>
class Sgd final : public Update<kRoles, SgdNumbers> {
 public:
  explicit Sgd(const Problem& p)
      : Update<kRoles, SgdNumbers>(p, static_cast<size_t>(p.root().attr<OptimAttrs>().count), tensors_of(p.root()),
                                   kRoles == 3 ? "pf::SgdStep<{}, true>" : "pf::SgdStep<{}, false>"),
        params_(p.root()),
        attrs_(p.root().attr<OptimAttrs>()) {}
  SgdNumbers numbers(const RunContext& ctx) const override { return sgd_numbers(params_, attrs_, ctx); }

 private:
  Params params_;
  OptimAttrs attrs_;
};

std::unique_ptr<Executable> make_sgd(const Problem& p) {
  const auto count = static_cast<size_t>(p.root().attr<OptimAttrs>().count);
  if (tensors_of(p.root()).size() == 3 * count) return std::make_unique<Sgd<3>>(p);
  return std::make_unique<Sgd<2>>(p);
}

class ScaleAll final : public Update<1, void*> {
 public:
  explicit ScaleAll(const Problem& p)
      : Update(p, tensors_of(p.root()).size() - 1, tensors_of(p.root()), "pf::ScaleStep<{}>"),
        factor_(tensors_of(p.root()).back().binding) {}
  void* numbers(const RunContext& ctx) const override { return ctx.bindings[factor_]; }

 private:
  BindingId factor_;
};

class SumSquares final : public Executable {
 public:
  explicit SumSquares(const Problem& p)
      : out_(p.root().outs[0].binding),
        total_(p.graph.device.type, kGroupThreads,
               kernel_source({"optim/optim.h"}, kGroupThreads,
                             fmt::format("(const double* totals, pf::i64 count, float* out) {{ "
                                         "pf::sum_totals<{}>(totals, count, out); }}",
                                         kGroupThreads))) {
    const std::vector<Operand> tensors = tensors_of(p.root());
    for (const DType d : dtypes_of(tensors, tensors.size())) {
      const auto source = [&](const char* list, const char* function) {
        return kernel_source({"optim/optim.h"}, kGroupThreads,
                             fmt::format("(pf::{}<1> x, double* totals) {{ pf::{}<{}, {}>(x, totals); }}", list,
                                         function, stored_type(d), kGroupThreads));
      };
      Part& part = parts_.emplace_back(
          Part{Lists<1>(tensors, tensors.size(), d),
               Kernel(p.graph.device.type, kGroupThreads, source("TensorList", "sum_squares_list")),
               Kernel(p.graph.device.type, kGroupThreads, source("Strided", "sum_squares_strided"))});
      for (const auto& l : part.lists.launches) totals_ += l.chunks;
      totals_ += static_cast<int64_t>(part.lists.ones.size()) * kStridedGroups;
    }
  }
  size_t workspace() const override { return static_cast<size_t>(totals_) * sizeof(double); }
  void run(const RunContext& ctx) override {
    double* at = static_cast<double*>(ctx.workspace);
    for (Part& part : parts_)
      part.lists.each(
          ctx,
          [&](const auto& list, unsigned chunks) {
            part.kernel->launch(ctx.device, {chunks, 1, 1}, list, at);
            at += chunks;
          },
          [&](const auto& tensor) {
            part.strided->launch(ctx.device, {kStridedGroups, 1, 1}, tensor, at);
            at += kStridedGroups;
          });
    total_.launch(ctx.device, {1, 1, 1}, ctx.workspace, totals_, ctx.bindings[out_]);
  }

 private:
  struct Part {
    Lists<1> lists;
    std::optional<Kernel> kernel, strided;
  };
  BindingId out_;
  std::vector<Part> parts_;
  Kernel total_;
  int64_t totals_ = 0;
};

// The outputs must be the inputs: these ops are recorded in place.
Refusal accepts_update(const Problem& p) {
  for (const Operand& o : p.root().outs) {
    bool found = false;
    for (const Operand& i : p.root().ins) found |= !i.is_param && i.binding == o.binding;
    if (!found) return "an output is not one of the inputs";
  }
  return std::nullopt;
}

}  // namespace

std::span<const Impl> adam_step_impls(DeviceType) {
  static const Impl impl{"gpu.adam", accepts_update, make_of<Adam>};
  return {&impl, 1};
}
std::span<const Impl> sgd_step_impls(DeviceType) {
  static const Impl impl{"gpu.sgd", accepts_update, make_sgd};
  return {&impl, 1};
}
std::span<const Impl> scale_all_impls(DeviceType) {
  static const Impl impl{"gpu.scale_all", accepts_update, make_of<ScaleAll>};
  return {&impl, 1};
}
std::span<const Impl> sum_squares_impls(DeviceType) {
  static const Impl impl{"gpu.sum_squares", accepts_all, make_of<SumSquares>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
