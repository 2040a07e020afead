// Attention by cuDNN. Its engines recognise the graph of operations that defines attention, in this order, and compute
// it in one kernel forward and three backward. The forward pass stores the logsumexp as our own kernels do.
#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "pyflame/backends/cuda/cudnn.h"
#include "pyflame/backends/cuda/libraries.h"

namespace pyflame::gpu {

namespace {

using namespace cudnn_graph;

namespace descriptor {
using namespace cudnn_graph::descriptor;
constexpr int pointwise = 0, pointwise_op = 13, matmul = 18, matmul_op = 19, reduction = 21, reduction_op = 22,
              reshape_op = 31;
}  // namespace descriptor
namespace type {
using namespace cudnn_graph::type;
constexpr int pointwise_mode = 14, reduction_operator = 18;
}  // namespace type
namespace attribute {
using namespace cudnn_graph::attribute;
constexpr int pointwise_mode = 0, pointwise_type = 1, pointwise_axis = 9, pointwise_of = 750, pointwise_x = 751,
              pointwise_b = 752, pointwise_y = 753, pointwise_t = 758, matmul_type = 1500, matmul_a = 1520,
              matmul_b = 1521, matmul_c = 1522, matmul_of = 1523, reduction_operator = 1600, reduction_type = 1601,
              reduction_x = 1610, reduction_y = 1611, reduction_of = 1612, reshape_x = 2200, reshape_y = 2201;
}  // namespace attribute
enum Pointwise : int {
  kAdd = 0,
  kMul = 1,
  kDiv = 6,
  kSub = 9,
  kExp = 13,
  kLog = 15,
  kCopy = 21,
  kGreaterEqual = 303,
  kIndex = 501,
  kSelect = 601
};
enum Reduction : int { kSum = 0, kMax = 3 };
constexpr int kFloat = 0, kInt32 = 4, kBoolean = 11;

// Numbers of tensors: those of SdpaTensor, then the other tensors of the graph, then the virtual ones.
constexpr int64_t kScale = 20, kOne = 21, kHidden = 22, kDelta = 23, kQueriesSum = 24, kFirstVirtual = 100;

// Numbers that a graph reads from the host.
struct Values {
  float scale = 1, one = 1, hidden = -std::numeric_limits<float>::infinity();
};

Dims transposed(Dims d) {
  std::swap(d[2], d[3]);
  return d;
}

// The graph under construction. Tensors are identified by their descriptors; ok() is false after a failure.
class Builder {
 public:
  using Tensor = const Owned*;

  Builder(const Functions& f, const SdpaProblem& p)
      : f_(f),
        p_(p),
        io_(data_type(p.dtype)),
        scores_{p.queries[0], p.queries[1], p.queries[2], p.keys[2]},
        rows_{p.queries[0], p.queries[1], p.queries[2], 1} {}

  bool ok() const { return ok_; }
  std::span<const Descriptor> operations() const { return operations_; }

  void forward() {
    const Tensor q = given(SdpaTensor::q, p_.queries), k = given(SdpaTensor::k, p_.keys, true),
                 v = given(SdpaTensor::v, p_.keys);
    const Tensor products = scores(), scaled = scores(), less = scores(), powers = scores(), p = scores(io_);
    const Tensor top = rows(), total = rows(), log = rows();
    matmul(q, k, products);
    pointwise(kMul, products, number(kScale), scaled);
    const Tensor seen = visible(scaled);
    reduce(kMax, seen, top);
    pointwise(kSub, seen, top, less);
    pointwise(kExp, less, nullptr, powers);
    reduce(kSum, powers, total);
    pointwise(kLog, total, nullptr, log);
    pointwise(kAdd, top, log, logsumexp());
    pointwise(kDiv, powers, total, p);
    matmul(p, v, given(SdpaTensor::out, p_.queries));
  }

