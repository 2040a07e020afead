// Linear algebra: LAPACK (backends/lapack) on the operands where they are.
#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/lapack/lapack.h"

namespace pyflame::cpu {

namespace {

class Lapack final : public Executable {
 public:
  explicit Lapack(const Node& node) : node_(node) {}
  void run(const RunContext& ctx) override {
    std::vector<void*> ins, outs;
    for (const Operand& o : node_.ins)
      if (!o.is_param) ins.push_back(ctx.bindings[o.binding]);
    for (const Operand& o : node_.outs) outs.push_back(ctx.bindings[o.binding]);
    lapack::run(node_, node_.ins[0].dtype, ins.data(), outs.data(), ctx.params);
  }

 private:
  Node node_;
};

Refusal accept_lapack(const Problem& p) { return accept_single(p); }
std::unique_ptr<Executable> make_lapack(const Problem& p) { return std::make_unique<Lapack>(p.root()); }

constexpr Impl kLapack{"cpu.lapack", accept_lapack, make_lapack};

}  // namespace

#define OP(...)
#define LINALG(name, ...) \
  std::span<const Impl> name##_impls() { return {&kLapack, 1}; }
#include "pyflame/ops/ops.def"

}  // namespace pyflame::cpu
