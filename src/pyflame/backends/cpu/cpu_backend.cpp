// The CPU backend: the list of implementations for every kind of group, best first. The reference takes what no other
// implementation accepts.
#include <array>
#include <vector>

#include "pyflame/backends/cpu/cpu_backend.h"

#include "pyflame/backends/cpu/attention.h"
#include "pyflame/backends/cpu/conv.h"
#include "pyflame/backends/cpu/indexing.h"
#include "pyflame/backends/cpu/matmul.h"
#include "pyflame/backends/cpu/optim.h"
#include "pyflame/backends/cpu/order.h"
#include "pyflame/backends/cpu/pool.h"
#include "pyflame/backends/cpu/rows.h"
#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/reference/reference.h"

namespace pyflame {

namespace {

using namespace cpu;

std::vector<Impl> impls_of(OpId op) {
  switch (op) {
    case OpId::matmul:
      return {{"cpu.gemv", accept_gemv, make_gemv},
              {"onednn.sgemm", accept_matmul_float32, make_matmul},
              {"openblas.dgemm", accept_matmul_float64, make_matmul},
              {"cpu.matmul_integer", accept_matmul_integer, make_matmul_integer}};
    case OpId::conv2d:
      return {{"onednn.conv", accept_dnn_conv, make_dnn_conv}, {"cpu.conv_unfold", accept_conv, make_conv}};
    case OpId::conv2d_grad_input:
      return {{"onednn.conv", accept_dnn_grad_input, make_dnn_grad_input},
              {"cpu.conv_unfold", accept_conv, make_conv_grad_input}};
    case OpId::conv2d_grad_weight:
      return {{"onednn.conv", accept_dnn_grad_weight, make_dnn_grad_weight},
              {"cpu.conv_unfold", accept_conv, make_conv_grad_weight}};
    case OpId::max_pool2d: return {{"cpu.pool", accept_pool, make_max_pool}};
    case OpId::max_pool2d_grad: return {{"cpu.pool", accept_pool, make_max_pool_grad}};
    case OpId::avg_pool2d: return {{"cpu.pool", accept_pool, make_avg_pool}};
    case OpId::avg_pool2d_grad: return {{"cpu.pool", accept_pool, make_avg_pool_grad}};
    case OpId::softmax:
    case OpId::log_softmax: return {{"cpu.softmax", accept_float, make_softmax}};
    case OpId::layer_norm:
    case OpId::rms_norm: return {{"cpu.norm", accept_float, make_norm}};
    case OpId::layer_norm_grad:
    case OpId::rms_norm_grad: return {{"cpu.norm", accept_norm_grad, make_norm_grad}};
    case OpId::attention:
    case OpId::varlen_attn: return {{"cpu.attention", accept_attention, make_attention}};
    case OpId::attention_grad:
    case OpId::varlen_attn_grad: return {{"cpu.attention", accept_attention, make_attention_grad}};
    case OpId::argmax:
    case OpId::argmin: return {{"cpu.arg_reduce", accept_order, make_arg_reduce}};
    case OpId::gather: return {{"cpu.gather", accept_indexed_copy, make_gather}};
    case OpId::index_select: return {{"cpu.gather", accept_indexed_copy, make_index_select}};
    case OpId::scatter_add: return {{"cpu.index_add", accept_index_add, make_scatter_add}};
    case OpId::index_add: return {{"cpu.index_add", accept_index_add, make_index_add}};
    case OpId::topk: return {{"cpu.sort", accept_order, make_topk}};
    case OpId::sort: return {{"cpu.sort", accept_order, make_sort}};
    case OpId::nll_loss: return {{"cpu.nll", accept_float, make_nll}};
    case OpId::nll_loss_grad: return {{"cpu.nll", accept_float, make_nll_grad}};
    case OpId::cross_entropy: return {{"cpu.cross_entropy", accept_float, make_cross_entropy}};
    case OpId::cross_entropy_grad: return {{"cpu.cross_entropy", accept_cross_entropy_grad, make_cross_entropy_grad}};
    case OpId::sgd_step: return {{"cpu.update", accept_update, make_sgd}};
    case OpId::adam_step: return {{"cpu.update", accept_update, make_adam}};
    case OpId::sum_squares: return {{"cpu.update", accept_update, make_sum_squares}};
    case OpId::scale_all: return {{"cpu.update", accept_update, make_scale_all}};
    default: return {};  // randperm: a second implementation of sorting 64-bit keys is not worth it
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend() {
    for (int i = 0; i < kNumOps; ++i) {
      lists_[static_cast<size_t>(i)] = impls_of(static_cast<OpId>(i));
      lists_[static_cast<size_t>(i)].push_back(kReferenceImpl);
    }
    loop_ = {{"cpu.tile", tile_accepts, tile_make}, kReferenceImpl};
  }
  const char* name() const override { return "cpu"; }
  std::span<const Impl> impls(const Problem& p) const override {
    if (p.group.kind == GroupKind::Loop) return loop_;
    return lists_[static_cast<size_t>(p.root().op)];
  }

 private:
  std::array<std::vector<Impl>, static_cast<size_t>(kNumOps)> lists_;
  std::vector<Impl> loop_;
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace pyflame
