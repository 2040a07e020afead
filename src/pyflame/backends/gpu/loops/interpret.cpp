// Translates a group to the interpreter's program and runs it.
#include "pyflame/backends/gpu/loops/interpret.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/backends/gpu/loops/loop_text.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/loop/interpret_args.h"

namespace pyflame::gpu {

namespace {

using pf::Instruction, pf::Interpreted;
using pf::kRegisters, pf::kMostInstructions, pf::kMostOperands, pf::kMostParams, pf::kMostDims;
constexpr auto kLoad = Instruction::kLoad, kStore = Instruction::kStore, kReal = Instruction::kReal,
               kInteger = Instruction::kInteger, kOp = Instruction::kOp;
using Kind = Instruction::Kind;
static_assert(static_cast<int>(DType::float64) == 0 && static_cast<int>(DType::float32) == 1 &&
                  static_cast<int>(DType::int64) == 4 && static_cast<int>(DType::bool_) == 9,
              "PF_STORED_TYPES");
static_assert(kNumOps <= 256, "an instruction's op");

// Integer division is rare, so it is left out. Ops without tensor inputs depend on the order of the space; only `full` does not.
bool interpretable(const Node& n) {
  if (n.info().bits_kept || n.info().gpu_cost >= kLarge) return false;
  switch (n.info().cls) {
    case OpClass::Source: return !n.info().index_matters;
    case OpClass::Unary:
    case OpClass::Binary:
    case OpClass::Ternary: break;
    default: return false;
  }
  const bool integers = !is_float(n.ins[n.op == OpId::where ? 1 : 0].dtype) && !is_float(n.outs[0].dtype);
  return !(integers && (n.info().may_fail || n.info().floats_only));
}

class Encoder {
 public:
  explicit Encoder(const Problem& p) : p_(p), g_(p), e_(p, nullptr), last_(p.size(), 0) {}

  bool encode() {
    for (size_t i = 0; i < p_.size(); ++i) {
      if (p_.group.roles[i] != Role::Map || !interpretable(p_.node(i))) return false;
      for (const Operand& o : p_.node(i).ins) note_kind(o.dtype);
      note_kind(p_.node(i).outs[0].dtype);
    }
    if (double_) return false;  // the functions for float64 are too large for a kernel that contains all of them
    for (size_t i = 0; i < p_.size(); ++i)
      for (const Operand& o : p_.node(i).ins)
        if (const int w = o.is_param ? -1 : e_.writer(i, o.binding); w >= 0) last_[static_cast<size_t>(w)] = i;
    std::vector<int> order(static_cast<size_t>(p_.group.space.size()));
    std::iota(order.begin(), order.end(), 0);
    dims_ = g_.merged(order);
    if (dims_.size() > kMostDims || g_.accesses().size() > kMostOperands) return false;
    for (size_t i = 0; i < p_.size() && ok_; ++i) node(i);
    if (!ok_ || code.size() > kMostInstructions || params.size() > kMostParams) return false;
    Interpreted& r = result;
    r.n = p_.group.space.numel();
    r.dims = static_cast<int32_t>(dims_.size());
    for (size_t d = 0; d < dims_.size(); ++d) {
      r.sizes[d] = dims_[d].size;
      for (size_t a = 0; a < g_.accesses().size(); ++a) r.strides[a][d] = dims_[d].strides[a];
    }
    for (const Access& a : g_.accesses()) bindings.push_back(a.binding);
    std::copy(code.begin(), code.end(), r.code);
    r.instructions = static_cast<int32_t>(code.size());
    return true;
  }

  Interpreted result;
  std::vector<Instruction> code;
  std::vector<BindingId> bindings;
  std::vector<Expressions::ParamUse> params;

 private:
  void note_kind(DType d) { double_ |= d == DType::float64; }
  static uint8_t stored(DType d) { return static_cast<uint8_t>(d); }

  uint8_t take() {
    for (uint8_t r = 0; r < kRegisters; ++r)
      if (!(busy_ >> r & 1)) {
        busy_ |= 1u << r;
        return r;
      }
    ok_ = false;
    return 0;
  }

