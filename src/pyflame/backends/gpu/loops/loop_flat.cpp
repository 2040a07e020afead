// Generates kernels for groups of elementwise nodes: each thread handles some vectors of adjacent elements, and does
// all loads before the first store.
#include <algorithm>
#include <numeric>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/backends/gpu/loops/loop_text.h"

namespace pyflame::gpu {

namespace {

bool depends_on_index(const Problem& p) {
  for (size_t i = 0; i < p.size(); ++i)
    if (p.node(i).info().index_matters) return true;
  return false;
}

class Flat {
 public:
  // Without vector accesses, a shape's numbers of elements say nothing.
  Flat(const Problem& p, const Geometry& g, bool vectors, const FlatShape& shape)
      : p_(p), g_(g), text_(g, {}, g.merged(flat_order(p))), used_(g.accesses().size(), false) {
    if (vectors) choose_vector(shape.vector);
    each_ = vectors && shape.each > 0 ? shape.each : choose_each();
  }

  // How it is divided now.
  FlatShape shape() const { return {vector_, each_, 0}; }
  int64_t groups() const { return ceil_div(ceil_div(text_.columns(), vector_), each_ * kGroupThreads); }
  // Whether it reads and writes as another one does, and a lane has the registers for it.
  bool fits_like(const Flat& other, const FlatShape& wanted) const {
    return vector_ == wanted.vector && linear_ == other.linear_ && fits_registers(each_);
  }

  LoopKernel kernel() {
    std::string maps = "    #pragma unroll\n    for (int j = 0; j < V; ++j) {\n", stores;
    Expressions in_vector(
        p_, [&](const Operand& o) { return element(g_.access(o)); }, "q * V + j");
    std::string outputs, neighbours;
    for (size_t i = 0; i < p_.size(); ++i)
      if (const std::string text = in_vector.declare_neighbours(i, vector_, "q * V"); !text.empty())
        neighbours += "    " + text + "\n";
    for (size_t i = 0; i < p_.size(); ++i) maps += "      " + in_vector.declare(i) + "\n";
    for (size_t i = 0; i < p_.size(); ++i) {
      if (!in_vector.stored(i)) continue;
      const size_t a = g_.access(p_.node(i).outs[0]);
      outputs += fmt::format("    pf::Neighbours<{}, V> y{};\n", stored_type(g_.accesses()[a].dtype), i);
      maps += fmt::format("      pf::store(&y{0}[j], v{0});\n", i);
      stores += store(i, a);
    }
    maps += "    }\n";
    std::string declares, loads, gathers;
    for (size_t a = 0; a < used_.size(); ++a)
      if (used_[a]) load(a, declares, loads, gathers);
    const std::string n = text_.number(text_.columns());
    if (!gathers.empty())
      loads += fmt::format("    #pragma unroll\n    for (int j = 0; j < V; ++j) {{\n      {}{}    }}\n",
                           text_.coordinates(true, "q * V + j"), gathers);
    const std::string at = linear_ ? "" : "    " + text_.coordinates(true, "q", vector_);
    std::string body = fmt::format(
        "  constexpr int V = {}, K = {}, T = {};\n  const I vectors = {} / V, q0 = pf::group().x * (I)(T * K) + "
        "pf::thread();\n"
        "  if (q0 < vectors) {{\n{}"
        "    #pragma unroll\n    for (int k = 0; k < K; ++k) {{\n    const I q = pf::least<I>(q0 + k * T, vectors - "
        "1);\n{}{}    }}\n"
        "    #pragma unroll\n    for (int k = 0; k < K; ++k) {{\n    const I q = q0 + k * T;\n    if (q < vectors) "
        "{{\n{}{}{}{}    }}\n    }}\n  }}\n",
        vector_, each_, kGroupThreads, n, declares, at, loads, at, outputs, neighbours + maps, stores);
    // The remaining elements, if all dims are merged to one whose size is no multiple of the vector.
    if (vector_ > 1 && (linear_ || text_.inner().size() == 1)) body += rest(n, in_vector);
    // Every element has its own thread. In a loop, compilers would load the constants of functions beforehand, into
    // more registers than there are.
    return text_.finish(in_vector, body, {static_cast<unsigned>(groups()), 1, 1});
  }

