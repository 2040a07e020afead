// Each op as backends see it, without a recorder and without a device: problems that between them choose every kernel of the families in
// impls.h. An op of the table without a problem here fails the tests of gpu_sources_test.cpp.
#pragma once
#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/ops/user_kernel.h"
#include "pyflame/tensor/float8_rows.h"
#include "pyflame/tensor/weight_planes.h"

namespace pyflame {

struct GpuProblem {
  std::string name;  // of the op, and of what is special
  Graph graph;
  Group group;
  Problem problem() const { return {graph, group}; }
};

// Ops that GPU backends compute on the host or refuse: they have no kernel.
inline bool on_host(OpId op) {
  static const std::set<OpId> ops{
#define OP(...)
#define LINALG(name, ...) OpId::name,
#include "pyflame/ops/ops.def"
  };
  return ops.count(op) > 0;
}

// Ops that only the vendors' libraries compute: they are recorded where one is there and takes them.
inline bool by_libraries(OpId op) { return op == OpId::recurrent || op == OpId::recurrent_grad; }

class GpuProblems {
 public:
  GpuProblems(DeviceType type, DType dtype) : type_(type), dtype_(dtype) {}

  std::vector<GpuProblem> of(OpId op) {
    all_.clear();
    switch (op_info(op).cls) {
      case OpClass::Other: others(op); break;
      case OpClass::Reduce: reduction(op); break;
      default: elementwise(op);
    }
    return std::move(all_);
  }

  // All elementwise ops of a class, one after the other, as one group: those for this dtype, without large functions.
  GpuProblem chain(OpClass cls, OpId begin = OpId{0}, OpId end = OpId{kNumOps}) {
    return chain(cls, begin, end, false);
  }
  // One op, of any kind.
  GpuProblem alone(OpId op) { return chain(op_info(op).cls, op, static_cast<OpId>(static_cast<int>(op) + 1), true); }
  GpuProblem chain(OpClass cls, OpId begin, OpId end, bool one) {
    const Dims shape{64, 1000};
    GpuProblem all;
    all.graph.device = {type_, 0};
    all.group.kind = GroupKind::Loop;
    all.group.space = shape, all.group.split = 2;
    const Operand first = x(shape), mask = tensor(DType::bool_, shape);
    Operand last = first;
    const auto put = [&](Node n) {
      all.group.nodes.push_back(all.graph.nodes.push_back(std::move(n)));
      all.group.roles.push_back(Role::Map);
    };
    for (auto i = static_cast<int>(begin); i < static_cast<int>(end); ++i) {
      const auto op = static_cast<OpId>(i);
      const OpInfo& info = op_info(op);
      const bool apart = info.integers_only == is_float(dtype_) || info.bits_kept || info.gpu_cost >= kLarge;
      if (info.cls != cls || (apart && !one)) continue;
      Node n = elementwise_node(op, shape);
      bool chained = false;
      for (Operand& o : n.ins) {
        if (o.is_param) o.param = ParamId(all.graph.params++);
        else if (o.dtype == DType::bool_) o = mask;
        else if (!std::exchange(chained, true)) o = last;
        else o = first;
      }
      const Operand out = n.outs[0];
      put(std::move(n));
      // An answer or a number from nowhere joins what was before.
      const auto join = [&](OpId with, std::vector<Operand> from) {
        Node joined;
        joined.op = with, joined.ins = std::move(from), joined.outs = {x(shape)};
        put(joined);
        return joined.outs[0];
      };
      if (out.dtype == dtype_ && chained) last = out;
      else if (out.dtype == DType::bool_) last = join(OpId::where, {out, first, last});
      else if (out.dtype == dtype_) last = join(OpId::add, {out, last});
      else last = join(OpId::add, {join(OpId::cast, {out}), last});
    }
    finish(all);
    std::fill(all.group.elided.begin() + 2, all.group.elided.end(), true);
    all.group.elided[last.binding] = false;
    return all;
  }

