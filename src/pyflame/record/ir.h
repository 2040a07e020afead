// The graph of a window, which all code behind the recorder sees: nodes have operands, operands have bindings, bindings have slots.
//
//   slot      one Storage that the window uses
//   binding   a (slot, byte offset) pair; its pointer is a run-time value, so a slice offset is never part of a cache key.
//             Operands with the same binding start at the same address; two bindings of one slot must be assumed to overlap.
//   param     a number that may differ per call: a run-time value as well
//
// Nodes are in program order; node i may read what earlier nodes wrote. In-place ops write a binding that existed before.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "pyflame/base/indexed.h"
#include "pyflame/base/location.h"
#include "pyflame/ops/op.h"
#include "pyflame/tensor/device.h"
#include "pyflame/tensor/dims.h"
#include "pyflame/tensor/dtype.h"
#include "pyflame/tensor/layout.h"

namespace pyflame {

using NodeId = Id<struct NodeTag>;
using SlotId = Id<struct SlotTag>;
using BindingId = Id<struct BindingTag>;
using ParamId = Id<struct ParamTag>;

// A run-time number. Integer-kind params are exact int64, others are doubles; readers convert.
struct Param {
  Category kind = Category::Float;
  union {
    double f;
    int64_t i;
  };
  Param() : f(0) {}
  Param(const Scalar& s) : kind(s.kind) {
    if (s.kind == Category::Float) f = s.f;
    else i = s.i;
  }
  double as_f64() const { return kind == Category::Float ? f : static_cast<double>(i); }
  int64_t as_i64() const { return kind == Category::Float ? static_cast<int64_t>(f) : i; }
};

using Params = IndexedView<ParamId, const Param>;

struct Operand {
  bool is_param = false;
  bool contiguous = true;
  DType dtype = DType::float32;  // of a param: the dtype in which the op uses the number
  BindingId binding;             // of a tensor
  ParamId param;                 // of a param
  Dims shape, strides;           // strides in elements; empty for a param
  int64_t numel() const { return shape.numel(); }
  size_t nbytes() const { return static_cast<size_t>(numel() * dtype_size(dtype)); }
};

inline bool has_format(const Operand& o, MemoryFormat format) { return has_format(o.shape, o.strides, format); }
// Whether the operand is channels-last and not contiguous as well.
inline bool is_channels_last(const Operand& o) {
  return !o.is_param && !o.contiguous && has_format(o, MemoryFormat::channels_last);
}
// The same images (N, C, H, W) with their dims in the order N, H, W, C.
inline Operand as_nhwc(Operand o) {
  o.shape = nhwc(o.shape);
  o.strides = nhwc(o.strides);
  o.contiguous = is_contiguous(o.shape, o.strides);
  return o;
}
// Channels-last images as NHWC, and every other operand as it is, so that loops over the dims run through memory in order.
inline Operand in_memory_order(const Operand& o) { return is_channels_last(o) ? as_nhwc(o) : o; }

struct Node {
  OpId op{};
  std::vector<int64_t> attrs;  // the words of the attribute struct
  std::vector<Operand> ins;    // tensor inputs first, then params
  std::vector<Operand> outs;
  SourceLoc loc;
  template <class A>
  A attr() const {
    A a{};
    std::copy(attrs.begin(), attrs.end(), reinterpret_cast<int64_t*>(&a));
    return a;
  }
  const OpInfo& info() const { return op_info(op); }
};

struct SlotInfo {
  size_t nbytes = 0;
  bool external = true;    // had its bytes before the window began
  bool live = true;        // a handle outside the window refers to it after the window
  bool donatable = false;  // external, not live, and our own memory: its bytes may be reused
};

struct BindingInfo {
  SlotId slot;
};

struct Graph {
  Device device;
  Indexed<NodeId, Node> nodes;
  Indexed<SlotId, SlotInfo> slots;
  Indexed<BindingId, BindingInfo> bindings;
  int32_t params = 0;

  // Of an operand that is no param.
  SlotId slot(const Operand& o) const { return bindings[o.binding].slot; }
  const SlotInfo& slot_info(const Operand& o) const { return slots[slot(o)]; }
  bool covers_slot(const Operand& o) const { return o.nbytes() == slot_info(o).nbytes; }
};

}  // namespace pyflame
