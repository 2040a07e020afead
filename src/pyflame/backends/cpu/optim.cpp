// Multi-tensor updates: all tensors of a step are one list of equal chunks, so that many small parameters cost one
// pass over the threads and a large one is shared between them.
#include <algorithm>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

constexpr int64_t kChunk = 8192;

struct Chunk {
  int32_t tensor;
  int64_t begin, count;
};

// Operands as runs of elements: in place, or, if their memory order differs, copied to the workspace in their
// computation type.
class Arrays {
 public:
  Arrays() = default;
  Arrays(std::vector<Operand> operands, WorkspacePlan& ws) : operands_(std::move(operands)) {
    for (const Operand& o : operands_)
      place_.push_back(o.contiguous ? kDirect : ws.take(static_cast<size_t>(o.numel() * (is_wide(o) ? 8 : 4))));
  }
  size_t size() const { return operands_.size(); }
  int64_t numel(size_t i) const { return operands_[i].numel(); }
  DType dtype(size_t i) const {
    if (place_[i] == kDirect) return operands_[i].dtype;
    return is_wide(operands_[i]) ? DType::float64 : DType::float32;
  }
  char* data(const RunContext& ctx, size_t i) const {
    return place_[i] == kDirect ? ctx.ptr<char>(operands_[i]) : static_cast<char*>(ctx.workspace) + place_[i];
  }
  void gather(const RunContext& ctx) const {
    each_placed([&]<class T>(const Operand& o, size_t i, T*) {
      load_strided(ctx.ptr<const void>(o), o.dtype, o.shape, o.strides, reinterpret_cast<T*>(data(ctx, i)));
    });
  }
  // The first n operands.
  void scatter(const RunContext& ctx, size_t n) const {
    each_placed([&]<class T>(const Operand& o, size_t i, T*) {
      if (i < n) store_strided(reinterpret_cast<const T*>(data(ctx, i)), ctx.ptr<void>(o), o.dtype, o.shape, o.strides);
    });
  }

 private:
  static constexpr size_t kDirect = ~size_t{0};
  static bool is_wide(const Operand& o) { return o.dtype == DType::float64; }
  template <class F>
  void each_placed(const F& f) const {
    for (size_t i = 0; i < size(); ++i) {
      if (place_[i] == kDirect) continue;
      if (is_wide(operands_[i])) f(operands_[i], i, static_cast<double*>(nullptr));
      else f(operands_[i], i, static_cast<float*>(nullptr));
    }
  }
  std::vector<Operand> operands_;
  std::vector<size_t> place_;
};

std::vector<Chunk> cut(const Arrays& tensors, size_t n) {
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < n; ++t)
    for (int64_t b = 0; b < tensors.numel(t); b += kChunk)
      chunks.push_back({static_cast<int32_t>(t), b, std::min(kChunk, tensors.numel(t) - b)});
  return chunks;
}

// The order of elements is that in which the first tensor is stored. The weights of convolutions are channels-last, and
// so are their gradients and states.
void to_memory_order(const std::vector<Operand*>& operands) {
  const Operand& first = *operands.front();
  Dims order;
  for (int d = 0; d < first.shape.size(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    return first.strides[static_cast<int>(x)] > first.strides[static_cast<int>(y)];
  });
  for (Operand* o : operands) {
    const Operand old = *o;
    for (int d = 0; d < order.size(); ++d) {
      o->shape[d] = old.shape[static_cast<int>(order[d])];
      o->strides[d] = old.strides[static_cast<int>(order[d])];
    }
    o->contiguous = is_contiguous(o->shape, o->strides);
  }
}

// A run of an operand as type T: the memory itself, or scratch (at most four runs are used at a time).
template <class T>
const T* read(const RunContext& ctx, const Arrays& arrays, size_t i, const Chunk& c, T* buffer) {
  const char* p = arrays.data(ctx, i) + c.begin * dtype_size(arrays.dtype(i));
  if (arrays.dtype(i) == compute_dtype<T>()) return reinterpret_cast<const T*>(p);
  load_run(p, arrays.dtype(i), c.count, buffer);
  return buffer;
}
template <class T>
T* target(const RunContext& ctx, const Arrays& arrays, size_t i, const Chunk& c, T* buffer) {
  if (arrays.dtype(i) == compute_dtype<T>()) return reinterpret_cast<T*>(arrays.data(ctx, i)) + c.begin;
  return buffer;
}
template <class T>
void write(const RunContext& ctx, const Arrays& arrays, size_t i, const Chunk& c, const T* values) {
  const DType dtype = arrays.dtype(i);
  if (dtype != compute_dtype<T>()) store_run(values, arrays.data(ctx, i) + c.begin * dtype_size(dtype), dtype, c.count);
}