 private:
  Operand tensor(DType d, const Dims& shape, const Dims& strides) {
    Operand o;
    o.dtype = d, o.shape = shape, o.strides = strides;
    o.contiguous = is_contiguous(shape, strides);
    o.binding = BindingId(next_++);
    return o;
  }
  Operand tensor(DType d, const Dims& shape) { return tensor(d, shape, contiguous_strides(shape)); }
  Operand x(const Dims& shape) { return tensor(dtype_, shape); }
  Operand ints(const Dims& shape) { return tensor(DType::int64, shape); }
  Operand sums(const Dims& shape) { return tensor(dtype_ == DType::float64 ? dtype_ : DType::float32, shape); }
  // Every second row of a larger tensor.
  Operand spread(const Dims& shape) {
    Dims strides = contiguous_strides(shape);
    strides[0] *= 2;
    return tensor(dtype_, shape, strides);
  }
  static Operand number(DType d = DType::float64) {
    Operand o;
    o.is_param = true, o.dtype = d;
    return o;
  }

  template <class A = NoAttrs>
  GpuProblem& add(OpId op, const std::string& what, std::vector<Operand> ins, std::vector<Operand> outs,
                  const A& attrs = {}) {
    GpuProblem& p = all_.emplace_back();
    p.name = std::string(op_name(op)) + (what.empty() ? "" : "_" + what);
    p.graph.device = {type_, 0};
    Node n;
    n.op = op;
    if constexpr (!std::is_empty_v<A>) {
      const auto* words = reinterpret_cast<const int64_t*>(&attrs);
      n.attrs.assign(words, words + sizeof(A) / sizeof(int64_t));
    }
    for (Operand& o : ins)
      if (o.is_param) o.param = ParamId(p.graph.params++);
    n.ins = std::move(ins), n.outs = std::move(outs);
    p.graph.nodes.push_back(std::move(n));
    p.group.nodes = {NodeId(0)};
    finish(p);
    return p;
  }
  void finish(GpuProblem& p) {
    for (int i = 0; i < next_; ++i) p.graph.bindings.push_back({p.graph.slots.push_back({0, true, true, false})});
    p.group.elided.assign(static_cast<size_t>(std::exchange(next_, 0)), false);
  }
  static void as_loop(GpuProblem& p, const Dims& space, int split, Role role) {
    p.group.kind = GroupKind::Loop;
    p.group.space = space, p.group.split = split, p.group.roles = {role};
  }

  Node elementwise_node(OpId op, const Dims& shape) {
    const bool logical =
        op == OpId::logical_and || op == OpId::logical_or || op == OpId::logical_xor || op == OpId::logical_not;
    const bool asks = logical || op == OpId::eq || op == OpId::ne || op == OpId::lt || op == OpId::le ||
                      op == OpId::gt || op == OpId::ge || op == OpId::isnan || op == OpId::isinf;
    std::vector<Operand> ins;
    const DType values = op_info(op).integers_only && is_float(dtype_) ? DType::int64 : dtype_;
    for (int i = 0; i < op_info(op).arity; ++i)
      ins.push_back(tensor(logical || (op == OpId::where && i == 0) ? DType::bool_ : values, shape));
    switch (op) {
      case OpId::full: ins = {number(dtype_)}; break;
      case OpId::arange:
      case OpId::softplus: ins.insert(ins.end(), {number(dtype_), number(dtype_)}); break;
      case OpId::leaky_relu: ins.push_back(number(dtype_)); break;
      case OpId::rand_uniform:
      case OpId::rand_normal: ins = {number(DType::int64), number(DType::int64)}; break;
      case OpId::rand_int:
        ins = {number(DType::int64), number(DType::int64), number(DType::int64), number(DType::int64)};
        break;
      default: break;
    }
    const DType result = op == OpId::rand_int ? DType::int64 : asks ? DType::bool_ : values;
    Node n;
    n.op = op, n.ins = std::move(ins), n.outs = {tensor(result, shape)};
    return n;
  }
  void elementwise(OpId op) {
    const Dims shape{64, 1000};
    Node n = elementwise_node(op, shape);
    as_loop(add(op, "", std::move(n.ins), std::move(n.outs)), shape, 2, Role::Map);
  }

