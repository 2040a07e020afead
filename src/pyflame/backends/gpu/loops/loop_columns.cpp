// Generates kernels for column reductions with the nodes before them: one pass over the rows, and one over the segments
// of rows.
#include <algorithm>
#include <map>
#include <set>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/backends/gpu/loops/loop_text.h"

namespace pyflame::gpu {

namespace {

class Columns {
 public:
  Columns(const Problem& p, const Geometry& g, bool vectors, const ColumnCut& cut, const std::vector<int64_t>& kept)
      : p_(p),
        g_(g),
        kept_(kept),
        text_(g, g.merged(0, p.group.split), g.merged(p.group.split, p.group.space.size())),
        cut_(cut),
        expressions_(
            p, [this](const Operand& o) { return read(g_.access(o)); }, "(r * columns + u + j)") {
    if (vectors) choose_vector();
  }

  LoopKernel pass(std::map<size_t, size_t>& parts, size_t& workspace) {
    std::set<size_t> needed;
    const bool stores = std::count(p_.group.roles.begin(), p_.group.roles.end(), Role::RowReduce) == 0;
    std::string rows, maps, outputs, writes, ends;
    for (size_t i = 0; i < p_.size(); ++i) {
      if (role(i) == Role::ColReduce || (stores && role(i) == Role::Map && expressions_.stored(i))) collect(i, needed);
    }
    for (const size_t i : needed) {
      const Node& n = p_.node(i);
      switch (role(i)) {
        case Role::RowReduce:
          rows += fmt::format("    const pf::C<{0}> v{1} = ((const pf::C<{0}>*){2})[r];\n",
                              stored_type(n.outs[0].dtype), i, text_.workspace(static_cast<size_t>(kept_[i])));
          break;
        case Role::RowMap: rows += "    " + expressions_.declare(i) + "\n"; break;
        case Role::Map: maps += "      " + expressions_.declare(i) + "\n"; break;
        case Role::ColReduce: break;
      }
    }
    std::string starts;
    for (size_t i = 0; i < p_.size(); ++i) {
      const Node& n = p_.node(i);
      if (role(i) == Role::ColReduce) {
        const std::string type = accumulator(n), op = reduction_op(n);
        starts += fmt::format(
            "  {0} a{1}[V];\n  #pragma unroll\n  for (int j = 0; j < V; ++j) a{1}[j] = {2}::start();\n", type, i, op);
        maps += fmt::format("      a{0}[j] = {1}::of(a{0}[j], ({2})({3}));\n", i, op, type,
                            expressions_.value(i, n.ins[0]));
        ends += fmt::format("  pf::over_column_lanes<{0}, V>(a{1}, across, ({2}*)pool);\n", op, i, type);
        ends += end_of(i, parts, workspace);
      } else if (stores && role(i) == Role::Map && expressions_.stored(i)) {
        const size_t a = g_.access(n.outs[0]);
        outputs += fmt::format("    pf::Neighbours<{}, V> y{};\n", stored_type(n.outs[0].dtype), i);
        maps += fmt::format("      pf::store(&y{0}[j], v{0});\n", i);
        if (vector(a)) {
          text_.need_alignment(a, vector_);
          writes += fmt::format("    y{}.store({} + {});\n", i, text_.typed(a), at(a));
        } else {
          writes += fmt::format("    #pragma unroll\n    for (int j = 0; j < V; ++j) ({})[{}] = y{}[j];\n",
                                text_.typed(a), element_at(a), i);
        }
      }
    }
    std::string before, declares, loads;
    for (const size_t a : used_) load(a, before, declares, loads);
    const std::string coordinates = text_.coordinates(false, "r");
    std::string body = fmt::format(
        "  constexpr int V = {}, K = {};\n  PF_SHARED pf::u64 pool[256 * V];\n"
        "  const int across = (int){}, g = (int)pf::thread() / across, x = (int)pf::thread() & (across - 1);\n"
        "  const I lanes = 256 / (I)across, rows = {}, columns = {}, segment = {};\n"
        "  const I begin = pf::group().y * segment, end = pf::least<I>(begin + segment, rows);\n"
        "  const I mine = (pf::group().x * (I)across + (I)x) * V;\n  const bool column_ok = mine < columns;\n"
        "  const I u = column_ok ? mine : 0;\n",
        vector_, kRowsAtOnce, text_.number(cut_.across), text_.number(text_.rows()), text_.number(text_.columns()),
        text_.number(cut_.segment));
    body += "  " + text_.coordinates(true, unit_index(), vector_) + before + starts;
    body += fmt::format(
        "  for (I r0 = begin + (I)g; r0 < end; r0 += lanes * K) {{\n{}    #pragma unroll\n    for (int k = 0; k < K; "
        "++k) {{\n"
        "    const I r = pf::least<I>(r0 + k * lanes, rows - 1);\n    {}{}    }}\n"
        "    #pragma unroll\n    for (int k = 0; k < K; ++k) {{\n    const I r = r0 + k * lanes;\n    if (r < end) "
        "{{\n    {}{}{}"
        "    #pragma unroll\n    for (int j = 0; j < V; ++j) {{\n{}    }}\n",
        declares, coordinates, loads, coordinates, rows, outputs, maps);
    if (!writes.empty()) body += "    if (column_ok) {\n" + writes + "    }\n";
    body += "    }\n    }\n  }\n" + ends;
    const auto grid = static_cast<unsigned>(ceil_div(text_.columns(), cut_.across * vector_));
    return text_.finish(expressions_, body, {grid, static_cast<unsigned>(cut_.segments), 1});
  }