template <class F>
void for_chunks(const std::vector<Chunk>& chunks, const F& f) {
  parallel_for(static_cast<int64_t>(chunks.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(chunks[static_cast<size_t>(i)], i);
  });
}

// Updates one tensor after the other. Their operands are ordered by role (parameters, gradients, ...) in ins and outs.
class Update : public Exec {
 public:
  explicit Update(const Node& node) : attrs_(node.attr<OptimAttrs>()) {
    std::vector<Operand> ins, outs = node.outs;
    for (const Operand& o : node.ins) (o.is_param ? params_ : ins).push_back(o);
    count_ = static_cast<size_t>(attrs_.count);
    for (size_t t = 0; t < count_; ++t) {
      std::vector<Operand*> own;
      for (auto* list : {&ins, &outs})
        for (size_t i = t; i < list->size(); i += count_) own.push_back(&(*list)[i]);
      if (std::any_of(own.begin(), own.end(), [](const Operand* o) { return !o->contiguous; })) to_memory_order(own);
    }
    with_momentum_ = ins.size() == 3 * count_ && count_ > 0;
    ins_ = Arrays(std::move(ins), ws_);
    outs_ = Arrays(std::move(outs), ws_);
    chunks_ = cut(ins_, count_);
  }

 protected:
  double param(const RunContext& ctx, size_t i) const { return ctx.params[params_[i].param].as_f64(); }
  size_t at(size_t role, const Chunk& c) const { return role * count_ + static_cast<size_t>(c.tensor); }
  // Calls f(chunk) for all chunks; f writes the first `roles` roles.
  template <class F>
  void for_elements(const RunContext& ctx, size_t roles, const F& f) const {
    ins_.gather(ctx);
    for_chunks(chunks_, [&](const Chunk& c, int64_t) { f(c); });
    outs_.scatter(ctx, roles * count_);
  }
  OptimAttrs attrs_;
  Arrays ins_, outs_;
  std::vector<Operand> params_;
  size_t count_ = 0;
  bool with_momentum_ = false;
  std::vector<Chunk> chunks_;
};

template <class T>
class Adam : public Update {
 public:
  using Update::Update;
  void run(const RunContext& ctx) override {
    const vec::AdamNumbers a{param(ctx, 0), param(ctx, 1), param(ctx, 2),         param(ctx, 3),       param(ctx, 4),
                             param(ctx, 5), param(ctx, 6), attrs_.decoupled != 0, attrs_.maximize != 0};
    for_elements(ctx, 3, [&](const Chunk& c) {
      T* s = scratch<T>(0, 4 * kChunk);
      const T* p = read(ctx, ins_, at(0, c), c, s);
      const T* g = read(ctx, ins_, at(1, c), c, s + kChunk);
      const T* m = read(ctx, ins_, at(2, c), c, s + 2 * kChunk);
      const T* v = read(ctx, ins_, at(3, c), c, s + 3 * kChunk);
      T* po = target(ctx, outs_, at(0, c), c, s);
      T* mo = target(ctx, outs_, at(1, c), c, s + 2 * kChunk);
      T* vo = target(ctx, outs_, at(2, c), c, s + 3 * kChunk);
      vec::adam(a, p, g, m, v, po, mo, vo, c.count);
      write(ctx, outs_, at(0, c), c, po);
      write(ctx, outs_, at(1, c), c, mo);
      write(ctx, outs_, at(2, c), c, vo);
    });
  }
};

template <class T>
class Sgd : public Update {
 public:
  using Update::Update;
  void run(const RunContext& ctx) override {
    const vec::SgdNumbers a{param(ctx, 0),      param(ctx, 1),        param(ctx, 2),       param(ctx, 3),
                            param(ctx, 4) != 0, attrs_.nesterov != 0, attrs_.maximize != 0};
    const bool momentum = with_momentum_ && a.momentum != 0;
    for_elements(ctx, momentum ? 2 : 1, [&](const Chunk& c) {
      T* s = scratch<T>(0, 3 * kChunk);
      const T* p = read(ctx, ins_, at(0, c), c, s);
      const T* g = read(ctx, ins_, at(1, c), c, s + kChunk);
      const T* m = momentum ? read(ctx, ins_, at(2, c), c, s + 2 * kChunk) : nullptr;
      T* po = target(ctx, outs_, at(0, c), c, s);
      T* mo = momentum ? target(ctx, outs_, at(1, c), c, s + 2 * kChunk) : nullptr;
      vec::sgd(a, p, g, m, po, mo, c.count);
      write(ctx, outs_, at(0, c), c, po);
      if (momentum) write(ctx, outs_, at(1, c), c, mo);
    });
  }
};