  // The register of an input, converted to float or integer as the op needs it. `mine`: the register is free after the
  // op.
  uint8_t input(size_t i, const Operand& o, bool integers, std::vector<uint8_t>& mine) {
    uint8_t r;
    const int w = o.is_param ? -1 : e_.writer(i, o.binding);
    if (w >= 0) {
      r = of_node_[static_cast<size_t>(w)];
    } else {
      r = take();
      mine.push_back(r);
      if (o.is_param) {
        const bool real = is_float(o.dtype);
        code.push_back({real ? kReal : kInteger, 0, 0, stored(o.dtype), r, 0, static_cast<uint8_t>(params.size()), 0});
        params.push_back({o.param, real});
      } else {
        code.push_back({kLoad, 0, 0, stored(o.dtype), r, 0, static_cast<uint8_t>(g_.access(o)), 0});
      }
    }
    if (is_float(o.dtype) == !integers) return r;
    ok_ &= !integers;  // a float becomes an integer only in a cast, which computes in float
    const uint8_t converted = take();
    mine.push_back(converted);
    code.push_back({kOp, static_cast<uint8_t>(OpId::cast), 1, stored(DType::float32), converted, r, 0, 0});
    return converted;
  }

  void node(size_t i) {
    const Node& n = p_.node(i);
    const DType out = n.outs[0].dtype;
    std::vector<uint8_t> mine;
    uint8_t to;
    if (n.op == OpId::full) {
      to = input(i, n.ins[0], !is_float(out), mine);
      std::erase(mine, to);
    } else {
      const DType decides = n.ins[n.op == OpId::where ? 1 : 0].dtype;
      const bool integers = !is_float(decides) && (!is_float(out) || n.op == OpId::cast);
      uint8_t in[3] = {};
      for (size_t k = 0; k < n.ins.size() && k < 3; ++k)
        in[k] = input(i, n.ins[k], n.op == OpId::where && k == 0 ? true : integers, mine);
      to = take();
      code.push_back({kOp, static_cast<uint8_t>(n.op), integers, stored(out), to, in[0], in[1], in[2]});
    }
    of_node_.push_back(to);
    if (e_.stored(i)) code.push_back({kStore, 0, 0, stored(out), 0, to, static_cast<uint8_t>(g_.access(n.outs[0])), 0});
    for (const uint8_t r : mine) busy_ &= ~(1u << r);
    for (size_t j = 0; j <= i; ++j)
      if (std::max(last_[j], j) == i) busy_ &= ~(1u << of_node_[j]);
  }

  const Problem& p_;
  Geometry g_;
  Expressions e_;
  std::vector<size_t> last_;  // per node: the last node that reads it
  std::vector<Dim> dims_;
  std::vector<uint8_t> of_node_;
  uint32_t busy_ = 0;
  bool double_ = false, ok_ = true;
};

class Interpretation final : public Interpreter {
 public:
  Interpretation(DeviceType type, Encoder e)
      : program_(e.result),
        bindings_(std::move(e.bindings)),
        params_(std::move(e.params)),
        kernel_(type, kGroupThreads, interpreter_source()) {}
  bool ready(int device_index) const override { return kernel_.ready(device_index); }
  void run(const RunContext& ctx) override {
    for (size_t i = 0; i < bindings_.size(); ++i) program_.pointers[i] = ctx.bindings[bindings_[i]];
    for (size_t i = 0; i < params_.size(); ++i) program_.params[i] = params_[i].bits(ctx.params);
    kernel_.launch(ctx.device, {groups_for(program_.n, kGroupThreads), 1, 1}, program_);
  }