  // dq is a product like the others. If any order is allowed, the kernel that iterates over the keys sums dq in memory,
  // as the engines prefer. Its bits then vary, although no note of the engine says so.
  void backward() {
    const Tensor q = given(SdpaTensor::q, p_.queries), k = given(SdpaTensor::k, p_.keys, true),
                 v = given(SdpaTensor::v, p_.keys, true), grad = given(SdpaTensor::grad, p_.queries);
    const Tensor scale = number(kScale);
    const Tensor both = tensor(kFloat, p_.queries, contiguous_strides(p_.queries)), sums = rows();
    const Tensor delta = tensor(kFloat, rows_, contiguous_strides(rows_), kDelta);
    pointwise(kMul, grad, given(SdpaTensor::out, p_.queries), both);
    reduce(kSum, both, sums);
    pointwise(kMul, sums, number(kOne), delta);

    const Tensor products = scores(), scaled = scores(), less = scores(), p = scores();
    matmul(q, k, products);
    pointwise(kMul, products, scale, scaled);
    pointwise(kSub, scaled, logsumexp(), less);
    pointwise(kExp, visible(less), nullptr, p);
    of_keys(p, grad, SdpaTensor::dv);

    const Tensor dp = scores(), centred = scores(), weighted = scores(), ds = scores();
    matmul(grad, v, dp);
    pointwise(kSub, dp, delta, centred);
    pointwise(kMul, centred, p, weighted);
    pointwise(kMul, weighted, scale, ds);
    of_keys(ds, q, SdpaTensor::dk);

    const Tensor keys = tensor(io_, p_.keys, p_.strides[static_cast<size_t>(SdpaTensor::k)]);
    reshape(k, keys);
    const Tensor dq = given(SdpaTensor::dq, p_.queries);
    if (!p_.any_order) return matmul(ds, keys, dq);
    const Tensor sum = tensor(kFloat, p_.queries, contiguous_strides(p_.queries), kQueriesSum);
    matmul(ds, keys, sum);
    pointwise(kCopy, sum, nullptr, dq);
  }

 private:
  // The visible scores: with a causal mask, those of the keys up to the query.
  Tensor visible(Tensor s) {
    if (!p_.causal) return s;
    const Tensor row = scores(kInt32), key = scores(kInt32), see = scores(kBoolean), to = scores();
    index(s, 2, row);
    index(s, 3, key);
    pointwise(kGreaterEqual, row, key, see, nullptr, kBoolean);
    pointwise(kSelect, s, number(kHidden), to, see);
    return to;
  }
  // s^T x, summed over the heads that share keys.
  void of_keys(Tensor s, Tensor x, SdpaTensor to) {
    const Tensor across = tensor(io_, transposed(scores_), transposed(contiguous_strides(scores_)));
    reshape(s, across);
    const Tensor made = given(to, p_.keys);
    if (p_.queries[1] == p_.keys[1]) return matmul(across, x, made);
    const Dims all{p_.queries[0], p_.queries[1], p_.keys[2], p_.keys[3]};
    const Tensor each = tensor(io_, all, contiguous_strides(all));
    matmul(across, x, each);
    reduce(kSum, each, made);
  }

  Tensor tensor(int data, const Dims& shape, const Dims& strides, int64_t id = -1, bool by_value = false) {
    const bool is_virtual = id < 0;
    const int64_t number = is_virtual ? next_++ : id, alignment = 16, dims = shape.size();
    Owned& t = make(descriptor::tensor);
    t.set(attribute::tensor_type, type::data_type, data)
        .set(attribute::tensor_shape, type::int64, shape.begin(), dims)
        .set(attribute::tensor_strides, type::int64, strides.begin(), dims)
        .set(attribute::tensor_id, type::int64, number)
        .set(attribute::tensor_alignment, type::int64, alignment)
        .set(attribute::tensor_virtual, type::boolean, is_virtual)
        .set(attribute::tensor_by_value, type::boolean, by_value);
    return finish(t);
  }
  Tensor given(SdpaTensor which, const Dims& shape, bool across = false) {
    const auto at = static_cast<size_t>(which);
    const Dims& s = p_.strides[at];
    return tensor(io_, across ? transposed(shape) : shape, across ? transposed(s) : s, static_cast<int64_t>(at));
  }
  Tensor logsumexp() { return tensor(kFloat, rows_, contiguous_strides(rows_), static_cast<int64_t>(SdpaTensor::lse)); }
  Tensor number(int64_t id) { return tensor(kFloat, {1, 1, 1, 1}, {1, 1, 1, 1}, id, true); }
  Tensor scores(int data = kFloat) { return tensor(data, scores_, contiguous_strides(scores_)); }
  Tensor rows() { return tensor(kFloat, rows_, contiguous_strides(rows_)); }