  LoopKernel together(const std::map<size_t, size_t>& parts) {
    std::string body = fmt::format(
        "  PF_SHARED pf::u64 pool[256];\n  const int across = 8, g = (int)pf::thread() / across;\n"
        "  const I columns = {}, mine = pf::group().x * (I)across + (pf::thread() & 7);\n"
        "  const bool column_ok = mine < columns;\n  const I u = column_ok ? mine : 0;\n  {}",
        text_.number(text_.columns()), text_.coordinates(true, "u"));
    const std::string segments = text_.number(cut_.segments);
    for (const auto& [i, offset] : parts) {
      const Node& n = p_.node(i);
      const size_t a = g_.access(n.outs[0]);
      const std::string o = text_.offset(true, a);
      body += fmt::format(
          "  {0} a{1}[1] = {{{2}::start()}};\n  #pragma unroll 4\n  for (I s = (I)g; s < {3}; s += 32) a{1}[0] = "
          "{2}::of(a{1}[0], ((const {0}*){4})[s * columns + u]);\n  pf::over_column_lanes<{2}, 1>(a{1}, across, "
          "({0}*)pool);\n"
          "  if (g == 0 && column_ok) pf::store({5} + ({6}), pf::as<{7}>(a{1}[0]));\n",
          accumulator(n), i, reduction_op(n), segments, text_.workspace(offset), text_.typed(a), o.empty() ? "0" : o,
          stored_type(n.outs[0].dtype));
    }
    return text_.finish(Expressions(p_, nullptr), body, {static_cast<unsigned>(ceil_div(text_.columns(), 8)), 1, 1});
  }

  bool cut() const { return cut_.segments > 1; }

 private:
  Role role(size_t i) const { return p_.group.roles[i]; }

  void collect(size_t i, std::set<size_t>& needed) const {
    if (!needed.insert(i).second || role(i) == Role::RowReduce) return;
    for (const Operand& o : p_.node(i).ins) {
      const int w = o.is_param ? -1 : expressions_.writer(i, o.binding);
      if (w >= 0) collect(static_cast<size_t>(w), needed);
    }
  }

  void choose_vector() {
    int64_t widest = 0;
    for (size_t a = 0; a < g_.accesses().size(); ++a)
      if (text_.stride(a) == 1 && !of_column(a)) widest = std::max<int64_t>(widest, bytes(a));
    if (widest == 0) return;
    const int64_t v = std::min<int64_t>(8, 16 / widest);
    if (text_.inner().back().size % v == 0) vector_ = v;
  }
  int64_t bytes(size_t a) const { return dtype_size(g_.accesses()[a].dtype); }

