// Generates kernels for elementwise groups that read along another dim than they write (a transposition, and what is
// fused with it), in tiles of 64 x 64 elements, or 32 x 32 if many bytes are read along the other dim. Those go through
// shared memory, so that both reads and writes are of adjacent elements.
#include <algorithm>
#include <optional>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/backends/gpu/loops/loop_text.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kSharedBytes = 20 * 1024;

class Tile {
 public:
  // side: of the tiles; 0: as the bytes that are read along the other dim suggest.
  Tile(const Problem& p, const Geometry& g, std::vector<Dim> dims, bool vectors, int64_t side)
      : p_(p),
        g_(g),
        text_(g, {}, std::move(dims)),
        crosswise_(g.accesses().size(), false),
        used_(g.accesses().size(), false) {
    find(vectors, side);
  }
  bool fits() const { return fits_; }
  int64_t side() const { return side_; }
  int64_t shared_bytes(int64_t side) const {
    int64_t bytes_of_all = 0;
    for (size_t a = 0; a < crosswise_.size(); ++a)
      if (crosswise_[a]) bytes_of_all += side * (side + padding(a)) * bytes(a);
    return bytes_of_all;
  }

  LoopKernel kernel() {
    const std::vector<Dim>& dims = text_.inner();
    const size_t last = dims.size() - 1;
    Expressions e(p_, [&](const Operand& o) {
      const size_t a = g_.access(o);
      used_[a] = true;
      return crosswise_[a]          ? fmt::format("pf::load(&t{}[lc + j][lp])", a)
             : text_.stride(a) == 1 ? fmt::format("pf::load(&x{}[j])", a)
                                    : fmt::format("pf::load({} + {})", text_.typed(a), at(a));
    });
    std::string maps, outputs, stores;
    for (size_t i = 0; i < p_.size(); ++i) maps += "      " + e.declare(i) + "\n";
    for (size_t i = 0; i < p_.size(); ++i) {
      if (!e.stored(i)) continue;
      const size_t a = g_.access(p_.node(i).outs[0]);
      if (vector_ > 1) text_.need_alignment(a, vector_);
      outputs += fmt::format("    pf::Neighbours<{}, V> y{};\n", stored_type(g_.accesses()[a].dtype), i);
      maps += fmt::format("      pf::store(&y{0}[j], v{0});\n", i);
      stores += fmt::format("    y{}.store({} + {});\n", i, text_.typed(a), at(a));
    }
    std::string shared, across, along;
    for (size_t a = 0; a < used_.size(); ++a) {
      if (!used_[a] || (!crosswise_[a] && text_.stride(a) != 1)) continue;
      const std::string type = stored_type(g_.accesses()[a].dtype);
      if (vector_ > 1) text_.need_alignment(a, vector_);
      if (crosswise_[a]) {
        shared += fmt::format("  PF_SHARED {} t{}[S][S + {}];\n", type, a, padding(a));
        across += tile_load(a, type);
      } else {
        along += fmt::format("    pf::Neighbours<{0}, V> x{1};\n    x{1}.load({2} + {3});\n", type, a, text_.typed(a),
                             at(a));
      }
    }
    const int64_t tiles_c = ceil_div(dims[last].size, side_), tiles_p = ceil_div(dims[p_dim_].size, side_);
    const int64_t tiles = text_.columns() / dims[last].size / dims[p_dim_].size * tiles_c * tiles_p;
    const std::string in_range = fmt::format("c{} < {} && c{} < {}", last, text_.number(dims[last].size), p_dim_,
                                             text_.number(dims[p_dim_].size));
    const std::string place = fmt::format("    const I c{} = cb + lc, c{} = pb + lp;\n", last, p_dim_);
    std::string body = fmt::format(
        "  constexpr int V = {}, S = {}, K = S * S / 256 / V;\n{}  for (I id = pf::group().x; id < {}; id += "
        "pf::groups().x) {{\n{}",
        vector_, side_, shared, text_.number(tiles), origin(tiles_c, tiles_p));
    body += across_loops(across, place, in_range);
    body += fmt::format(
        "    pf::barrier();\n    #pragma unroll\n    for (int k = 0; k < K; ++k) {{\n"
        "    const int e = k * 256 + (int)pf::thread(), lp = e / (S / V), lc = e % (S / V) * V;\n{}    if ({}) "
        "{{\n{}{}"
        "    #pragma unroll\n    for (int j = 0; j < V; ++j) {{\n{}    }}\n{}    }}\n    }}\n    pf::barrier();\n  "
        "}}\n",
        place, in_range, along, outputs, maps, stores);
    return text_.finish(e, body, {static_cast<unsigned>(std::min<int64_t>(tiles, 1 << 30)), 1, 1});
  }