 private:
  bool contiguous(size_t a) const {
    int64_t expect = 1;
    for (size_t d = text_.inner().size(); d-- > 0; expect *= text_.inner()[d].size)
      if (text_.inner()[d].strides[a] != expect) return false;
    return true;
  }
  bool broadcast(size_t a) const {
    return std::all_of(text_.inner().begin(), text_.inner().end(), [&](const Dim& d) { return d.strides[a] == 0; });
  }
  int64_t bytes(size_t a) const { return dtype_size(g_.accesses()[a].dtype); }

  // Vectors of 16 bytes of the widest type that is accessed by vectors, unless another number of elements is wanted.
  void choose_vector(int64_t wanted) {
    int64_t widest = 1;
    bool any = false;
    for (size_t a = 0; a < used_.size(); ++a)
      if (text_.stride(a) == 1) widest = std::max(widest, bytes(a)), any = true;
    if (!any) return;
    const int64_t v = wanted > 0 ? wanted : p_.size() > 1 ? std::min<int64_t>(8, 16 / widest) : 16 / widest;
    const std::vector<Dim>& dims = text_.inner();
    bool fits = dims.size() == 1 || dims.back().size % v == 0;
    for (size_t a = 0; fits && a < used_.size(); ++a) fits = text_.stride(a) != 1 || text_.neighbours(a, v);
    if (fits) {
      vector_ = v;
      return;
    }
    // Rows whose length is no multiple of the vector use the linear index; operands that are not contiguous are read
    // element by element.
    const Expressions e(p_, nullptr);
    for (size_t i = 0; i < p_.size(); ++i)
      if (e.stored(i) && !contiguous(g_.access(p_.node(i).outs[0]))) return;
    vector_ = v;
    linear_ = true;
  }

  // Whether a lane can take so many vectors.
  bool fits_registers(int64_t each) const {
    constexpr int64_t kMostBytes = 384;  // of a lane's registers for what it has loaded
    constexpr int64_t kMostWork = 128;
    int64_t work = 0, held = 0;
    for (size_t a = 0; a < used_.size(); ++a) held += text_.stride(a) != 0 ? bytes(a) * vector_ : 0;
    for (size_t i = 0; i < p_.size(); ++i) work += p_.node(i).info().gpu_cost;
    return each * vector_ * work <= kMostWork && each * held <= kMostBytes;
  }

  int64_t choose_each() const {
    int64_t streams = 0;
    for (size_t a = 0; a < used_.size(); ++a) streams += text_.stride(a) != 0;
    int64_t k = streams <= 3 ? 4 : streams <= 6 ? 2 : 1;
    while (k > 1 && !fits_registers(k)) k /= 2;
    return k;
  }

  enum class How { Broadcast, Vector, Strided, Gather };
  How how(size_t a) const {
    if (broadcast(a)) return How::Broadcast;
    if (linear_) return contiguous(a) ? How::Vector : How::Gather;
    if (text_.stride(a) == 1) return How::Vector;
    return text_.stride(a) == 0 ? How::Broadcast : How::Strided;
  }

  std::string element(size_t a) {
    used_[a] = true;
    return how(a) == How::Broadcast ? fmt::format("pf::load(&x{}[k])", a) : fmt::format("pf::load(&x{}[k][j])", a);
  }

  std::string at(size_t a) {
    if (linear_ && how(a) == How::Vector) return "q * V";
    if (linear_ && how(a) == How::Broadcast) return "0";
    const std::string o = text_.offset(true, a);
    return o.empty() ? "0" : o;
  }

  void load(size_t a, std::string& declares, std::string& loads, std::string& gathers) {
    const std::string type = stored_type(g_.accesses()[a].dtype), p = text_.typed(a);
    if (how(a) == How::Broadcast) {
      declares += fmt::format("    {} x{}[K];\n", type, a);
      loads += fmt::format("    x{}[k] = ({})[{}];\n", a, p, at(a));
      return;
    }
    declares += fmt::format("    pf::Neighbours<{}, V> x{}[K];\n", type, a);
    switch (how(a)) {
      case How::Vector:
        if (vector_ > 1) text_.need_alignment(a, vector_);
        loads += fmt::format("    x{}[k].load({} + {});\n", a, p, at(a));
        break;
      case How::Strided:
        loads += fmt::format("    #pragma unroll\n    for (int j = 0; j < V; ++j) x{}[k][j] = ({})[{} + j * {}];\n", a,
                             p, at(a), text_.step(a));
        break;
      default: gathers += fmt::format("      x{}[k][j] = ({})[{}];\n", a, p, at(a));
    }
  }

