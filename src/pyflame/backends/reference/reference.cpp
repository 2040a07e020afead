// Runs a group node by node. It has to do explicitly what fused kernels do implicitly: elided values are stored in the
// workspace, and if an output shares memory with an input (in-place ops, donated storage), one of them is buffered.
// Otherwise a later node or element would read what was already overwritten.
#include "pyflame/backends/reference/reference.h"

#include <cstring>
#include <new>

#include "pyflame/backends/reference/access.h"

namespace pyflame {
namespace {

using namespace reference;

using Kernel = void (*)(const Call&);

constexpr Kernel kernel_of_class(OpClass cls) {
  return cls == OpClass::Source ? run_source : cls == OpClass::Reduce ? run_reduce : run_elementwise;
}

constexpr Kernel kKernels[] = {
#define OP(name, cls, ...) kernel_of_class(OpClass::cls),
#define KERNEL(name, ...) run_##name,
#include "pyflame/ops/ops.def"
};

Refusal accepts(const Problem& p) {
  for (size_t i = 0; i < p.size(); ++i) {
    const Node& n = p.node(i);
    if (n.info().floats_only && !n.outs.empty() && !has_gradient(n.outs[0].dtype))
      return fmt::format("{} has no meaning for {}", n.info().name, dtype_name(n.outs[0].dtype));
  }
  return std::nullopt;
}

size_t bytes_of(const Operand& o) { return static_cast<size_t>(extent(o.shape, o.strides) * dtype_size(o.dtype)); }

bool overlap(const char* a, size_t a_bytes, const char* b, size_t b_bytes) {
  return std::less<>()(a, b + b_bytes) && std::less<>()(b, a + a_bytes) && a_bytes > 0 && b_bytes > 0;
}

class Reference final : public Executable {
 public:
  explicit Reference(const Problem& p) : bindings_(p.graph.bindings.size()) {
    Indexed<BindingId, size_t> bytes(bindings_);
    for (size_t i = 0; i < p.size(); ++i) {
      const Node& n = p.node(i);
      nodes_.push_back(n);
      for (const auto* side : {&n.ins, &n.outs})
        for (const Operand& o : *side)
          if (!o.is_param) bytes[o.binding] = std::max(bytes[o.binding], bytes_of(o));
    }
    for (const BindingId b : p.group.elided.ids()) {
      if (!p.group.elided[b] || bytes[b] == 0) continue;
      elided_.push_back({b, workspace_});
      workspace_ += (bytes[b] + 63) / 64 * 64;
    }
    find_hazards(p, bytes);
  }

  size_t workspace() const override { return workspace_; }

  void run(const RunContext& ctx) override {
    try {
      run_nodes(ctx);
    } catch (const std::bad_alloc&) {
      PF_FAIL(OutOfMemory,
              "{}: out of host memory in the reference backend; got output shape {}; expected room for float64 copies",
              nodes_[0].info().name, nodes_[0].outs.empty() ? "()" : nodes_[0].outs[0].shape.str());
    }
  }

 private:
  struct Placed {
    BindingId binding;
    size_t offset;
  };
  // `reads` is read after the node that writes `writes`. They are different storages, but the planner may have given
  // the output the bytes of an input that dies in this group.
  struct Hazard {
    BindingId reads, writes;
    size_t read_bytes, write_bytes;
  };

  void find_hazards(const Problem& p, const Indexed<BindingId, size_t>& bytes) {
    Indexed<BindingId, bool> written(bindings_);
    for (const Node& n : nodes_)
      for (const Operand& o : n.outs) written[o.binding] = true;
    for (size_t i = 0; i < nodes_.size(); ++i)
      for (const Operand& out : nodes_[i].outs)
        for (size_t j = i + 1; j < nodes_.size(); ++j)
          for (const Operand& in : nodes_[j].ins) {
            if (in.is_param || written[in.binding] || !p.group.stores(in) || !p.group.stores(out)) continue;
            if (p.graph.slot(in) != p.graph.slot(out))
              hazards_.push_back({in.binding, out.binding, bytes[in.binding], bytes[out.binding]});
          }
  }

  void run_nodes(const RunContext& ctx) const {
    // One more entry than bindings: the buffer of an output that shares memory with an input.
    Indexed<BindingId, void*> table(bindings_ + 1);
    std::copy_n(ctx.bindings.data(), bindings_, table.begin());
    for (const Placed& e : elided_) table[e.binding] = static_cast<char*>(ctx.workspace) + e.offset;
    std::vector<std::vector<char>> saved;
    for (const Hazard& h : hazards_) {
      const char* from = static_cast<const char*>(table[h.reads]);
      if (!overlap(from, h.read_bytes, static_cast<const char*>(table[h.writes]), h.write_bytes)) continue;
      saved.emplace_back(from, from + h.read_bytes);
      table[h.reads] = saved.back().data();
    }
    for (const Node& n : nodes_) run_node(n, table, ctx.params);
  }

  void run_node(const Node& n, Indexed<BindingId, void*>& table, Params params) const {
    const Kernel kernel = kKernels[static_cast<size_t>(n.op)];
    const Call call{n, table.data(), params};
    if (n.info().cls == OpClass::Other || !overlaps_input(call)) return kernel(call);
    const Operand& out = n.outs[0];
    Node detour = n;
    detour.outs[0].binding = BindingId(bindings_);
    detour.outs[0].strides = contiguous_strides(out.shape);
    std::vector<char> buffer(bytes_of(detour.outs[0]));
    table.back() = buffer.data();
    const Call to_buffer{detour, table.data(), params};
    kernel(to_buffer);
    with_compute_type(out.dtype, [&]<class T>() { write_all(call.out(0), read_all<T>(to_buffer.out(0))); });
  }

  // Elementwise ops may write exactly the elements that they read.
  static bool overlaps_input(const Call& c) {
    const Operand& out = c.node.outs[0];
    const View to = c.view(out);
    for (const Operand& in : c.node.ins) {
      if (in.is_param) continue;
      const View from = c.view(in);
      if (!overlap(from.data, bytes_of(in), to.data, bytes_of(out))) continue;
      const bool same = from.data == to.data && in.shape == out.shape && in.strides == out.strides &&
                        dtype_size(in.dtype) == dtype_size(out.dtype);
      if (!same || !is_elementwise(c.node.info().cls)) return true;
    }
    return false;
  }

  size_t bindings_;
  std::vector<Node> nodes_;
  std::vector<Placed> elided_;
  std::vector<Hazard> hazards_;
  size_t workspace_ = 0;
};

class ReferenceBackend final : public Backend {
 public:
  const char* name() const override { return "reference"; }
  std::span<const Impl> impls(const Problem&) const override { return {&kReferenceImpl, 1}; }
  bool fuses() const override { return false; }
  bool convolves_volumes() const override { return true; }
  bool computes_with_blocks() const override { return true; }
  bool multiplies_float8(int, DType, DType) const override { return true; }
  std::optional<int64_t> recurrent_bytes(int, const RecurrentCase&, std::string*) const override { return 0; }
};

}  // namespace

std::unique_ptr<Executable> make_reference(const Problem& problem) { return std::make_unique<Reference>(problem); }

const Impl kReferenceImpl{"reference", accepts, make_reference};

const Backend& reference_backend() {
  static const auto* backend = new ReferenceBackend;  // leaked: programs compute in exit handlers
  return *backend;
}

}  // namespace pyflame
