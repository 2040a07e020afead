// One node (or a root with elementwise nodes behind it) run by the CPU backend's choice and by the reference backend, and
// the comparison of the two: c * eps * growth, sentinels around the outputs included. For the tests of the CPU kernels.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "pyflame/backends/cpu/cpu_backend.h"
#include "pyflame/backends/reference/reference.h"
#include "pyflame/base/threads.h"

namespace pyflame {
namespace {

// A tensor with its own memory, possibly strided and offset.
struct Array {
  DType dtype = DType::float32;
  Dims shape, strides;
  int64_t offset = 0;
  std::vector<double> memory;  // over the whole extent, sentinels included

  static Array make(DType dtype, Dims shape, const std::function<double(int64_t)>& value) {
    return strided(dtype, shape, contiguous_strides(shape), 0, value);
  }
  static Array strided(DType dtype, Dims shape, Dims strides, int64_t offset,
                       const std::function<double(int64_t)>& value) {
    Array a;
    a.dtype = dtype, a.shape = shape, a.strides = strides, a.offset = offset;
    const int64_t n = (shape.numel() ? extent(shape, strides) : 0) + offset + 16;
    for (int64_t i = 0; i < n; ++i) a.memory.push_back(value(i));
    return a;
  }
  // The same numbers as seen with two dims exchanged.
  Array transposed(int a, int b) const {
    Array r = *this;
    std::swap(r.shape[a], r.shape[b]);
    std::swap(r.strides[a], r.strides[b]);
    return r;
  }
};

double noise(int64_t i) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u + 0x1234567;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1;  // [-1, 1)
}

std::vector<char> encode(DType dtype, const std::vector<double>& values) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(dtype_size(dtype)));
  dispatch(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      T v;
      if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) v = T(static_cast<float>(values[i]));
      else v = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
    }
  });
  return bytes;
}

std::vector<double> decode(DType dtype, const std::vector<char>& bytes) {
  std::vector<double> values(bytes.size() / static_cast<size_t>(dtype_size(dtype)));
  dispatch(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      T v;
      std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) values[i] = static_cast<float>(v);
      else values[i] = static_cast<double>(v);
    }
  });
  return values;
}

double eps_of(DType d) {
  switch (d) {
    case DType::float64: return 0x1p-52;
    case DType::float32: return 0x1p-23;
    case DType::float16: return 0x1p-10;
    case DType::bfloat16: return 0x1p-7;
    default: return 0;
  }
}

struct Case {
  OpId op{};
  std::vector<int64_t> attrs;
  std::vector<Array> ins;
  std::vector<Scalar> params;
  std::vector<Array> outs;    // memory holds sentinels
  std::vector<int> in_place;  // output i is input in_place[i]
  double growth = 1;          // length of the longest sum
  double c = 4;
  double eps = 0;  // 0: of each output's dtype
};

struct Result {
  std::string impl;
  std::vector<std::vector<double>> outs;  // whole memory of each output
};

Result run(const Case& t, bool reference) {
  Graph graph;
  Node node;
  node.op = t.op;
  node.attrs = t.attrs;
  Indexed<BindingId, std::vector<char>> memory;
  std::vector<void*> bindings;
  const auto bind = [&](const Array& a) {
    Operand o;
    o.dtype = a.dtype, o.shape = a.shape, o.strides = a.strides;
    o.contiguous = is_contiguous(a.shape, a.strides);
    o.binding = memory.push_back(encode(a.dtype, a.memory));
    graph.bindings.push_back({graph.slots.push_back({memory.back().size(), true, true, false})});
    return o;
  };
  for (const Array& a : t.ins) node.ins.push_back(bind(a));
  std::vector<Param> params(t.params.begin(), t.params.end());
  for (size_t i = 0; i < params.size(); ++i) {
    Operand o;
    o.is_param = true;
    o.dtype = DType::float64;
    o.param = ParamId(i);
    node.ins.push_back(o);
  }
  for (size_t i = 0; i < t.outs.size(); ++i)
    node.outs.push_back(t.in_place.empty() ? bind(t.outs[i]) : node.ins[static_cast<size_t>(t.in_place[i])]);
  graph.nodes.push_back(node);
  graph.params = static_cast<int32_t>(params.size());
  Group group;
  group.nodes = {NodeId(0)};
  group.elided.assign(memory.size(), false);
  const Problem problem{graph, group};
  const Impl* impl = &kReferenceImpl;
  if (!reference)
    for (const Impl& i : cpu_backend().impls(problem))
      if (!i.accepts(problem)) {
        impl = &i;
        break;
      }
  const auto arrays = [&](size_t i) -> const Array& { return i < t.ins.size() ? t.ins[i] : t.outs[i - t.ins.size()]; };
  for (const BindingId b : memory.ids()) {
    const Array& a = arrays(b.index());
    bindings.push_back(memory[b].data() + a.offset * dtype_size(a.dtype));
  }
  const auto executable = impl->make(problem);
  std::vector<char> workspace(executable->workspace() + 64);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
  executable->run({bindings.data(), params.data(), aligned});
  Result r;
  r.impl = impl->name;
  for (const Operand& o : node.outs) r.outs.push_back(decode(o.dtype, memory[o.binding]));
  return r;
}