  // The index from which the coordinates of a column are computed: in units of vectors, if there are vectors.
  std::string unit_index() const { return vector_ == 1 ? "u" : fmt::format("u / {}", vector_); }
  bool of_row(size_t a) const {
    return std::all_of(text_.inner().begin(), text_.inner().end(), [&](const Dim& d) { return d.strides[a] == 0; });
  }
  bool of_column(size_t a) const {
    return std::all_of(text_.outer().begin(), text_.outer().end(), [&](const Dim& d) { return d.strides[a] == 0; });
  }
  bool vector(size_t a) const { return vector_ > 1 && text_.neighbours(a, vector_); }

  std::string read(size_t a) {
    used_.insert(a);
    if (of_row(a)) return fmt::format("pf::load(&x{}[k])", a);
    return of_column(a) ? fmt::format("pf::load(&x{}[j])", a) : fmt::format("pf::load(&x{}[k][j])", a);
  }

  std::string at(size_t a) {
    const std::string row = text_.offset(false, a), column = text_.offset(true, a);
    if (row.empty() || column.empty()) return row.empty() && column.empty() ? "0" : row + column;
    return row + " + " + column;
  }
  std::string element_at(size_t a) {
    if (text_.stride(a) == 0 || vector_ == 1) return at(a);
    if (text_.stride(a) == 1) return at(a) + " + j";
    return at(a) + " + j * " + text_.step(a);
  }

  void load(size_t a, std::string& before, std::string& declares, std::string& loads) {
    const std::string type = stored_type(g_.accesses()[a].dtype), p = text_.typed(a);
    if (of_row(a)) {
      declares += fmt::format("    {} x{}[K];\n", type, a);
      loads += fmt::format("    x{}[k] = ({})[{}];\n", a, p, at(a));
      return;
    }
    const bool once = of_column(a);
    std::string& text = once ? before : loads;
    (once ? before : declares) += fmt::format("    pf::Neighbours<{}, V> x{}{};\n", type, a, once ? "" : "[K]");
    const std::string name = fmt::format("x{}{}", a, once ? "" : "[k]");
    if (vector(a)) {
      text_.need_alignment(a, vector_);
      text += fmt::format("    {}.load({} + {});\n", name, p, at(a));
    } else {
      text += fmt::format("    #pragma unroll\n    for (int j = 0; j < V; ++j) {}[j] = ({})[{}];\n", name, p,
                          element_at(a));
    }
  }

  std::string end_of(size_t i, std::map<size_t, size_t>& parts, size_t& workspace) {
    const Node& n = p_.node(i);
    if (!cut()) {
      const size_t a = g_.access(n.outs[0]);
      return fmt::format(
          "  if (g == 0 && column_ok) {{\n    #pragma unroll\n    for (int j = 0; j < V; ++j) pf::store({} + ({}), "
          "pf::as<{}>(a{}[j]));\n  }}\n",
          text_.typed(a), element_at(a), stored_type(n.outs[0].dtype), i);
    }
    parts[i] = workspace;
    workspace += (static_cast<size_t>(text_.columns() * cut_.segments) * accumulator_bytes(n) + 63) / 64 * 64;
    return fmt::format(
        "  if (g == 0 && column_ok) {{\n    #pragma unroll\n    for (int j = 0; j < V; ++j) (({}*){})[pf::group().y * "
        "columns + "
        "u + j] = a{}[j];\n  }}\n",
        accumulator(n), text_.workspace(parts[i]), i);
  }

  const Problem& p_;
  const Geometry& g_;
  const std::vector<int64_t>& kept_;
  KernelText text_;
  ColumnCut cut_;
  int64_t vector_ = 1;
  Expressions expressions_;
  std::set<size_t> used_;
};

}  // namespace

void column_kernels(const Problem& p, const Geometry& g, bool vectors, const ColumnCut& cut, LoopPlan& plan,
                    const std::vector<int64_t>& row_values) {
  std::map<size_t, size_t> parts;
  plan.kernels.push_back(Columns(p, g, vectors, cut, row_values).pass(parts, plan.workspace));
  Columns second(p, g, vectors, cut, row_values);
  if (second.cut()) plan.kernels.push_back(second.together(parts));
}

}  // namespace pyflame::gpu