 private:
  int64_t bytes(size_t a) const { return dtype_size(g_.accesses()[a].dtype); }
  int64_t padding(size_t a) const { return std::max<int64_t>(1, 4 / bytes(a)); }

  void find(bool vectors, int64_t side) {
    const std::vector<Dim>& dims = text_.inner();
    if (dims.size() < 2) return;
    std::optional<size_t> p;
    int64_t shared = 0, widest = 1;
    for (size_t a = 0; a < used_.size(); ++a) {
      const int64_t s = text_.stride(a);
      if (s == 0 || s == 1) {
        if (s == 1) widest = std::max(widest, bytes(a));
        continue;
      }
      std::optional<size_t> unit;
      for (size_t d = 0; d + 1 < dims.size(); ++d)
        if (dims[d].strides[a] == 1) unit = d;
      if (!unit || (p && *p != *unit)) return;
      p = unit;
      crosswise_[a] = true;
      widest = std::max(widest, bytes(a));
      shared += 64 * (64 + padding(a)) * bytes(a);
    }
    if (!p || shared / 4 > kSharedBytes || dims.back().size < 16 || dims[*p].size < 16) return;
    const Expressions e(p_, nullptr);
    for (size_t i = 0; i < p_.size(); ++i)
      if (e.stored(i) && text_.stride(g_.access(p_.node(i).outs[0])) != 1) return;
    p_dim_ = *p;
    side_ = side > 0 ? side : shared > kSharedBytes ? 32 : 64;
    fits_ = true;
    const int64_t v = std::min<int64_t>(side_ == 32 ? 4 : 8, 16 / widest);
    if (!vectors || dims.back().size % v != 0 || dims[p_dim_].size % v != 0) return;
    for (size_t a = 0; a < used_.size(); ++a) {
      if (text_.stride(a) == 0) continue;
      const size_t along = crosswise_[a] ? p_dim_ : dims.size() - 1;
      for (size_t d = 0; d < dims.size(); ++d)
        if (d != along && dims[d].strides[a] % v != 0) return;
    }
    vector_ = v;
  }

  std::string at(size_t a) {
    const std::string o = text_.offset(true, a);
    return o.empty() ? "0" : o;
  }

  // The start of a tile: cb and pb along its sides, and the coordinates of the other dims.
  std::string origin(int64_t tiles_c, int64_t tiles_p) {
    const std::vector<Dim>& dims = text_.inner();
    const std::string dc = text_.divider(tiles_c), dp = text_.divider(tiles_p);
    std::string text = fmt::format(
        "    const I m0 = {0}.div(id), cb = (id - m0 * {0}.d) * S, m1 = {1}.div(m0), pb = (m0 - m1 * {1}.d) * S;\n", dc,
        dp);
    std::string from = "m1";
    std::vector<size_t> others;
    for (size_t d = 0; d + 1 < dims.size(); ++d)
      if (d != p_dim_) others.push_back(d);
    for (size_t k = others.size(); k-- > 0;) {
      const size_t d = others[k];
      if (k == 0) {
        text += fmt::format("    const I c{} = {};\n", d, from);
        break;
      }
      const std::string by = text_.divider(dims[d].size), quotient = fmt::format("o{}", d);
      text += fmt::format("    const I {0} = {1}.div({2}), c{3} = {2} - {0} * {1}.d;\n", quotient, by, from, d);
      from = quotient;
    }
    for (const size_t d : others) text += fmt::format("    (void)c{};\n", d);
    return text + "    (void)m1;\n";
  }