  void pointwise(int mode, Tensor x, Tensor b, Tensor y, Tensor t = nullptr, int compute = kFloat) {
    Owned& d = make(descriptor::pointwise);
    finish(d.set(attribute::pointwise_mode, type::pointwise_mode, mode)
               .set(attribute::pointwise_type, type::data_type, compute));
    apply(d, x, b, y, t);
  }
  void index(Tensor x, int64_t axis, Tensor y) {
    Owned& d = make(descriptor::pointwise);
    finish(d.set(attribute::pointwise_mode, type::pointwise_mode, static_cast<int>(kIndex))
               .set(attribute::pointwise_type, type::data_type, kFloat)
               .set(attribute::pointwise_axis, type::int64, axis));
    apply(d, x, nullptr, y, nullptr);
  }
  void apply(const Owned& d, Tensor x, Tensor b, Tensor y, Tensor t) {
    Owned& op = make(descriptor::pointwise_op);
    op.set(attribute::pointwise_of, d).set(attribute::pointwise_x, *x).set(attribute::pointwise_y, *y);
    if (b) op.set(attribute::pointwise_b, *b);
    if (t) op.set(attribute::pointwise_t, *t);
    operation(op);
  }
  void matmul(Tensor a, Tensor b, Tensor c) {
    Owned& d = make(descriptor::matmul);
    finish(d.set(attribute::matmul_type, type::data_type, kFloat));
    Owned& op = make(descriptor::matmul_op);
    operation(op.set(attribute::matmul_a, *a)
                  .set(attribute::matmul_b, *b)
                  .set(attribute::matmul_c, *c)
                  .set(attribute::matmul_of, d));
  }
  void reduce(int how, Tensor x, Tensor y) {
    Owned& d = make(descriptor::reduction);
    finish(d.set(attribute::reduction_type, type::data_type, kFloat)
               .set(attribute::reduction_operator, type::reduction_operator, how));
    Owned& op = make(descriptor::reduction_op);
    operation(op.set(attribute::reduction_of, d).set(attribute::reduction_x, *x).set(attribute::reduction_y, *y));
  }
  void reshape(Tensor x, Tensor y) {
    Owned& op = make(descriptor::reshape_op);
    operation(op.set(attribute::reshape_x, *x).set(attribute::reshape_y, *y));
  }

  Owned& make(int kind) { return *all_.emplace_back(std::make_unique<Owned>(f_, kind)); }
  Tensor finish(Owned& d) {
    ok_ = d.finish() && ok_;
    return &d;
  }
  void operation(Owned& op) { operations_.push_back(finish(op)->raw()); }

  const Functions& f_;
  const SdpaProblem& p_;
  const int io_;
  const Dims scores_, rows_;
  std::vector<std::unique_ptr<Owned>> all_;
  std::vector<Descriptor> operations_;
  int64_t next_ = kFirstVirtual;
  bool ok_ = true;
};

// The deterministic gradient keeps the scores of all heads in memory, so it is computed in parts of at most this many
// bytes, over batches or heads.
constexpr int64_t kMostScores = int64_t{512} << 20;

// One part of a problem (all parts are equal), and the number of parts along batches and along heads of keys.
struct Parts {
  SdpaProblem each;
  int64_t batches = 1, heads = 1;
  bool fits = true;  // whether one part fits
};

int64_t largest_divisor(int64_t n, int64_t most) {
  int64_t d = std::clamp<int64_t>(most, 1, n);
  while (n % d != 0) --d;
  return d;
}

Parts parts_of(const SdpaProblem& p) {
  Parts parts{p};
  if (!p.gradient || p.any_order) return parts;
  const int64_t batches = p.queries[0], heads = p.queries[1], groups = p.keys[1];
  const int64_t of_group = heads / groups * p.queries[2] * p.keys[2] * dtype_size(p.dtype);
  parts.fits = of_group <= kMostScores;
  const int64_t together = largest_divisor(groups, kMostScores / of_group);
  const int64_t batch = together < groups ? 1 : largest_divisor(batches, kMostScores / (of_group * groups));
  parts.batches = batches / batch, parts.heads = groups / together;
  parts.each.queries[0] = parts.each.keys[0] = batch;
  parts.each.queries[1] = heads / groups * together, parts.each.keys[1] = together;
  // The logsumexp of every part must begin at a multiple of 16 bytes.
  if (parts.batches * parts.heads > 1) parts.fits &= parts.each.queries[1] * p.queries[2] % 4 == 0;
  return parts;
}

class CudnnSdpaPlan final : public SdpaPlan {
 public:
  CudnnSdpaPlan(const Functions& f, const SdpaProblem& p, const Parts& parts, const Execution& known)
      : problem_(p), parts_(parts) {
    for (int64_t i = 0; i < parts.batches * parts.heads; ++i) executions_.push_back(known.another());
    const auto last = static_cast<int64_t>(p.gradient ? SdpaTensor::dv : SdpaTensor::lse);
    for (int64_t t = 0; t <= last; ++t) take(t, nullptr);
    tensors_ = ids_.size();
    take(kScale, &values_.scale);
    if (p.causal) take(kHidden, &values_.hidden);
    if (!p.gradient) return;
    take(kOne, &values_.one);
    const Dims& q = parts.each.queries;
    const size_t rows = static_cast<size_t>(q[0] * q[1] * q[2]) * sizeof(float);
    make_room(kDelta, rows);
    if (!p.any_order) return;
    make_room(kQueriesSum, rows * static_cast<size_t>(q[3]));
    constexpr size_t kClearsItself = 90600;
    clears_ = f.version() < kClearsItself;
  }
  size_t workspace() const override { return room_ + executions_[0]->workspace(); }
  void run(GpuDevice& device, const std::array<void*, kSdpaTensors>& tensors, double scale, void* workspace) override {
    if (const auto now = static_cast<float>(scale); now != values_.scale) {
      values_.scale = now;
      for (auto& e : executions_) e->forget();
    }
    auto* const room = static_cast<char*>(workspace);
    for (const auto& [at, offset] : rooms_) pointers_[at] = room + offset;
    if (clears_) device.fill(pointers_.back(), 0, room_ - rooms_.back().second);
    for (size_t i = 0; i < executions_.size(); ++i) {
      for (size_t t = 0; t < tensors_; ++t)
        pointers_[t] = static_cast<char*>(tensors[t]) + offset(static_cast<SdpaTensor>(t), static_cast<int64_t>(i));
      executions_[i]->run(device, "scaled_dot_product_attention", ids_, pointers_, room + room_);
    }
  }