  void reduction(OpId op) {
    const DType d = op == OpId::any || op == OpId::all ? DType::bool_ : dtype_;
    as_loop(add(op, "rows", {tensor(d, {64, 1000})}, {tensor(d, {64, 1})}, ReduceAttrs{2}), {64, 1000}, 1,
            Role::RowReduce);
    as_loop(add(op, "columns", {tensor(d, {64, 1000})}, {tensor(d, {1, 1000})}, ReduceAttrs{1}), {64, 1000}, 1,
            Role::ColReduce);
    add(op, "nothing", {tensor(d, {64, 0})}, {tensor(d, {64, 1})}, ReduceAttrs{2});
  }

  void binned(OpId op) {
    const DType values = dtype_ == DType::float64 ? DType::float64 : DType::float32;
    for (const auto& [what, weights, bins, divide] : {std::tuple{"shared", DType::int64, 3000, 0},
                                                      {"global", DType::int32, 100000, 1},
                                                      {"in_order", DType::float64, 3000, 0},
                                                      {"in_order_float32", DType::float32, 3000, 1}}) {
      const DType sums = is_float(weights) ? DType::float64 : DType::int64;
      add(op, what, {tensor(values, {100000}), tensor(weights, {100000}), number(), number(DType::int64)},
          {tensor(sums, {bins}), ints({4})}, BinAttrs{divide});
    }
  }

