// Kernels of the user's: their table and their op.
#include "pyflame/ops/user_kernel.h"

#include <deque>
#include <limits>
#include <mutex>

#include "pyflame/base/fork.h"
#include "pyflame/ops/family.h"

namespace pyflame {

namespace {

std::mutex g_mutex;
std::deque<UserKernel>& table() {  // of the whole process: programs refer to them by number
  static auto* all = new std::deque<UserKernel>;
  return *all;
}
const AtFork g_user_kernels_at_fork{ForkOrder::UserKernels, [] { g_mutex.lock(); }, [](bool) { g_mutex.unlock(); }};

}  // namespace

int64_t register_user_kernel(UserKernel kernel) {
  std::lock_guard lock(g_mutex);
  std::deque<UserKernel>& all = table();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] == kernel) return static_cast<int64_t>(i);
  all.push_back(std::move(kernel));
  return static_cast<int64_t>(all.size()) - 1;
}

const UserKernel& user_kernel(int64_t number) {
  std::lock_guard lock(g_mutex);
  return table().at(static_cast<size_t>(number));  // a deque does not move its elements
}

std::vector<Tensor> launch_user_kernel(int64_t number, std::span<const Tensor> inputs, std::span<const Scalar> scalars,
                                       std::span<const OutSpec> outs, std::array<int64_t, 3> groups, int64_t shared,
                                       std::span<const Tensor> into) {
  const UserKernel& kernel = user_kernel(number);
  const char* op = kernel.name.c_str();
  for (const Tensor& t : inputs) {
    PF_CHECK(t.device() == inputs[0].device(), Value,
             "{}: the inputs are on different devices; got {} and {}; expected one; hint: move them with .to(device)",
             op, inputs[0].device().str(), t.device().str());
    PF_CHECK(!is_complex(t.dtype()), Type,
             "{}: complex numbers are not available; got {}; expected real ones; hint: view_as_real", op,
             dtype_name(t.dtype()));
  }
  const std::array<int64_t, 3> most = {std::numeric_limits<int32_t>::max(), 65535, 65535};
  for (size_t i = 0; i < 3; ++i)
    PF_CHECK(groups[i] >= 0 && groups[i] <= most[i], Value,
             "{}: the grid is too large; got {} workgroups in dim {}; expected 0 to {}", op, groups[i], i, most[i]);
  std::vector<Tensor> kept;  // arguments do not keep tensors alive
  kept.reserve(inputs.size());
  for (const Tensor& t : inputs) kept.push_back(contiguous(t));
  std::vector<Arg> args(kept.begin(), kept.end());
  for (const Tensor& t : into) args.emplace_back(t);  // what is in them matters
  for (size_t i = 0; i < scalars.size(); ++i)
    args.emplace_back(scalars[i], is_float(kernel.scalar_types[i]) ? DType::float64 : DType::int64);
  const UserKernelAttrs attrs{number, groups[0], groups[1], groups[2], shared};
  if (into.empty()) return emit_many(OpId::user_kernel, args, outs, attrs);
  emit_into(OpId::user_kernel, args, into, attrs);
  return {into.begin(), into.end()};
}

std::string shown_name(OpId op, std::span<const int64_t> attrs) {
  return op == OpId::user_kernel && !attrs.empty() ? user_kernel(attrs[0]).name : op_name(op);
}

}  // namespace pyflame