 private:
  // Bytes from the tensor's start to the part.
  int64_t offset(SdpaTensor t, int64_t part) const {
    const Dims& q = problem_.queries;
    const bool of_keys = t == SdpaTensor::k || t == SdpaTensor::v || t == SdpaTensor::dk || t == SdpaTensor::dv;
    const Dims& each = of_keys ? parts_.each.keys : parts_.each.queries;
    const int64_t batch = part / parts_.heads * each[0], head = part % parts_.heads * each[1];
    if (t == SdpaTensor::lse) return (batch * q[1] + head) * q[2] * static_cast<int64_t>(sizeof(float));
    const Dims& s = problem_.strides[static_cast<size_t>(t)];
    return (batch * s[0] + head * s[1]) * dtype_size(problem_.dtype);
  }
  void take(int64_t id, void* pointer) {
    ids_.push_back(id);
    pointers_.push_back(pointer);
  }
  void make_room(int64_t id, size_t bytes) {
    rooms_.emplace_back(ids_.size(), room_);
    take(id, nullptr);
    room_ += (bytes + 255) / 256 * 256;
  }
  SdpaProblem problem_;
  Parts parts_;
  std::vector<std::unique_ptr<Execution>> executions_;  // one per part: each has its own variant pack
  Values values_;
  std::vector<int64_t> ids_;
  std::vector<void*> pointers_;                   // of tensors, then of numbers, then of workspace areas
  std::vector<std::pair<size_t, size_t>> rooms_;  // index of the pointer, offset in the workspace
  size_t tensors_ = 0, room_ = 0;                 // bytes of the workspace in front of cuDNN's own
  bool clears_ = false;                           // clears the sum of dq before each run
};

std::unique_ptr<Execution> find_plan(const Functions& f, Handle handle, const SdpaProblem& p) {
  Builder b(f, p);
  if (p.gradient) b.backward();
  else b.forward();
  if (!b.ok()) return nullptr;
  for (const int heuristic : {kHeuristicA, kHeuristicFallback})
    if (auto all = plans(f, handle, b.operations(), p.dtype, heuristic, 1, {.any_order = p.any_order}); !all.empty())
      return std::move(all[0]);
  return nullptr;
}

}  // namespace

std::unique_ptr<SdpaPlan> cudnn_sdpa(GpuDevice& device, const SdpaProblem& p, std::string* why) {
  const Functions* f = functions(why);
  if (!f) return nullptr;
  const Parts parts = parts_of(p);
  if (!parts.fits) {
    if (why) *why = "cudnn would keep the scores in memory, and they are too many or lie badly";
    return nullptr;
  }
  std::vector<int64_t> key{device.index(), p.gradient, p.causal, p.any_order, static_cast<int64_t>(p.dtype)};
  for (const Dims& d : {parts.each.queries, parts.each.keys}) key.insert(key.end(), d.begin(), d.end());
  for (const Dims& s : p.strides) key.insert(key.end(), s.begin(), s.end());
  static std::mutex mutex;
  static auto* known = new std::map<std::vector<int64_t>, std::unique_ptr<Execution>>;
  std::lock_guard lock(mutex);
  auto it = known->find(key);
  if (it == known->end()) {
    const Handle handle = handle_of(*f, device);
    it = known->emplace(std::move(key), handle ? find_plan(*f, handle, parts.each) : nullptr).first;
  }
  if (it->second) return std::make_unique<CudnnSdpaPlan>(*f, p, parts, *it->second);
  if (why) *why = p.any_order ? "cudnn has no plan for it" : "cudnn has no deterministic plan for it";
  return nullptr;
}

}  // namespace pyflame::gpu
