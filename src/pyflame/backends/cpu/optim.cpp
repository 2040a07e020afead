#include "pyflame/backends/cpu/optim.h"

#include <algorithm>

#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

constexpr int64_t kChunk = 8192;

struct Chunk {
  int32_t tensor;
  int64_t begin, count;
};

std::vector<Chunk> cut(const Operand* tensors, size_t n) {
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < n; ++t)
    for (int64_t b = 0; b < tensors[t].numel(); b += kChunk)
      chunks.push_back({static_cast<int32_t>(t), b, std::min(kChunk, tensors[t].numel() - b)});
  return chunks;
}

// A run of an operand as T: the memory itself, or scratch (four runs at most are in use at a time).
template <class T>
const T* read(const RunContext& ctx, const Operand& o, const Chunk& c, T* buffer) {
  const char* p = ctx.ptr<const char>(o) + c.begin * dtype_size(o.dtype);
  if (o.dtype == compute_dtype<T>()) return reinterpret_cast<const T*>(p);
  load_run(p, o.dtype, c.count, buffer);
  return buffer;
}
template <class T>
T* target(const RunContext& ctx, const Operand& o, const Chunk& c, T* buffer) {
  if (o.dtype == compute_dtype<T>()) return ctx.ptr<T>(o) + c.begin;
  return buffer;
}
template <class T>
void write(const RunContext& ctx, const Operand& o, const Chunk& c, const T* values) {
  if (o.dtype != compute_dtype<T>())
    store_run(values, ctx.ptr<char>(o) + c.begin * dtype_size(o.dtype), o.dtype, c.count);
}

template <class F>
void for_chunks(const std::vector<Chunk>& chunks, const F& f) {
  parallel_for(static_cast<int64_t>(chunks.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(chunks[static_cast<size_t>(i)], i);
  });
}

class Update : public Exec {
 public:
  explicit Update(const Node& node) : attrs_(node.attr<OptimAttrs>()), outs_(node.outs) {
    for (const Operand& o : node.ins) (o.is_param ? params_ : ins_).push_back(o);
    count_ = static_cast<size_t>(attrs_.count);
    chunks_ = cut(ins_.data(), count_);
  }

 protected:
  double param(const RunContext& ctx, size_t i) const { return ctx.params[params_[i].index].as_f64(); }
  const Operand& in(size_t role, int32_t tensor) const { return ins_[role * count_ + static_cast<size_t>(tensor)]; }
  const Operand& out(size_t role, int32_t tensor) const { return outs_[role * count_ + static_cast<size_t>(tensor)]; }
  OptimAttrs attrs_;
  std::vector<Operand> ins_, outs_, params_;
  size_t count_ = 0;
  std::vector<Chunk> chunks_;
};

template <class T>
class Adam : public Update {
 public:
  using Update::Update;
  void run(const RunContext& ctx) override {
    const vec::AdamNumbers a{param(ctx, 0), param(ctx, 1), param(ctx, 2),         param(ctx, 3),       param(ctx, 4),
                             param(ctx, 5), param(ctx, 6), attrs_.decoupled != 0, attrs_.maximize != 0};
    for_chunks(chunks_, [&](const Chunk& c, int64_t) {
      T* s = scratch<T>(0, 4 * kChunk);
      const int32_t t = c.tensor;
      const T* p = read(ctx, in(0, t), c, s);
      const T* g = read(ctx, in(1, t), c, s + kChunk);
      const T* m = read(ctx, in(2, t), c, s + 2 * kChunk);
      const T* v = read(ctx, in(3, t), c, s + 3 * kChunk);
      T* po = target(ctx, out(0, t), c, s);
      T* mo = target(ctx, out(1, t), c, s + 2 * kChunk);
      T* vo = target(ctx, out(2, t), c, s + 3 * kChunk);
      vec::adam(a, p, g, m, v, po, mo, vo, c.count);
      write(ctx, out(0, t), c, po);
      write(ctx, out(1, t), c, mo);
      write(ctx, out(2, t), c, vo);
    });
  }
};