  void combining(OpId op) {
    for (const auto& [what, how] : {std::pair{"replace", Combine::Replace},
                                    {"sum", Combine::Sum},
                                    {"product", Combine::Product},
                                    {"largest", Combine::Largest},
                                    {"smallest", Combine::Smallest}}) {
      const Operand to = x({64, 30});
      if (op == OpId::scatter)
        add(op, what, {to, ints({1000, 30}), x({1000, 30})}, {to}, ScatterAttrs{0, static_cast<int64_t>(how)});
      else add(op, what, {to, ints({1000}), x({1000, 30})}, {to}, ScatterAttrs{0, static_cast<int64_t>(how)});
    }
  }
  // Short lines that are rows, lines side by side for eight and for four of a workgroup, and lines that are too long for one.
  void replacing() {
    const ScatterAttrs along_rows{1, static_cast<int64_t>(Combine::Replace)};
    const Operand rows = x({300, 64});
    add(OpId::scatter, "replace_rows", {rows, ints({300, 50}), x({300, 50})}, {rows}, along_rows);
    for (const auto& [what, n] : {std::pair{"replace_four", 2000}, {"replace_long", 20000}}) {
      const Operand to = x({n, 30});
      add(OpId::scatter, what, {to, ints({1000, 30}), x({1000, 30})}, {to}, ScatterAttrs{0, along_rows.combine});
    }
  }
  void grids(OpId op) {
    for (const auto& [what, mode, volume] : {std::tuple{"linear", GridMode::Linear, false},
                                             {"nearest", GridMode::Nearest, false},
                                             {"cubic", GridMode::Cubic, false},
                                             {"linear_volume", GridMode::Linear, true},
                                             {"nearest_volume", GridMode::Nearest, true}}) {
      const Operand image = x(volume ? Dims{2, 16, 8, 32, 32} : Dims{2, 16, 64, 64});
      const Operand grid = x(volume ? Dims{2, 8, 30, 30, 3} : Dims{2, 60, 60, 2});
      const Operand y = x(volume ? Dims{2, 16, 8, 30, 30} : Dims{2, 16, 60, 60});
      const GridAttrs a{static_cast<int64_t>(mode), 0, 0};
      if (op == OpId::grid_sample) add(op, what, {image, grid}, {y}, a);
      else if (op == OpId::grid_sample_grad_input) add(op, what, {y, grid}, {image}, a);
      else if (mode != GridMode::Nearest) add(op, what, {y, image, grid}, {x(grid.shape)}, a);
    }
  }
  void others(OpId op) {
    if (on_host(op)) return add(op, "", {x({2, 4, 4})}, {x({2, 4, 4})}), void();
    switch (op) {
      case OpId::argmax:
      case OpId::argmin:
        add(op, "rows", {x({64, 1000})}, {ints({64})}, ArgAttrs{1});
        add(op, "long", {x({2, 1 << 20})}, {ints({2})}, ArgAttrs{1});
        return add(op, "columns", {x({4096, 100})}, {ints({100})}, ArgAttrs{0}), void();
      case OpId::matmul: return add(op, "", {x({64, 96}), x({96, 80})}, {x({64, 80})}), void();
      case OpId::conv2d:
      case OpId::conv2d_grad_input:
      case OpId::conv2d_grad_weight: return convolution(op);
      case OpId::max_pool2d:
      case OpId::max_pool2d_grad:
      case OpId::avg_pool2d:
      case OpId::avg_pool2d_grad: return pooling(op);
      case OpId::softmax:
      case OpId::log_softmax:
        for (const auto& [what, shape] :
             {std::pair{"wave", Dims{64, 1000}}, {"group", {64, 4096}}, {"long", {4, 1 << 20}}, {"odd", {64, 5001}}})
          add(op, what, {x(shape)}, {x(shape)});
        return;
      case OpId::logcumsumexp:
        add(op, "lines", {x({64, 128, 64})}, {x({64, 128, 64})}, ScanAttrs{1, 0});
        add(op, "group", {x({64, 1000})}, {x({64, 1000})}, ScanAttrs{1, 1});
        return add(op, "long", {x({1 << 20})}, {x({1 << 20})}, ScanAttrs{0, 0}), void();
      case OpId::cummax:
      case OpId::cummin:
        add(op, "lines", {x({64, 128, 64})}, {x({64, 128, 64}), ints({64, 128, 64})}, ScanAttrs{1, 0});
        add(op, "group", {x({64, 1000})}, {x({64, 1000}), ints({64, 1000})}, ScanAttrs{1, 0});
        add(op, "integers", {ints({64, 1000})}, {ints({64, 1000}), ints({64, 1000})}, ScanAttrs{1, 0});
        return add(op, "long", {x({1 << 20})}, {x({1 << 20}), ints({1 << 20})}, ScanAttrs{0, 0}), void();
      case OpId::cumprod:
        add(op, "lines", {x({64, 128, 64})}, {x({64, 128, 64})}, ScanAttrs{1, 0});
        add(op, "group", {x({64, 1000})}, {x({64, 1000})}, ScanAttrs{1, 0});
        return add(op, "long", {x({1 << 20})}, {x({1 << 20})}, ScanAttrs{0, 0}), void();
      case OpId::cumsum:
        for (const int64_t reverse : {0, 1})
          for (const auto& [what, shape, dim] : {std::tuple{"lines", Dims{64, 128, 64}, 1},
                                                 {"short", {999, 30}, 1},
                                                 {"wave", {999, 100}, 1},
                                                 {"group", {64, 1000}, 1},
                                                 {"long", {1 << 20}, 0}}) {
            const std::string name = reverse ? std::string(what) + "_back" : what;
            add(op, name, {x(shape)}, {x(shape)}, ScanAttrs{dim, reverse});
            add(op, name + "_integers", {ints(shape)}, {ints(shape)}, ScanAttrs{dim, reverse});
          }
        return;
      case OpId::fft:  // float32 in the place of 16-bit types
        for (const auto& [what, n] : {std::pair{"line", 1024}, {"mixed", 360}, {"matrix", 1 << 16}, {"prime", 1009}})
          for (const int64_t inverse : {0, 1}) {
            const std::string name = inverse ? std::string(what) + "_back" : what;
            add(op, name, {sums({64, n, 2})}, {sums({64, n, 2})}, FftAttrs{0, inverse, 0});
            if (inverse) add(op, name + "_to_real", {sums({64, n / 2 + 1, 2})}, {sums({64, n})}, FftAttrs{2, 1, 2});
            else add(op, name + "_from_real", {sums({64, n})}, {sums({64, n / 2 + 1, 2})}, FftAttrs{1, 0, 0});
          }
        return;
      case OpId::resample:
        add(op, "last", {x({64, 100}), ints({200}), sums({200, 2})}, {x({64, 200})}, DimAttrs{1});
        return add(op, "first", {x({100, 64}), ints({50}), sums({50, 4})}, {x({50, 64})}, DimAttrs{0}), void();
      case OpId::grid_sample:
      case OpId::grid_sample_grad_input:
      case OpId::grid_sample_grad_grid: return grids(op);
      case OpId::user_kernel: {
        UserKernel text;
        text.name = "doubled";
        text.body = "for (pf::i64 i = pf::thread(); i < x_size; i += 64) pf::store(out + i, f * pf::load(x + i));";
        text.inputs = {"x"}, text.outputs = {"out"}, text.scalars = {"f"};
        text.scalar_types = {DType::float32}, text.threads = 64;
        const int64_t kernel = register_user_kernel(text);
        return add(op, "", {x({100}), number()}, {x({100})}, UserKernelAttrs{kernel, 1, 1, 1, 0}), void();
      }
      case OpId::pdist: return add(op, "", {x({100, 64})}, {x({4950})}), void();
      case OpId::layer_norm:
      case OpId::layer_norm_grad:
      case OpId::rms_norm:
      case OpId::rms_norm_grad:
        for (const auto& [what, n] : {std::pair{"rows", 768}, {"wide", 4096}, {"any", 999}}) norm(op, what, n);
        return;
      case OpId::batch_norm:
        return add(op, "", {x({8, 16, 7, 7}), x({16}), x({16}), number()}, {x({8, 16, 7, 7}), sums({16}), sums({16})},
                   NormAttrs{1, 1}),
               void();
      case OpId::batch_norm_grad:
        return add(op, "", {x({8, 16, 7, 7}), x({8, 16, 7, 7}), sums({16}), sums({16}), x({16}), number()},
                   {x({8, 16, 7, 7}), x({16}), x({16})}, NormAttrs{1, 1}),
               void();
      case OpId::attention:
      case OpId::attention_grad: return attention(op);
      case OpId::varlen_attn:
      case OpId::varlen_attn_grad: return packed_attention(op);
      case OpId::paged_attention: return pages();
      case OpId::rotary_store: return rotary(), void();
      case OpId::grouped_mm: return groups();
      case OpId::scaled_mm: return scaled(), void();
      case OpId::quantized_linear:
      case OpId::quantized_grouped_mm:
      case OpId::decode_blocks: return blocks(op);
      case OpId::gather: return add(op, "", {x({64, 100}), ints({32, 100})}, {x({32, 100})}, DimAttrs{0}), void();
      case OpId::index_select:
        add(op, "rows", {x({64, 768}), ints({32})}, {x({32, 768})}, DimAttrs{0});
        return add(op, "odd", {x({64, 99}), ints({32})}, {x({32, 99})}, DimAttrs{0}), void();
      case OpId::embedding_bag: return add(op, "", {x({1000, 64}), ints({5000}), ints({100})}, {x({100, 64})}), void();
      case OpId::scatter_add:
        add(op, "few", {ints({100000}), x({100000})}, {x({64})}, DimAttrs{0});
        add(op, "rows", {ints({30, 1000}), x({30, 1000})}, {x({30, 64})}, DimAttrs{1});
        return add(op, "", {ints({1000, 30}), x({1000, 30})}, {x({64, 30})}, DimAttrs{0}), void();
      case OpId::index_add:
        add(op, "rows", {ints({1000}), x({1000, 768})}, {x({50304, 768})}, DimAttrs{0});
        add(op, "spread", {ints({1000}), x({1000, 99})}, {spread({50304, 99})}, DimAttrs{0});
        return add(op, "long", {ints({100000}), x({100000, 64})}, {x({50304, 64})}, DimAttrs{0}), void();
      case OpId::scatter: replacing(); return combining(op);
      case OpId::index_put: return combining(op);
      case OpId::nonzero:
        return add(op, "", {tensor(DType::bool_, {100000}), number(DType::int64)}, {ints({5000})}), void();
      case OpId::bin_sums: return binned(op);
      case OpId::searchsorted:
        for (const int64_t right : {0, 1})
          add(op, right ? "right" : "left", {x({64, 1000}), x({64, 30})}, {ints({64, 30})}, SearchAttrs{right});
        return;
      case OpId::topk:
        for (const auto& [what, n] : {std::pair{"rows", 50304}, {"long", 1 << 22}})
          add(op, what, {x({2, n})}, {x({2, 50}), ints({2, 50})}, TopkAttrs{1});
        return;
      case OpId::sort:
        for (const auto& [what, n] : {std::pair{"few", 50}, {"rows", 1000}, {"tile", 4000}, {"long", 100000}})
          add(op, what, {x({2, n})}, {x({2, n}), ints({2, n})}, SortAttrs{1});
        return;
      case OpId::draw_tokens: {
        const Operand logits = tensor(DType::float32, {4, 50304}), settings = tensor(DType::float32, {4, 5});
        return add(op, "", {logits, settings}, {ints({4}), tensor(DType::float32, {4})}), void();
      }
      case OpId::randperm:
        for (const auto& [what, n] : {std::pair{"tile", 1000}, {"long", 100000}})
          add(op, what, {number(DType::int64), number(DType::int64)}, {ints({n})});
        return;
      case OpId::nll_loss:
      case OpId::nll_loss_grad:
        for (const auto& [what, n] : {std::pair{"few", 10}, {"many", 50304}}) nll(op, what, n);
        return;
      case OpId::cross_entropy:
      case OpId::cross_entropy_grad:
        for (const auto& [what, n] : {std::pair{"few", 10}, {"many", 50304}, {"odd", 50257}})
          cross_entropy(op, what, n);
        return;
      case OpId::sgd_step: update(op, "", 2, {0}, 5); return update(op, "momentum", 3, {0, 2}, 5);
      case OpId::adam_step: return update(op, "", 4, {0, 2, 3}, 7);
      case OpId::sum_squares: return add(op, "", {x({300}), spread({30, 7})}, {tensor(DType::float32, {})}), void();
      case OpId::scale_all: {
        const Operand a = x({300}), b = spread({30, 7});
        return add(op, "", {a, b, tensor(DType::float32, {})}, {a, b}), void();
      }
      default: return;  // none: the tests say so
    }
  }

