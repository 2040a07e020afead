// Decides for which steps there is an oracle, and runs the reference implementation with copies of their operands.
#include "pyflame/runtime/oracle.h"

#include <cmath>
#include <cstring>

#include "pyflame/compile/work.h"
#include "pyflame/ops/helpers.h"

namespace pyflame {

namespace {

// The reference computes 1e8 operations, or reads and writes so many bytes one by one, in less than a second.
constexpr double kMostFlops = 1e8;
constexpr int64_t kMostBytes = int64_t{16} << 20;

bool is_short(const GroupWork& w) {
  const bool multiplies = w.kind == Work::Gemm || w.kind == Work::Convolution || w.kind == Work::Attention;
  return w.bytes <= kMostBytes && w.kind != Work::Other && w.flops <= kMostFlops && (w.flops > 0 || !multiplies);
}

// Whether the node's results follow from its inputs but for rounding, and the reference rounds less than others: it computes in float64. Sums of products
// in other types have bounds of their own.
// Whole numbers that come of floats may jump where these round; a layer of the vendors' libraries stores what only they understand; matrix
// cores add products of 8-bit floats coarsely; and some attributes allow inputs to be rounded, or rows to be left out.
bool is_defined(const Node& n) {
  for (const Operand& o : n.outs)
    if (o.dtype != DType::float32) return false;
  for (const Operand& o : n.ins)
    if (!o.is_param && is_float(o.dtype) && o.dtype != DType::float32) return false;
  switch (n.op) {
    case OpId::recurrent:
    case OpId::recurrent_grad:
    case OpId::scaled_mm: return false;
    case OpId::matmul: return n.attr<MatmulAttrs>().precision == static_cast<int64_t>(MatmulPrecision::highest);
    case OpId::conv2d:
    case OpId::conv2d_grad_input:
    case OpId::conv2d_grad_weight: return !n.attr<ConvAttrs>().rounded;
    case OpId::attention: return !n.attr<AttentionAttrs>().padding;
    default: return true;
  }
}

// Of one product or convolution alone. In float32 what the inputs' last bits change tells what is allowed.
std::optional<SumOfProducts> own_bounds(const Problem& p) {
  const std::optional<SumOfProducts> sum = p.size() == 1 ? sum_of_products(p.root()) : std::nullopt;
  return sum && sum->dtype != DType::float32 && sum->coarse == 0 ? sum : std::nullopt;
}

// Changes the last bit of about half of the elements.
void disturb(std::vector<char>& bytes, DType) {
  uint32_t state = 1;
  for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(float));
    state = state * 1664525u + 1013904223u;  // a linear congruential generator: its upper bits are random enough
    if (state >> 31 && std::isfinite(value)) bytes[at] = static_cast<char>(bytes[at] ^ 1);
  }
}

// Clears the signs. The upper bit of the last byte of each element is its sign.
void make_absolute(std::vector<char>& bytes, DType dtype) {
  const auto size = static_cast<size_t>(dtype_size(dtype));
  for (size_t at = size - 1; at < bytes.size(); at += size) bytes[at] = static_cast<char>(bytes[at] & 0x7f);
}

}  // namespace

std::optional<Oracle> Oracle::of(const Frame& f, size_t k) {
  const Step& step = f.program.steps[k];
  const Problem problem{f.program.graph, step.group};
  const Backend* backend = find_backend(DeviceType::reference);
  if (!backend || !is_short(work_of(problem.graph, problem.group))) return std::nullopt;
  size_t bytes = 0;
  for (const SlotId s : step.reads) bytes += f.program.graph.slots[s].nbytes;
  if (bytes > static_cast<size_t>(4 * kMostBytes)) return std::nullopt;  // they are copied as a whole
  const std::optional<SumOfProducts> sum = own_bounds(problem);
  for (size_t i = 0; i < problem.size() && !sum; ++i)
    if (!is_defined(problem.node(i))) return std::nullopt;
  const Impl& impl = backend->impls(problem).back();
  if (impl.accepts(problem)) return std::nullopt;
  return Oracle(f, k, impl.make(problem), sum);
}

Oracle::Oracle(const Frame& f, size_t k, std::shared_ptr<Executable> executable, std::optional<SumOfProducts> sum)
    : frame_(&f), k_(k), executable_(std::move(executable)), sum_(sum), inputs_(f.program.graph.slots.size()) {
  for (const SlotId s : f.program.steps[k].reads) {
    if (!f.bases[s]) continue;
    std::vector<char>& to = inputs_[s];
    to.resize(f.program.graph.slots[s].nbytes);
    if (f.memory) f.memory->to_host(to.data(), f.bases[s], to.size());
    else if (!to.empty()) std::memcpy(to.data(), f.bases[s], to.size());
  }
}

std::vector<char> Oracle::changed(const std::vector<SlotId>& slots, DType dtype,
                                  void (*change)(std::vector<char>&, DType)) {
  Bytes memory = inputs_;
  const Problem problem{frame_->program.graph, frame_->program.steps[k_].group};
  Indexed<SlotId, bool> done(memory.size());
  for (size_t i = 0; i < problem.size(); ++i)
    for (const Operand& o : problem.node(i).ins) {
      if (o.is_param || o.dtype != dtype) continue;
      const SlotId slot = problem.graph.slot(o);
      if (memory[slot].empty() || done[slot]) continue;
      done[slot] = true;
      change(memory[slot], dtype);
    }
  return run(slots, std::move(memory));
}

std::vector<char> Oracle::nearby(const std::vector<SlotId>& slots) { return changed(slots, DType::float32, disturb); }

std::vector<char> Oracle::magnitudes(const std::vector<SlotId>& slots) {
  return changed(slots, sum_->dtype, make_absolute);
}

std::vector<char> Oracle::run(const std::vector<SlotId>& slots, Bytes memory) const {
  const Graph& g = frame_->program.graph;
  for (const SlotId s : frame_->program.steps[k_].writes)
    if (memory[s].empty()) memory[s].assign(g.slots[s].nbytes, static_cast<char>(0xff));
  Indexed<BindingId, void*> pointers(g.bindings.size());
  for (const BindingId b : g.bindings.ids()) {
    const SlotId s = g.bindings[b].slot;
    if (frame_->pointers[b] && frame_->bases[s] && !memory[s].empty())
      pointers[b] = memory[s].data() + (static_cast<char*>(frame_->pointers[b]) - frame_->bases[s]);
  }
  std::vector<char> workspace(executable_->workspace());
  executable_->run({pointers.data(), frame_->window.params.data(), workspace.data()});
  std::vector<char> bytes;
  for (const SlotId s : slots) bytes.insert(bytes.end(), memory[s].begin(), memory[s].end());
  return bytes;
}

}  // namespace pyflame
