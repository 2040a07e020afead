// Linear algebra is LAPACK's in float64, too: loops of our own would be longer than what they check. The case tables compare the products of
// the factors with the matrix.
#include "pyflame/backends/lapack/lapack.h"
#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {

namespace {
void run_lapack(const Call& c) {
  std::vector<void*> ins, outs;
  for (int i = 0; i < c.tensors(); ++i) ins.push_back(c.in(i).data);
  for (int i = 0; i < c.outputs(); ++i) outs.push_back(c.out(i).data);
  lapack::run(c.node, is_complex(c.node.ins[0].dtype) ? DType::complex128 : DType::float64, ins.data(), outs.data(),
              c.params);
}
}  // namespace

#define OP(...)
#define LINALG(name, ...) \
  void run_##name(const Call& c) { run_lapack(c); }
#include "pyflame/ops/ops.def"

}  // namespace pyflame::reference
