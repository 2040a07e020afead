// Recurrent layers by a vendor's library: what it is asked for, and the block of weights around each call. The copies of the weights cost little beside
// the products: a step of the sequence reads the same bytes.
#include "pyflame/backends/gpu/libs/recurrent.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr size_t kAlignment = 256;
size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool is_gradient(const Node& n) { return n.op == OpId::recurrent_grad; }
size_t states_of(const RecurrentAttrs& a) { return static_cast<RecurrentMode>(a.mode) == RecurrentMode::Lstm ? 2 : 1; }

RecurrentCase case_of(const Node& n) {
  const auto a = n.attr<RecurrentAttrs>();
  const Operand& x = n.ins[is_gradient(n) ? 1 + states_of(a) : 0];
  return {a, x.dtype, x.shape[0], x.shape[1], x.shape[2]};
}

std::vector<int64_t> key_of(DeviceType type, int index, const RecurrentCase& c) {
  const RecurrentAttrs& a = c.attrs;
  return {
      static_cast<int64_t>(type),    index,   a.mode,  a.hidden, a.layers, a.directions, a.biases, a.kept, a.rounded,
      static_cast<int64_t>(c.dtype), c.steps, c.batch, c.inputs};
}

class Layers final : public Executable {
 public:
  explicit Layers(const Problem& p)
      : node_(p.root()), type_(p.graph.device.type), attrs_(node_.attr<RecurrentAttrs>()) {
    const Refusal no = recurrent_refuses(type_, p.graph.device.index, case_of(node_), &plan_);
    PF_CHECK(!no, Runtime, "{}: the library does not take it: {}", node_.info().name, *no);
    const bool gradient = is_gradient(node_);
    size_t at = 0;
    const auto place = [&](size_t bytes) {
      const size_t here = at;
      at += aligned(bytes);
      return here;
    };
    weights_ = place(plan_->weights);
    if (gradient) dweights_ = place(plan_->weights), kept_ = place(plan_->kept);
    own_ = place(plan_->workspace);
    bytes_ = at + kAlignment;  // the workspace begins at a multiple of 64
  }
  size_t workspace() const override { return bytes_; }
  bool capturable() const override { return false; }  // libraries use streams of their own
  bool repeats() const override { return false; }     // they do not promise it of their products
  void run(const RunContext& ctx) override {
    GpuDevice& d = device(type_, ctx.device);
    const size_t states = states_of(attrs_);
    auto* const base = reinterpret_cast<char*>(aligned(reinterpret_cast<uintptr_t>(ctx.workspace)));
    const auto in = [&](size_t i) { return ctx.bindings[node_.ins[i].binding]; };
    const auto out = [&](size_t i) { return ctx.bindings[node_.outs[i].binding]; };
    RecurrentRun r;
    r.weights = base + weights_, r.workspace = base + own_;
    if (!is_gradient(node_)) {
      r.x = in(0), r.y = out(0);
      for (size_t s = 0; s < states; ++s) r.first[s] = in(1 + s), r.last[s] = out(1 + s);
      r.kept = attrs_.kept ? out(1 + states) : nullptr;
      gather(d, ctx, 1 + states, base + weights_);
      return plan_->forward(d, r);
    }
    r.dy = in(0), r.x = in(1 + states), r.y = in(2 + states);
    for (size_t s = 0; s < states; ++s)
      r.dlast[s] = in(1 + s), r.first[s] = in(3 + states + s), r.dfirst[s] = out(1 + s);
    r.dx = out(0), r.dweights = base + dweights_, r.kept = base + kept_;
    if (plan_->kept) d.copy(base + kept_, in(3 + 2 * states), plan_->kept);  // the library writes to it
    gather(d, ctx, 4 + 2 * states, base + weights_);
    d.fill(base + dweights_, 0, plan_->weights);
    plan_->backward(d, r);
    for (const WeightPiece& p : plan_->pieces)
      d.copy(static_cast<char*>(out(1 + states + p.weight)) + p.from, base + dweights_ + p.to, p.bytes);
  }