void check(const Case& t, const Result& want) {
  const Result got = run(t, false);
  EXPECT_NE(got.impl, "reference");
  for (size_t o = 0; o < want.outs.size(); ++o) {
    const DType dtype = t.in_place.empty() ? t.outs[o].dtype : t.ins[static_cast<size_t>(t.in_place[o])].dtype;
    const double eps = t.eps > 0 && eps_of(dtype) > 0 ? std::max(t.eps, eps_of(dtype)) : eps_of(dtype);
    const double tolerance = t.c * eps * (1 + std::log2(1 + t.growth));
    double scale = 1;  // of the output's values, not counting sentinels
    for (double v : want.outs[o])
      if (std::isfinite(v) && v != -77) scale = std::max(scale, std::fabs(v));
    int failures = 0;
    for (size_t i = 0; i < want.outs[o].size() && failures < 5; ++i) {
      const double a = got.outs[o][i], b = want.outs[o][i];
      const bool same = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= tolerance * scale;
      if (!same) ++failures;
      EXPECT_TRUE(same) << op_name(t.op) << " by " << got.impl << ", output " << o << " at " << i << ": got " << a
                        << ", expected " << b << ", tolerance " << tolerance * scale;
    }
  }
}

void check(const Case& t) { check(t, run(t, true)); }

Array out(DType d, Dims shape) {
  return Array::make(d, shape, [](int64_t) { return -77.0; });
}
Array in(DType d, Dims shape, int64_t seed = 0) {
  return Array::make(d, shape, [=](int64_t i) { return noise(i + seed * 7919); });
}
Array index(Dims shape, int64_t limit, int64_t seed = 0) {
  return Array::make(DType::int64, shape, [=](int64_t i) {
    return std::floor((noise(i + seed * 104729) + 1) / 2 * static_cast<double>(limit));
  });
}
// A view whose last dim has step 2 and which begins three elements into its memory.
Array spread(DType d, Dims shape, int64_t seed = 0) {
  Dims strides = contiguous_strides(shape);
  for (int64_t& s : strides) s *= 2;
  return Array::strided(d, shape, strides, 3, [=](int64_t i) { return noise(i + seed * 7919); });
}

constexpr DType kFloats[] = {DType::float64, DType::float32, DType::float16, DType::bfloat16};

Case matmul(const Array& a, const Array& b) {
  Case t;
  t.op = OpId::matmul;
  t.ins = {a, b};
  Dims shape = a.shape;
  shape.back() = b.shape.back();
  t.outs = {out(a.dtype, shape)};
  t.growth = static_cast<double>(a.shape.back());
  return t;
}

// A root with elementwise nodes behind it: out = relu(root + bias), the root itself elided or kept.
struct Fused {
  Graph graph;
  Group group;
  Indexed<BindingId, std::vector<char>> memory;
  Operand bind(const Array& a) {
    Operand o;
    o.dtype = a.dtype, o.shape = a.shape, o.strides = a.strides;
    o.contiguous = is_contiguous(a.shape, a.strides);
    o.binding = memory.push_back(encode(a.dtype, a.memory));
    graph.bindings.push_back({graph.slots.push_back({memory.back().size(), true, true, false})});
    return o;
  }
};

std::vector<std::vector<double>> run_fused(const Case& root, const Array& bias, bool elide, bool reference) {
  Fused f;
  Node node, add, relu;
  node.op = root.op, node.attrs = root.attrs;
  for (const Array& a : root.ins) node.ins.push_back(f.bind(a));
  node.outs = {f.bind(root.outs[0])};
  add.op = OpId::add;
  Operand b = f.bind(bias);
  b.strides = broadcast_strides(bias.shape, bias.strides, root.outs[0].shape);
  b.shape = root.outs[0].shape;
  b.contiguous = false;
  add.ins = {node.outs[0], b};
  add.outs = {f.bind(root.outs[0])};
  relu.op = OpId::relu;
  relu.ins = {add.outs[0]};
  relu.outs = {f.bind(root.outs[0])};
  f.graph.nodes = {node, add, relu};
  f.group.kind = GroupKind::Epilogue;
  f.group.nodes = {NodeId(0), NodeId(1), NodeId(2)};
  f.group.elided.assign(f.memory.size(), false);
  f.group.elided[add.outs[0].binding] = true;
  f.group.elided[node.outs[0].binding] = elide;
  std::vector<void*> bindings;
  for (const BindingId id : f.memory.ids()) bindings.push_back(f.group.elided[id] ? nullptr : f.memory[id].data());
  const Problem problem{f.graph, f.group};
  const Impl* impl = &kReferenceImpl;
  if (!reference)
    for (const Impl& i : cpu_backend().impls(problem))
      if (!i.accepts(problem)) {
        impl = &i;
        break;
      }
  EXPECT_EQ(reference, impl->name == std::string("reference"));
  const auto executable = impl->make(problem);
  std::vector<char> workspace(executable->workspace() + 64);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
  executable->run({bindings.data(), nullptr, aligned});
  std::vector<std::vector<double>> outs;
  for (const Operand& o : {relu.outs[0], node.outs[0]})
    if (f.group.stores(o)) outs.push_back(decode(o.dtype, f.memory[o.binding]));
  return outs;
}

void check_fused(const Case& root, const Array& bias) {
  for (bool elide : {true, false}) {
    const auto want = run_fused(root, bias, elide, true), got = run_fused(root, bias, elide, false);
    ASSERT_EQ(want.size(), got.size());
    const double tolerance = 16 * eps_of(root.outs[0].dtype) * (1 + std::log2(1 + root.growth));
    for (size_t o = 0; o < want.size(); ++o)
      for (size_t i = 0; i < want[o].size(); ++i)
        ASSERT_NEAR(got[o][i], want[o][i], tolerance * (1 + std::fabs(want[o][i])))
            << op_name(root.op) << " output " << o << " at " << i;
  }
}

}  // namespace
}  // namespace pyflame