 private:
  Interpreted program_;
  std::vector<BindingId> bindings_;
  std::vector<Expressions::ParamUse> params_;
  Kernel kernel_;
};

}  // namespace

std::string interpreter_source() {
  // The switch over ops, made from the op table.
  std::string reals, integers;
  for (int k = 0; k < kNumOps; ++k) {
    const auto op = static_cast<OpId>(k);
    const OpInfo& info = op_info(op);
    const bool unary = info.cls == OpClass::Unary, binary = info.cls == OpClass::Binary;
    if (op == OpId::where) {
      for (auto* text : {&reals, &integers})
        *text += fmt::format("        case {}: y = pf::where<T>((pf::u8)a.i, {}); break;\n", k,
                             text == &reals ? "b.f, c.f" : "b.i, c.i");
      continue;
    }
    if ((!unary && !binary) || info.bits_kept || info.gpu_cost >= kLarge) continue;
    const int takes = info.arity + info.param_count;
    const auto call = [&](const char* field) {
      std::string arguments;
      for (int j = 0; j < takes; ++j) arguments += fmt::format("{}{}.{}", j ? ", " : "", "abc"[j], field);
      return fmt::format("pf::{}<T>({})", op_name(op), arguments);
    };
    const bool truth = info.bool_result;
    if (!info.integers_only)
      reals += truth ? fmt::format("        case {}: truth = true, z = {}; break;\n", k, call("f"))
                     : fmt::format("        case {}: y = {}; break;\n", k, call("f"));
    if (info.floats_only || info.may_fail) continue;
    integers += fmt::format("        case {}: y = {}{}; break;\n", k, truth ? "(pf::i64)" : "", call("i"));
  }
  const std::string body = fmt::format(
      "(pf::Interpreted p) {{\n  PF_SHARED pf::Register registers[pf::kRegisters * 256];\n"
      "  pf::Register* const mine = registers + pf::thread();\n"
      "  for (pf::i64 i = pf::group().x * 256ll + pf::thread(); i < p.n; i += pf::groups().x * 256ll)\n"
      "    for (int k = 0; k < p.instructions; ++k) {{\n      const pf::Instruction in = p.code[k];\n"
      "      if (in.kind == pf::Instruction::kLoad) {{\n"
      "        mine[in.to * 256] = pf::read(in.stored, p.pointers[in.b], p.offset(in.b, i));\n        continue;\n   "
      "   }}\n"
      "      if (in.kind == pf::Instruction::kStore) {{\n"
      "        pf::write(in.stored, p.pointers[in.b], p.offset(in.b, i), mine[in.a * 256]);\n        continue;\n    "
      "  }}\n"
      "      if (in.kind == pf::Instruction::kReal) {{\n"
      "        mine[in.to * 256] = pf::rounded(in.stored, pf::double_of_bits(p.params[in.b]));\n        continue;\n "
      "     }}\n"
      "      if (in.kind == pf::Instruction::kInteger) {{\n"
      "        mine[in.to * 256] = pf::rounded(in.stored, (pf::i64)p.params[in.b]);\n        continue;\n      }}\n"
      "      const pf::Register a = mine[in.a * 256], b = mine[in.b * 256], c = mine[in.c * 256];\n"
      "      if (in.integers) {{\n        typedef pf::i64 T;\n        T y = 0;\n        switch (in.op) {{\n{}        "
      "}}\n"
      "        mine[in.to * 256] = pf::rounded(in.stored, y);\n        continue;\n      }}\n"
      "      typedef float T;\n      T y = 0;\n      bool truth = false;\n      pf::u8 z = 0;\n      switch (in.op) "
      "{{\n{} "
      "     }}\n"
      "      mine[in.to * 256] = truth ? pf::rounded(in.stored, (pf::i64)z) : pf::rounded(in.stored, y);\n    "
      "}}\n}}",
      integers, reals);
  return kernel_source({"device/divider.h", "loop/loop.h", "loop/interpret.h"}, kGroupThreads, body);
}

std::unique_ptr<Interpreter> interpreter(const Problem& p) {
  if (p.group.space.numel() == 0) return nullptr;
  Encoder e(p);
  if (!e.encode()) return nullptr;
  return std::make_unique<Interpretation>(p.graph.device.type, std::move(e));
}

}  // namespace pyflame::gpu