template <class T>
class Sgd : public Update {
 public:
  explicit Sgd(const Node& node) : Update(node), with_momentum_(ins_.size() == 3 * count_ && count_ > 0) {}
  void run(const RunContext& ctx) override {
    const vec::SgdNumbers a{param(ctx, 0),      param(ctx, 1),        param(ctx, 2),       param(ctx, 3),
                            param(ctx, 4) != 0, attrs_.nesterov != 0, attrs_.maximize != 0};
    for_chunks(chunks_, [&](const Chunk& c, int64_t) {
      T* s = scratch<T>(0, 3 * kChunk);
      const int32_t t = c.tensor;
      const T* p = read(ctx, in(0, t), c, s);
      const T* g = read(ctx, in(1, t), c, s + kChunk);
      const bool momentum = with_momentum_ && a.momentum != 0;
      const T* m = momentum ? read(ctx, in(2, t), c, s + 2 * kChunk) : nullptr;
      T* po = target(ctx, out(0, t), c, s);
      T* mo = momentum ? target(ctx, out(1, t), c, s + 2 * kChunk) : nullptr;
      vec::sgd(a, p, g, m, po, mo, c.count);
      write(ctx, out(0, t), c, po);
      if (momentum) write(ctx, out(1, t), c, mo);
    });
  }

 private:
  bool with_momentum_;
};

// Totals of chunks, then their sum in the order of the chunks, all in double.
class SumSquares : public Exec {
 public:
  explicit SumSquares(const Node& node) : ins_(node.ins), out_(node.outs[0]), chunks_(cut(ins_.data(), ins_.size())) {
    totals_ = ws_.take(chunks_.size() * sizeof(double));
  }
  void run(const RunContext& ctx) override {
    double* totals = at<double>(ctx, totals_);
    for_chunks(chunks_, [&](const Chunk& c, int64_t i) {
      const Operand& o = ins_[static_cast<size_t>(c.tensor)];
      totals[i] = o.dtype == DType::float64
                      ? vec::sum_squares(ctx.ptr<const double>(o) + c.begin, c.count)
                      : vec::sum_squares(read<float>(ctx, o, c, scratch<float>(0, kChunk)), c.count);
    });
    double total = 0;
    for (size_t i = 0; i < chunks_.size(); ++i) total += totals[i];
    store_run(&total, ctx.ptr<void>(out_), out_.dtype, 1);
  }

 private:
  std::vector<Operand> ins_;
  Operand out_;
  std::vector<Chunk> chunks_;
  size_t totals_ = 0;
};

class ScaleAll : public Exec {
 public:
  explicit ScaleAll(const Node& node) : ins_(node.ins), outs_(node.outs), factor_(node.ins.back()) {
    ins_.pop_back();
    chunks_ = cut(ins_.data(), ins_.size());
  }
  void run(const RunContext& ctx) override {
    double factor = 0;
    load_run(ctx.ptr<const void>(factor_), factor_.dtype, 1, &factor);
    for_chunks(chunks_, [&](const Chunk& c, int64_t) {
      if (ins_[static_cast<size_t>(c.tensor)].dtype == DType::float64) scale(ctx, c, factor);
      else scale(ctx, c, static_cast<float>(factor));
    });
  }

 private:
  template <class T>
  void scale(const RunContext& ctx, const Chunk& c, T factor) const {
    const Operand &in = ins_[static_cast<size_t>(c.tensor)], &out = outs_[static_cast<size_t>(c.tensor)];
    T* s = scratch<T>(0, kChunk);
    const T* x = read(ctx, in, c, s);
    T* y = target(ctx, out, c, s);
    if (x != y) std::copy_n(x, c.count, y);
    vec::scale(y, factor, c.count);
    write(ctx, out, c, y);
  }
  std::vector<Operand> ins_, outs_;
  Operand factor_;
  std::vector<Chunk> chunks_;
};

}  // namespace

Refusal accept_update(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  for (const auto* list : {&p.root().ins, &p.root().outs})
    for (const Operand& o : *list) {
      if (o.is_param) continue;
      if (!is_float(o.dtype)) return "takes floating point data only";
      if (!o.contiguous) return "takes contiguous tensors only";
    }
  return {};
}

std::unique_ptr<Executable> make_adam(const Problem& p) { return make_by_type<Adam>(p); }
std::unique_ptr<Executable> make_sgd(const Problem& p) { return make_by_type<Sgd>(p); }
std::unique_ptr<Executable> make_sum_squares(const Problem& p) { return std::make_unique<SumSquares>(p.root()); }
std::unique_ptr<Executable> make_scale_all(const Problem& p) { return std::make_unique<ScaleAll>(p.root()); }

}  // namespace pyflame::cpu
