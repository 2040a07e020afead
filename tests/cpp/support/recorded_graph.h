// Graphs by hand, as the recorder makes them: for tests of the compiler's passes.
#pragma once
#include <utility>
#include <vector>

#include "pyflame/record/ir.h"

namespace pyflame::testing {

class RecordedGraph {
 public:
  explicit RecordedGraph(DeviceType device = DeviceType::null) { graph.device = {device, 0}; }

  // A tensor that had its bytes before the window began.
  Operand input(const Dims& shape, DType dtype = DType::float32) {
    return strided(shape, contiguous_strides(shape), dtype);
  }
  Operand strided(const Dims& shape, const Dims& strides, DType dtype = DType::float32) {
    const auto nbytes = static_cast<size_t>(extent(shape, strides) * dtype_size(dtype));
    return operand({nbytes, true, true, false}, shape, strides, dtype);
  }
  // The same storage from another byte on.
  Operand view(const Operand& of, const Dims& shape, const Dims& strides) {
    Operand o = of;
    o.binding = graph.bindings.push_back({graph.slot(of)});
    o.shape = shape, o.strides = strides;
    o.contiguous = is_contiguous(shape, strides);
    return o;
  }

  // Nodes whose result nobody sees after the window, unless it is kept.
  Operand op(OpId id, std::vector<Operand> ins, const Dims& shape, DType dtype = DType::float32) {
    return add(id, {}, std::move(ins), result(shape, dtype));
  }
  Operand op(OpId id, std::vector<Operand> ins) {
    const Operand like = ins.at(0);
    return op(id, std::move(ins), like.shape, like.dtype);
  }
  Operand reduce(OpId id, const Operand& in, int64_t axes) {
    Dims shape = in.shape;
    for (int d = 0; d < shape.size(); ++d)
      if (axes >> d & 1) shape[d] = 1;
    return add(id, {axes}, {in}, result(shape, in.dtype));
  }
  Operand into(OpId id, std::vector<Operand> ins, const Operand& out) { return add(id, {}, std::move(ins), out); }
  const Operand& keep(const Operand& o) {
    graph.slots[graph.slot(o)].live = true;
    return o;
  }

  const Node& last() const { return graph.nodes.back(); }
  Graph graph;

 private:
  Operand result(const Dims& shape, DType dtype) {
    return operand({static_cast<size_t>(shape.numel() * dtype_size(dtype)), false, false, false}, shape,
                   contiguous_strides(shape), dtype);
  }
  Operand operand(SlotInfo slot, const Dims& shape, const Dims& strides, DType dtype) {
    Operand o;
    o.binding = graph.bindings.push_back({graph.slots.push_back(slot)});
    o.dtype = dtype, o.shape = shape, o.strides = strides;
    o.contiguous = is_contiguous(shape, strides);
    return o;
  }
  Operand add(OpId id, std::vector<int64_t> attrs, std::vector<Operand> ins, const Operand& out) {
    Node n;
    n.op = id;
    n.attrs = std::move(attrs);
    n.ins = std::move(ins);
    n.outs = {out};
    graph.nodes.push_back(std::move(n));
    return out;
  }
};

}  // namespace pyflame::testing