  std::string store(size_t i, size_t a) {
    const std::string p = text_.typed(a);
    if (how(a) == How::Vector) {
      if (vector_ > 1) text_.need_alignment(a, vector_);
      return fmt::format("    y{}.store({} + {});\n", i, p, at(a));
    }
    if (how(a) == How::Broadcast) return fmt::format("    ({})[{}] = y{}[0];\n", p, at(a), i);
    return fmt::format("    #pragma unroll\n    for (int j = 0; j < V; ++j) ({})[{} + j * {}] = y{}[j];\n", p, at(a),
                       text_.step(a), i);
  }

  std::string rest(const std::string& n, const Expressions& in_vector) {
    Expressions scalar(
        p_,
        [&](const Operand& o) {
          const size_t a = g_.access(o);
          return fmt::format("pf::load({} + ({}))", text_.typed(a), scalar_at(a));
        },
        "i");
    scalar.share_arguments(in_vector);
    std::string lines;
    for (size_t i = 0; i < p_.size(); ++i) lines += "    " + scalar.declare(i) + "\n";
    for (size_t i = 0; i < p_.size(); ++i)
      if (scalar.stored(i)) {
        const size_t a = g_.access(p_.node(i).outs[0]);
        lines += fmt::format("    pf::store({} + ({}), v{});\n", text_.typed(a), scalar_at(a), i);
      }
    return fmt::format(
        "  if (const I i = vectors * V + pf::group().x * (I)T + pf::thread(); i < {}) {{\n    "
        "{}{}  }}\n",
        n, text_.coordinates(true, "i"), lines);
  }
  std::string scalar_at(size_t a) {
    const std::string o = text_.offset(true, a);
    return o.empty() ? "0" : o;
  }

  const Problem& p_;
  const Geometry& g_;
  KernelText text_;
  std::vector<bool> used_;  // accesses that are read from memory
  int64_t vector_ = 1, each_ = 1;
  bool linear_ = false;
};

}  // namespace

std::vector<int> flat_order(const Problem& p) {
  std::vector<int> order(static_cast<size_t>(p.group.space.size()));
  std::iota(order.begin(), order.end(), 0);
  const Operand& out = p.node(p.size() - 1).outs[0];
  if (!depends_on_index(p))
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return out.strides[a] > out.strides[b]; });
  return order;
}

LoopKernel flat_kernel(const Problem& p, const Geometry& g, bool vectors, const FlatShape& shape) {
  if (!depends_on_index(p))
    if (auto tiles = tile_kernel(p, g, g.merged(flat_order(p)), vectors, shape.side)) return std::move(*tiles);
  return Flat(p, g, vectors, shape).kernel();
}

std::vector<FlatShape> other_flat_shapes(const Problem& p, const Geometry& g) {
  constexpr int64_t kMostElements = 64, kLeastVector = 4, kMostVector = 16;
  std::vector<FlatShape> all;
  if (!depends_on_index(p))
    if (const auto sides = other_tile_sides(p, g, g.merged(flat_order(p)))) {
      for (const int64_t side : *sides) all.push_back({0, 0, side});
      return all;
    }
  const Flat own(p, g, true, {});
  const FlatShape o = own.shape();
  const auto add = [&](int64_t vector, int64_t each) {
    const FlatShape s{vector, each, 0};
    const bool vectors = vector == o.vector || (o.vector > 1 && vector >= kLeastVector && vector <= kMostVector);
    if (!vectors || each < 1 || vector * each > kMostElements || s == o) return;
    if (std::find(all.begin(), all.end(), s) != all.end()) return;
    if (Flat(p, g, true, s).fits_like(own, s)) all.push_back(s);
  };
  // With few workgroups, smaller ones come first: they share the work evenly.
  const bool few = own.groups() < kBusyGroups;
  add(o.vector, few ? o.each / 2 : o.each * 2);
  add(o.vector * 2, o.each / 2);
  add(o.vector * 2, o.each);
  add(o.vector, few ? o.each * 2 : o.each / 2);
  add(o.vector / 2, o.each * 2);
  add(o.vector / 2, o.each);
  add(o.vector, 1);
  add(o.vector * 2, 1);
  return all;
}

}  // namespace pyflame::gpu