 private:
  void gather(GpuDevice& d, const RunContext& ctx, size_t first, char* block) const {
    for (const WeightPiece& p : plan_->pieces)
      d.copy(block + p.to, static_cast<const char*>(ctx.bindings[node_.ins[first + p.weight].binding]) + p.from,
             p.bytes);
  }
  Node node_;
  DeviceType type_;
  RecurrentAttrs attrs_;
  std::shared_ptr<const RecurrentPlan> plan_;
  size_t weights_ = 0, dweights_ = 0, kept_ = 0, own_ = 0, bytes_ = 0;  // offsets in the workspace, and its size
};

}  // namespace

int64_t gates_of(RecurrentMode mode) { return mode == RecurrentMode::Lstm ? 4 : mode == RecurrentMode::Gru ? 3 : 1; }

std::vector<WeightPiece> weight_pieces(const RecurrentCase& c, const WeightPlaces& places,
                                       const std::array<int64_t, 4>& order) {
  const RecurrentAttrs& a = c.attrs;
  const auto gates = static_cast<size_t>(gates_of(static_cast<RecurrentMode>(a.mode)));
  const auto hidden = static_cast<size_t>(a.hidden), size = static_cast<size_t>(dtype_size(c.dtype));
  const size_t each = a.biases ? 4 : 2;
  std::vector<WeightPiece> all;
  const auto add = [&](size_t weight, size_t from, size_t to, size_t bytes) {
    if (bytes == 0) return;
    if (!all.empty()) {
      WeightPiece& last = all.back();
      if (last.weight == weight && last.from + last.bytes == from && last.to + last.bytes == to) {
        last.bytes += bytes;
        return;
      }
    }
    all.push_back({weight, from, to, bytes});
  };
  for (size_t layer = 0; layer < static_cast<size_t>(a.layers * a.directions); ++layer)
    for (size_t side = 0; side < 2; ++side) {  // of the input, of the state
      const int64_t columns = side == 1                                   ? a.hidden
                              : layer < static_cast<size_t>(a.directions) ? c.inputs
                                                                          : a.hidden * a.directions;
      const size_t gate_bytes = hidden * static_cast<size_t>(columns) * size;
      for (size_t g = 0; g < gates; ++g)
        add(layer * each + side, static_cast<size_t>(order[g]) * gate_bytes,
            places.matrices[(layer * 2 + side) * gates + g], gate_bytes);
      for (size_t g = 0; g < gates && a.biases; ++g)
        add(layer * each + 2 + side, static_cast<size_t>(order[g]) * hidden * size,
            places.biases[(layer * 2 + side) * gates + g], hidden * size);
    }
  return all;
}

Refusal recurrent_refuses(DeviceType type, int index, const RecurrentCase& c,
                          std::shared_ptr<const RecurrentPlan>* plan) {
  const Vendor& v = vendor(type);
  const RecurrentAttrs& a = c.attrs;
  if (!v.recurrent) return "this device's libraries have no recurrent layers";
  if (!a.any_order)
    return "deterministic algorithms are in use, and libraries do not promise the same bits in every run";
  if (c.steps * c.batch * c.inputs == 0) return "there are no elements";
  for (const int64_t n : {c.steps, c.batch, c.inputs, a.hidden, a.layers})
    if (n > std::numeric_limits<int>::max()) return "a size is too large for libraries";
  struct Known {
    std::shared_ptr<const RecurrentPlan> plan;
    std::string why;
  };
  static std::mutex mutex;
  static auto* known = new std::map<std::vector<int64_t>, Known>;
  std::lock_guard lock(mutex);
  std::vector<int64_t> key = key_of(type, index, c);
  auto it = known->find(key);
  if (it == known->end()) {
    Known made;
    made.plan = v.recurrent(device(type, index), c, &made.why);
    it = known->emplace(std::move(key), std::move(made)).first;
  }
  if (!it->second.plan) return it->second.why;
  if (plan) *plan = it->second.plan;
  return std::nullopt;
}

Refusal recurrent_refuses(const Problem& p) {
  return recurrent_refuses(p.graph.device.type, p.graph.device.index, case_of(p.root()), nullptr);
}
std::unique_ptr<Executable> make_recurrent(const Problem& p) { return std::make_unique<Layers>(p); }

}  // namespace pyflame::gpu