// A total per chunk, then their sum in the order of the chunks, all in double.
class SumSquares : public Exec {
 public:
  explicit SumSquares(const Node& node) : ins_(node.ins, ws_), out_(node.outs[0]), chunks_(cut(ins_, ins_.size())) {
    totals_ = ws_.take(chunks_.size() * sizeof(double));
  }
  void run(const RunContext& ctx) override {
    double* totals = at<double>(ctx, totals_);
    ins_.gather(ctx);
    for_chunks(chunks_, [&](const Chunk& c, int64_t i) {
      const auto t = static_cast<size_t>(c.tensor);
      totals[i] = ins_.dtype(t) == DType::float64
                      ? vec::sum_squares(read<double>(ctx, ins_, t, c, nullptr), c.count)
                      : vec::sum_squares(read<float>(ctx, ins_, t, c, scratch<float>(0, kChunk)), c.count);
    });
    double total = 0;
    for (size_t i = 0; i < chunks_.size(); ++i) total += totals[i];
    store_run(&total, ctx.ptr<void>(out_), out_.dtype, 1);
  }

 private:
  Arrays ins_;
  Operand out_;
  std::vector<Chunk> chunks_;
  size_t totals_ = 0;
};

class ScaleAll : public Exec {
 public:
  explicit ScaleAll(const Node& node) : factor_(node.ins.back()) {
    std::vector<Operand> ins(node.ins.begin(), node.ins.end() - 1), outs = node.outs;
    for (size_t t = 0; t < ins.size(); ++t)
      if (!ins[t].contiguous || !outs[t].contiguous) to_memory_order({&ins[t], &outs[t]});
    ins_ = Arrays(std::move(ins), ws_);
    outs_ = Arrays(std::move(outs), ws_);
    chunks_ = cut(ins_, ins_.size());
  }
  void run(const RunContext& ctx) override {
    double factor = 0;
    load_run(ctx.ptr<const void>(factor_), factor_.dtype, 1, &factor);
    ins_.gather(ctx);
    for_chunks(chunks_, [&](const Chunk& c, int64_t) {
      if (ins_.dtype(static_cast<size_t>(c.tensor)) == DType::float64) scale(ctx, c, factor);
      else scale(ctx, c, static_cast<float>(factor));
    });
    outs_.scatter(ctx, outs_.size());
  }

 private:
  template <class T>
  void scale(const RunContext& ctx, const Chunk& c, T factor) const {
    const auto t = static_cast<size_t>(c.tensor);
    T* s = scratch<T>(0, kChunk);
    const T* x = read(ctx, ins_, t, c, s);
    T* y = target(ctx, outs_, t, c, s);
    if (x != y) std::copy_n(x, c.count, y);
    vec::scale(y, factor, c.count);
    write(ctx, outs_, t, c, y);
  }
  Operand factor_;
  Arrays ins_, outs_;
  std::vector<Chunk> chunks_;
};

Refusal accept_update(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  for (const auto* list : {&p.root().ins, &p.root().outs})
    for (const Operand& o : *list) {
      if (o.is_param) continue;
      if (!is_float(o.dtype)) return "takes floating point data only";
    }
  return {};
}

std::unique_ptr<Executable> make_adam(const Problem& p) { return make_by_type<Adam>(p); }
std::unique_ptr<Executable> make_sgd(const Problem& p) { return make_by_type<Sgd>(p); }
std::unique_ptr<Executable> make_sum_squares(const Problem& p) { return std::make_unique<SumSquares>(p.root()); }
std::unique_ptr<Executable> make_scale_all(const Problem& p) { return std::make_unique<ScaleAll>(p.root()); }

}  // namespace

std::span<const Impl> sgd_step_impls() {
  static const Impl impl{"cpu.update", accept_update, make_sgd};
  return {&impl, 1};
}
std::span<const Impl> adam_step_impls() {
  static const Impl impl{"cpu.update", accept_update, make_adam};
  return {&impl, 1};
}
std::span<const Impl> sum_squares_impls() {
  static const Impl impl{"cpu.update", accept_update, make_sum_squares};
  return {&impl, 1};
}
std::span<const Impl> scale_all_impls() {
  static const Impl impl{"cpu.update", accept_update, make_scale_all};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