  void convolution(OpId op) {
    const Operand image = x({2, 16, 12, 12}), weight = x({24, 16, 3, 3}), result = x({2, 24, 12, 12});
    const ConvAttrs attrs{1, 1, 1, 1, 1, 1, 1};
    if (op == OpId::conv2d) add(op, "", {image, weight}, {result}, attrs);
    else if (op == OpId::conv2d_grad_input) add(op, "", {result, weight}, {image}, attrs);
    else add(op, "", {result, image}, {weight}, attrs);
  }
  void pooling(OpId op) {
    const Operand plane = x({2, 8, 12, 12}), windows = x({2, 8, 6, 6}), at = ints({2, 8, 6, 6});
    const PoolAttrs attrs{2, 2, 2, 2, 0, 0, 1, 1, 1};
    if (op == OpId::max_pool2d) add(op, "", {plane}, {windows, at}, attrs);
    else if (op == OpId::max_pool2d_grad) add(op, "", {windows, at}, {plane}, attrs);
    else if (op == OpId::avg_pool2d) add(op, "", {plane}, {windows}, attrs);
    else add(op, "", {windows}, {plane}, attrs);
  }
  void norm(OpId op, const char* what, int64_t n) {
    const Operand rows = x({64, n}), weight = x({n}), bias = x({n}), mean = sums({64}), rstd = sums({64});
    const Operand grad = x({64, n}), dx = x({64, n}), dw = x({n}), db = x({n});
    const NormAttrs both{1, 1}, one{1, 0};
    switch (op) {
      case OpId::layer_norm: add(op, what, {rows, weight, bias, number()}, {x({64, n}), mean, rstd}, both); break;
      case OpId::rms_norm: add(op, what, {rows, weight, number()}, {x({64, n}), rstd}, one); break;
      case OpId::layer_norm_grad: add(op, what, {grad, rows, mean, rstd, weight}, {dx, dw, db}, both); break;
      default: add(op, what, {grad, rows, rstd, weight}, {dx, dw}, one);
    }
  }
  void attention(OpId op) {
    const Dims shape{2, 4, 64, 64};
    const Operand q = x(shape), k = x(shape), v = x(shape), out = x(shape), lse = tensor(DType::float32, {2, 4, 64});
    const AttentionAttrs causal{1, 0};
    if (op == OpId::attention) add(op, "", {q, k, v, number(), number(DType::int64)}, {out, lse}, causal);
    else
      add(op, "", {x(shape), q, k, v, out, lse, number(), number(DType::int64)}, {x(shape), x(shape), x(shape)},
          causal);
  }
  void packed_attention(OpId op) {
    const Dims shape{128, 4, 64};
    const Operand q = x(shape), k = x(shape), v = x(shape), out = x(shape), lse = tensor(DType::float32, {4, 128}),
                  from_q = tensor(DType::int32, {3}), from_k = tensor(DType::int32, {3});
    const Operand scale = number(), most = number(DType::int64);
    if (op == OpId::varlen_attn)
      add(op, "", {q, k, v, from_q, from_k, scale, most, most}, {out, lse}, AttentionAttrs{1, 0});
    else
      add(op, "", {x(shape), q, k, v, out, lse, from_q, from_k, scale, most, most}, {x(shape), x(shape), x(shape)},
          AttentionAttrs{1, 0});
  }
  // Four query heads share the keys: few keys in all, and so many that their parts are added afterwards.
  void pages() {
    const Operand table = tensor(DType::int32, {3, 2}), lengths = tensor(DType::int32, {3});
    for (const auto& [what, columns] : {std::pair<const char*, int64_t>{"short", 2}, {"long", 16}})
      add(OpId::paged_attention, what,
          {x({3, 8, 128}), x({40, 16, 2, 128}), x({40, 16, 2, 128}), tensor(DType::int32, {3, columns}), lengths,
           number(), number(DType::int64), number()},
          {x({3, 8, 128})}, PagedAttrs{static_cast<int64_t>(dtype_)});
    for (const auto& [what, stored] :
         {std::pair{"int8", DType::int8}, {"float8", DType::float8_e4m3fn}, {"fnuz", DType::float8_e4m3fnuz}}) {
      const Operand pages = tensor(is_float8(stored) ? DType::uint8 : stored, {40, 16, 2, 128}),
                    scale = tensor(DType::float32, {40, 16, 2});
      add(OpId::paged_attention, what,
          {x({3, 8, 128}), pages, pages, table, lengths, scale, scale, number(), number(DType::int64), number()},
          {x({3, 8, 128})}, PagedAttrs{static_cast<int64_t>(stored)});
    }
  }
  // Halves of which 16 bytes are read at a time, and others.
  void rotary() {
    for (const auto& [what, dims] : {std::pair<const char*, int64_t>{"vectors", 128}, {"odd", 10}}) {
      const Operand cache = x({40, 2, dims}), table = x({64, dims});
      add(OpId::rotary_store, what,
          {x({3, 8, dims}), x({3, 2, dims}), x({3, 2, dims}), table, table, ints({3}), ints({3}), cache, cache},
          {x({3, 8, dims}), cache, cache});
    }
  }
  // Codes of the formats that the vendor's GPUs multiply.
  void scaled() {
    const bool amd = type_ == DeviceType::rocm;
    const auto wide = static_cast<int64_t>(amd ? DType::float8_e4m3fnuz : DType::float8_e4m3fn),
               narrow = static_cast<int64_t>(amd ? DType::float8_e5m2fnuz : DType::float8_e5m2);
    Operand columns = tensor(DType::uint8, {256, 96});
    columns.strides = {1, 256}, columns.contiguous = false;
    const Operand scale = tensor(DType::float32, {1});
    const DType result = dtype_ == DType::float64 ? DType::float32 : dtype_;
    for (const auto& [what, first] : {std::pair<const char*, int64_t>{"", wide}, {"gradient", narrow}})
      add(OpId::scaled_mm, what, {tensor(DType::uint8, {128, 256}), columns, scale, scale}, {tensor(result, {128, 96})},
          ScaledAttrs{first, wide, 0});
  }
  // Few and many rows in a group, and groups that divide a sum.
  void groups() {
    for (const auto& [what, rows] : {std::pair<const char*, int64_t>{"few", 32}, {"many", 2048}})
      add(OpId::grouped_mm, what, {x({rows, 256}), x({8, 256, 512}), tensor(DType::int32, {8})}, {x({rows, 512})});
    Operand along = x({8, 256, 512});
    along.strides = {256 * 512, 1, 256}, along.contiguous = false;
    add(OpId::grouped_mm, "rows", {x({4, 256}), along, tensor(DType::int32, {8})}, {x({4, 512})});
    add(OpId::grouped_mm, "terms", {x({256, 2048}), x({2048, 512}), tensor(DType::int32, {8})}, {x({8, 256, 512})});
  }
  // Rows of 8-bit floats with a scale for each row, or for each group, with one and with several rows of x.
  void floats(OpId op) {
    for (const auto& [name, type] : {std::pair<std::string, Float8Type>{"e4m3fn", {DType::float8_e4m3fn, 0}},
                                     {"e4m3fn_groups", {DType::float8_e4m3fn, 128}},
                                     {"e5m2", {DType::float8_e5m2, 0}}}) {
      const Float8Rows s(type, 1024);
      const BlockAttrs attrs{s.number(), 0};
      const Operand w = tensor(DType::uint8, {8192, s.row_bytes()});
      for (const int64_t rows : {1, 8}) {
        const std::string what = name + (rows > 1 ? "_many" : "");
        if (op == OpId::quantized_linear) add(op, what, {x({rows, s.columns}), w}, {x({rows, 8192})}, attrs);
        else if (rows > 1) continue;
        else if (op == OpId::decode_blocks) add(op, what, {w}, {x({8192, s.columns})}, attrs);
        else add(op, what, {x({rows, s.columns}), tensor(DType::int32, {4}), w}, {x({rows, 2048})}, attrs);
      }
    }
  }
  // Rows of blocks, and planes of them with one and with several rows of x.
  void blocks(OpId op) {
    for (const char* name :
         {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
      const gguf::Type& type = *gguf::find_type(std::string_view(name));
      const PlaneShape s{&type, plane_form(type), 8192, 1024};
      const auto put = [&](const std::string& what, int64_t rows, bool planes) {
        const BlockAttrs attrs{type.id, planes ? s.rows : 0};
        const Operand w = tensor(DType::uint8, {s.rows, planes ? s.row_bytes() : s.blocks() * type.bytes});
        if (op == OpId::decode_blocks) add(op, what, {w}, {x({s.rows, s.columns})}, attrs);
        else if (op == OpId::quantized_grouped_mm)
          add(op, what, {x({rows, s.columns}), tensor(DType::int32, {4}), w}, {x({rows, s.rows / 4})}, attrs);
        else add(op, what, {x({rows, s.columns}), w}, {x({rows, s.rows})}, attrs);
      };
      put(name, 1, true);
      if (op == OpId::quantized_linear) put(name + std::string("_many"), 8, true);
      if (type.id == 2 || type.id == 14) put(name + std::string("_rows"), 1, false);
    }
    floats(op);
  }
  void nll(OpId op, const char* what, int64_t classes) {
    const Operand log_probs = x({64, classes}), target = ints({64});
    if (op == OpId::nll_loss) add(op, what, {log_probs, target, number()}, {x({64})}, NllAttrs{-100});
    else add(op, what, {x({64}), log_probs, target, number()}, {x({64, classes})}, NllAttrs{-100});
  }
  void cross_entropy(OpId op, const char* what, int64_t classes) {
    const Operand logits = x({64, classes}), target = ints({64}), most = sums({64}), log_sum = sums({64});
    const NllAttrs attrs{-100};
    if (op == OpId::cross_entropy) add(op, what, {logits, target, number()}, {sums({64}), most, log_sum}, attrs);
    else add(op, what, {sums({64}), logits, target, most, log_sum, number()}, {x({64, classes})}, attrs);
  }
  // One contiguous tensor and one of other strides, in each role.
  void update(OpId op, const char* what, int roles, const std::vector<int>& written, int numbers) {
    std::vector<Operand> ins, outs;
    for (int r = 0; r < roles; ++r) ins.push_back(x({300})), ins.push_back(spread({30, 7}));
    for (const int r : written)
      for (const int t : {0, 1}) outs.push_back(ins[static_cast<size_t>(2 * r + t)]);
    for (int i = 0; i < numbers; ++i) ins.push_back(number());
    add(op, what, std::move(ins), std::move(outs), OptimAttrs{2, 0, 1, 0});
  }

  DeviceType type_;
  DType dtype_;
  int next_ = 0;
  std::vector<GpuProblem> all_;
};

}  // namespace pyflame