  std::string tile_load(size_t a, const std::string& type) {
    return fmt::format(
        "    {{\n    pf::Neighbours<{0}, V> v[K];\n@LOAD v[k].load({1} + {2});\n@STORE for (int j = 0; j < V; ++j) "
        "t{3}[lc][lp + j] = v[k][j];\n    }}\n",
        type, text_.typed(a), at(a), a);
  }
  // Writes the loops over a tile's vectors: all loads of an access come before its stores.
  static std::string across_loops(std::string text, const std::string& place, const std::string& in_range) {
    const std::string loop =
        "    #pragma unroll\n    for (int k = 0; k < K; ++k) {\n    const int e = k * 256 + (int)pf::thread(), lc = e "
        "/ (S / V), "
        "lp = e % (S / V) * V;\n";
    const auto fill = [&](const std::string& mark, const std::string& head) {
      for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
        const size_t end = text.find('\n', at);
        text.insert(end, "\n    }");
        text.replace(at, mark.size(), head);
      }
    };
    fill("@LOAD", loop + place + "    if (" + in_range + ")");
    fill("@STORE", loop + "    #pragma unroll\n   ");
    return text;
  }

  const Problem& p_;
  const Geometry& g_;
  KernelText text_;
  std::vector<bool> crosswise_, used_;
  size_t p_dim_ = 0;
  int64_t vector_ = 1, side_ = 64;
  bool fits_ = false;
};

// A copy of a matrix of bytes that is read along its other dim (kernels/loop/bytes.h).
std::optional<LoopKernel> bytes_kernel(const Problem& p, const Geometry& g, const std::vector<Dim>& dims) {
  constexpr int64_t kUnit = 16, kLeast = 64, kSide = 128;
  if (p.size() != 1 || p.root().op != OpId::cast || dims.size() != 2) return std::nullopt;
  const Operand &in = p.root().ins[0], &out = p.root().outs[0];
  if (in.is_param || in.dtype != out.dtype || dtype_size(out.dtype) != 1) return std::nullopt;
  const size_t from = g.access(in), to = g.access(out);
  const Dim &row = dims[0], &column = dims[1];
  if (row.strides[from] != 1 || column.strides[to] != 1) return std::nullopt;
  const int64_t from_pitch = column.strides[from], to_pitch = row.strides[to];
  for (const int64_t size : {row.size, column.size})
    if (size < kLeast || size % kUnit != 0) return std::nullopt;
  if (from_pitch < row.size || from_pitch % kUnit != 0 || to_pitch % kUnit != 0) return std::nullopt;
  KernelText text(g, {}, dims);
  text.need_alignment(from, kUnit), text.need_alignment(to, kUnit);
  const std::string body =
      fmt::format("  pf::transpose_bytes<I, {}>((const pf::u8*){}, (pf::u8*){}, {}, {}, {}, {});\n", kGroupThreads,
                  text.pointer(in.binding), text.pointer(out.binding), text.number(row.size), text.number(column.size),
                  text.number(from_pitch), text.number(to_pitch));
  const int64_t tiles = ceil_div(row.size, kSide) * ceil_div(column.size, kSide);
  return text.finish(Expressions(p, nullptr), body, {static_cast<unsigned>(std::min<int64_t>(tiles, 1 << 30)), 1, 1},
                     {"device/divider.h", "device/permute.h", "loop/bytes.h"});
}

}  // namespace

std::optional<LoopKernel> tile_kernel(const Problem& p, const Geometry& g, std::vector<Dim> dims, bool vectors,
                                      int64_t side) {
  if (vectors && side == 0)
    if (auto bytes = bytes_kernel(p, g, dims)) return bytes;
  Tile t(p, g, std::move(dims), vectors, side);
  if (!t.fits()) return std::nullopt;
  return t.kernel();
}

std::optional<std::vector<int64_t>> other_tile_sides(const Problem& p, const Geometry& g, std::vector<Dim> dims) {
  constexpr int64_t kMostShared = 48 * 1024;  // what a kernel may declare
  const Tile own(p, g, std::move(dims), true, 0);
  if (!own.fits()) return std::nullopt;
  const int64_t other = own.side() == 64 ? 32 : 64;
  std::vector<int64_t> sides;
  if (own.shared_bytes(other) <= kMostShared) sides.push_back(other);
  return sides;
}

}  // namespace pyflame::gpu
