// Generates kernels for row reductions with the nodes before and after them.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/backends/gpu/loops/loop_text.h"

namespace pyflame::gpu {

namespace {

// What all kernels of the group need to know: which values depend on which reductions.
struct Levels {
  std::vector<int> level;  // per node: the number of reductions that must be complete before it
  int top = 0;
  Levels(const Problem& p, const Expressions& e) : level(p.size(), 0) {
    for (size_t i = 0; i < p.size(); ++i) {
      for (const Operand& o : p.node(i).ins) {
        const int w = o.is_param ? -1 : e.writer(i, o.binding);
        if (w < 0) continue;
        const auto j = static_cast<size_t>(w);
        level[i] = std::max(level[i], level[j] + (p.group.roles[j] == Role::RowReduce ? 1 : 0));
      }
      if (p.group.roles[i] != Role::ColReduce) top = std::max(top, level[i]);
    }
  }
};

class Rows {
 public:
  Rows(const Problem& p, const Geometry& g, bool vectors, const RowCut& cut, const Levels& levels,
       const std::vector<int64_t>& kept)
      : p_(p),
        g_(g),
        levels_(levels),
        kept_(kept),
        text_(g, g.merged(0, p.group.split), g.merged(p.group.split, p.group.space.size())),
        cut_(cut),
        vectors_(vectors),
        expressions_(
            p, [this](const Operand& o) { return read(g_.access(o)); }, fmt::format("(r * {} + u + j)", "columns")) {}

  // One kernel for all levels: a row per workgroup or per part of a wave.
  LoopKernel whole() {
    hold();
    std::string body;
    for (int level = 0; level <= levels_.top; ++level) {
      body += row_maps(level, true) + pass(level);
      for (const size_t i : reductions(level)) body += combine(i) + result(i, true);
    }
    const bool group = cut_.lanes == kGroupThreads;
    const std::string lanes = group ? fmt::format("{}", kGroupThreads) : text_.number(cut_.lanes);
    std::string head = group ? "  const int lanes = 256, t = (int)pf::thread();\n  const I each = 1;\n"
                             : fmt::format(
                                   "  const int lanes = (int){}, t = (int)pf::thread() & (lanes - 1);\n"
                                   "  const I each = 256 / (I)lanes;\n",
                                   lanes);
    head += fmt::format("  const I rows = {}, columns = {}, begin = 0, end = columns;\n", text_.number(text_.rows()),
                        text_.number(text_.columns()));
    head +=
        "  for (I base = pf::group().x * each; base < rows; base += pf::groups().x * each) {\n"
        "  const I mine = base + pf::thread() / (I)lanes, r = pf::least<I>(mine, rows - 1);\n"
        "  const bool row_ok = mine < rows;\n  (void)row_ok;\n";
    if (held_ > 0) body = loop_head() + loads(true) + loop_end() + body;
    const int64_t groups = ceil_div(text_.rows(), kGroupThreads / cut_.lanes);
    return text_.finish(expressions_, shared() + head + start() + (held_ > 0 ? declarations() : "") + body + "  }\n",
                        {static_cast<unsigned>(std::min<int64_t>(groups, 1 << 30)), 1, 1});
  }

  // For a level of rows that are divided into segments: writes partial results to the workspace.
  LoopKernel segments(int level, std::map<size_t, size_t>& parts, size_t& workspace) {
    std::string body = known(level) + row_maps(level, false) + pass(level);
    for (const size_t i : reductions(level)) {
      body += combine(i);
      parts[i] = workspace;
      workspace += padded(static_cast<size_t>(text_.rows() * cut_.segments) * accumulator_bytes(p_.node(i)));
      body += fmt::format("  if (t == 0) (({}*){})[r * pf::groups().x + pf::group().x] = a{};\n",
                          accumulator(p_.node(i)), text_.workspace(parts[i]), i);
    }
    const std::string head = fmt::format(
        "  const int lanes = 256, t = (int)pf::thread();\n  const bool row_ok = true;\n  (void)row_ok, (void)t;\n  "
        "const I r = pf::group().y, "
        "columns = {}, "
        "begin = pf::group().x * {}, end = pf::least<I>(begin + {}, columns);\n  {{\n",
        text_.number(text_.columns()), text_.number(cut_.segment), text_.number(cut_.segment));
    return text_.finish(expressions_, shared() + head + start() + body + "  }\n",
                        {static_cast<unsigned>(cut_.segments), static_cast<unsigned>(text_.rows()), 1});
  }

  // Combines the segments of a level, and computes the row values that depend only on them.
  LoopKernel together(int level, const std::map<size_t, size_t>& parts) {
    std::string body = known(level);
    if (level == 0) body += row_maps(0, true);
    else body += row_maps(level, false);
    for (const size_t i : reductions(level)) {
      const std::string a = accumulator(p_.node(i));
      body +=
          fmt::format("  const {0} a{1} = pf::over_segments<{2}>((const {0}*){3} + r * {4}, (int){4}, ({0}*)pool);\n",
                      a, i, reduction_op(p_.node(i)), text_.workspace(parts.at(i)), text_.number(cut_.segments));
      body += result(i, true);
      needs_shared_ = true;
    }
    body += row_maps(level + 1, true);
    const std::string head =
        "  const int t = (int)pf::thread();\n  const bool row_ok = true;\n  (void)row_ok, (void)t;\n  const I r = "
        "pf::group().x;\n  {\n";
    return text_.finish(expressions_, shared() + head + start() + body + "  }\n",
                        {static_cast<unsigned>(text_.rows()), 1, 1});
  }

  static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  const Node& node(size_t i) const { return p_.node(i); }
  Role role(size_t i) const { return p_.group.roles[i]; }

  std::vector<size_t> reductions(int level) const {
    std::vector<size_t> v;
    for (size_t i = 0; i < p_.size(); ++i)
      if (role(i) == Role::RowReduce && levels_.level[i] == level) v.push_back(i);
    return v;
  }

  std::string shared() const {
    return needs_shared_ ? fmt::format("  PF_SHARED pf::u64 pool[{}];\n", kGroupThreads) : "";
  }

  // Row values that do not depend on the row's elements.
  std::string row_maps(int level, bool write) {
    std::string text;
    in_row_ = true;
    for (size_t i = 0; i < p_.size(); ++i) {
      if (role(i) != Role::RowMap || levels_.level[i] != level) continue;
      text += "  " + expressions_.declare(i) + "\n";
      if (write) text += store_of_row(i);
    }
    in_row_ = false;
    return text;
  }

  // Values that earlier kernels have stored.
  std::string known(int level) {
    std::string text;
    for (int l = 0; l < level; ++l) {
      text += row_maps(l, false);
      for (const size_t i : reductions(l))
        text += fmt::format("  const pf::C<{0}> v{1} = ((const pf::C<{0}>*){2})[r];\n",
                            stored_type(node(i).outs[0].dtype), i, text_.workspace(static_cast<size_t>(kept_[i])));
    }
    return text;
  }

  std::string store_of_row(size_t i) {
    std::string text;
    if (expressions_.stored(i)) {
      const size_t a = g_.access(node(i).outs[0]);
      text += fmt::format("  if (t == 0 && row_ok) pf::store({} + ({}), v{});\n", text_.typed(a), row_at(a), i);
    }
    if (kept_[i] >= 0 && role(i) == Role::RowReduce)
      text += fmt::format("  if (t == 0 && row_ok) ((pf::C<{}>*){})[r] = v{};\n", stored_type(node(i).outs[0].dtype),
                          text_.workspace(static_cast<size_t>(kept_[i])), i);
    return text;
  }

  std::string result(size_t i, bool write) {
    std::string text =
        fmt::format("  const pf::C<{0}> v{1} = pf::as<{0}>(a{1});\n", stored_type(node(i).outs[0].dtype), i);
    return write ? text + store_of_row(i) : text;
  }

  std::string combine(size_t i) {
    if (cut_.lanes < kGroupThreads)
      return fmt::format("  a{0} = pf::over_row_lanes<{1}>(a{0}, lanes);\n", i, reduction_op(node(i)));
    needs_shared_ = true;
    return fmt::format("  a{0} = pf::over_group<{1}, {2}>(a{0}, ({3}*)pool);\n", i, reduction_op(node(i)),
                       kGroupThreads, accumulator(node(i)));
  }

  // The start of a row: its coordinates, and the offsets of the accesses that follow.
  std::string start() {
    std::string text = "  " + text_.coordinates(false, "r");
    for (const size_t a : row_used_) {
      const std::string o = text_.offset(false, a);
      text += fmt::format("  const I o{} = {};\n", a, o.empty() ? "0" : o);
    }
    return text;
  }
  std::string row_at(size_t a) {
    row_used_.insert(a);
    return fmt::format("o{}", a);
  }

  bool of_row(size_t a) const {  // whether the value is the same for all elements of a row
    return std::all_of(text_.inner().begin(), text_.inner().end(), [&](const Dim& d) { return d.strides[a] == 0; });
  }
  std::string read(size_t a) {
    if (in_row_ || of_row(a)) return fmt::format("pf::load({} + {})", text_.typed(a), row_at(a));
    used_.insert(a);
    return fmt::format("pf::load(&x{}{}[j])", a, held_ > 0 ? "[k]" : "");
  }

  // Rows that several passes use are read once if they fit into registers: this is the number of units per lane.
  void hold() {
    constexpr int64_t kMostUnits = 4, kMostBytes = 320, kMostWork = 24;
    const int64_t units = ceil_div(text_.columns(), cut_.lanes * kUnit);
    if (levels_.top == 0 || units > kMostUnits || text_.columns() % kUnit != 0 ||
        static_cast<int64_t>(p_.size()) > kMostWork)
      return;
    int64_t bytes = 0;
    for (size_t a = 0; a < g_.accesses().size(); ++a)
      if (!of_row(a)) bytes += dtype_size(g_.accesses()[a].dtype) * kUnit;
    held_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(units)));
    if (bytes * held_ > kMostBytes) held_ = 0;
  }
  std::string declarations() const {
    std::string text;
    for (const size_t a : used_)
      text += fmt::format("  pf::Neighbours<{}, 8> x{}[{}];\n", stored_type(g_.accesses()[a].dtype), a, held_);
    return text;
  }

  // The loop over the units of a lane.
  std::string loop_head() {
    const std::string at = "    " + (whole_units() ? text_.coordinates(true, "u / 8", kUnit) : "");
    if (held_ == 0)
      return "  for (I u = begin + (I)t * 8; u < end; u += (I)lanes * 8) {\n"
             "    const int count = (int)pf::least<I>(8, end - u);\n" +
             at;
    return fmt::format(
               "  #pragma unroll\n  for (int k = 0; k < {}; ++k) {{\n    const I u = begin + (I)(k * lanes + t) * 8;\n"
               "    constexpr int count = 8;\n    (void)count;\n    if (u < end) {{\n",
               held_) +
           at;
  }
  std::string loop_end() const { return held_ > 0 ? "    }\n  }\n" : "  }\n"; }

  // Reads the unit's elements of all accesses that are used.
  std::string loads(bool held) {
    std::string text, full, rest;
    for (const size_t a : used_) {
      const std::string x = fmt::format("x{}{}", a, held ? "[k]" : "");
      text += held ? fmt::format("    {} = {{}};\n", x)
                   : fmt::format("    pf::Neighbours<{}, 8> {} = {{}};\n", stored_type(g_.accesses()[a].dtype), x);
      const std::string one = fmt::format("{}[j] = ({})[{}];", x, text_.typed(a), element_at(a));
      if (vector(a)) {
        text_.need_alignment(a, kUnit);
        full += fmt::format("      {}.load({} + {});\n", x, text_.typed(a), unit_at(a));
      } else {
        full += each(one, false);
      }
      rest += each(one, true);
    }
    if (text.empty()) return text;
    return text + fmt::format("    if (count == 8) {{\n{}    }} else {{\n{}    }}\n", full, rest);
  }

  // What a value needs from the elements of the row.
  void collect(size_t i, std::set<size_t>& needed) const {
    if (!needed.insert(i).second) return;
    for (const Operand& o : node(i).ins) {
      const int w = o.is_param ? -1 : expressions_.writer(i, o.binding);
      if (w >= 0 && role(static_cast<size_t>(w)) == Role::Map) collect(static_cast<size_t>(w), needed);
    }
  }

  // Whether a unit of an access can be read as one piece.
  bool vector(size_t a) const { return vectors_ && whole_units() && text_.neighbours(a, kUnit); }
  bool whole_units() const { return text_.inner().size() == 1 || text_.inner().back().size % kUnit == 0; }

  std::string pass(int level) {
    std::set<size_t> needed;
    const std::vector<size_t> reduces = reductions(level);
    std::vector<size_t> stores;
    for (size_t i = 0; i < p_.size(); ++i) {
      if (role(i) != Role::Map || levels_.level[i] != level || !expressions_.stored(i)) continue;
      stores.push_back(i);
      collect(i, needed);
    }
    for (const size_t i : reduces) {
      collect(i, needed);
      needed.erase(i);
    }
    if (reduces.empty() && stores.empty()) return "";
    std::string text, maps, outputs, whole, parts;
    for (const size_t i : reduces)
      text += fmt::format("  {0} a{1} = {2}::start();\n", accumulator(node(i)), i, reduction_op(node(i)));
    if (held_ == 0) used_.clear();
    for (const size_t i : needed) maps += "      " + expressions_.declare(i) + "\n";
    for (const size_t i : reduces) {
      const std::string type = accumulator(node(i));
      outputs += fmt::format("    {} e{}[8];\n", type, i);
      maps += fmt::format("      e{0}[j] = j < count ? ({1})({2}) : {3}::start();\n", i, type,
                          expressions_.value(i, node(i).ins[0]), reduction_op(node(i)));
    }
    for (const size_t i : stores) {
      const size_t a = g_.access(node(i).outs[0]);
      outputs += fmt::format("    pf::Neighbours<{}, 8> y{};\n", stored_type(node(i).outs[0].dtype), i);
      maps += fmt::format("      pf::store(&y{0}[j], v{0});\n", i);
      if (vector(a)) {
        text_.need_alignment(a, kUnit);
        whole += fmt::format("      y{}.store({} + {});\n", i, text_.typed(a), unit_at(a));
      } else {
        whole += each(fmt::format("({})[{}] = y{}[j];", text_.typed(a), element_at(a), i), false);
      }
      parts += each(fmt::format("({})[{}] = y{}[j];", text_.typed(a), element_at(a), i), true);
    }
    text += loop_head();
    if (held_ == 0) text += loads(false);
    text += outputs + "    #pragma unroll\n    for (int j = 0; j < 8; ++j) {\n" + maps + "    }\n";
    for (const size_t i : reduces)
      text += fmt::format("    a{0} = {1}::of(a{0}, pf::over_unit<{1}>(e{0}));\n", i, reduction_op(node(i)));
    if (!whole.empty())
      text += fmt::format("    if (row_ok && count == 8) {{\n{}    }} else if (row_ok) {{\n{}    }}\n", whole, parts);
    return text + loop_end();
  }

  std::string unit_at(size_t a) {
    const std::string o = text_.offset(true, a);
    return row_at(a) + (o.empty() ? "" : " + " + o);
  }
  std::string element_at(size_t a) {
    if (!whole_units()) return unit_at(a);  // uses the coordinates of the element
    if (text_.stride(a) == 0) return unit_at(a);
    if (text_.stride(a) == 1) return unit_at(a) + " + j";
    return unit_at(a) + " + j * " + text_.step(a);
  }
  std::string each(const std::string& statement, bool guarded) {
    const std::string at = whole_units() ? "" : text_.coordinates(true, "u + j");
    return fmt::format("      #pragma unroll\n      for (int j = 0; j < 8; ++j) {}{{ {}{} }}\n",
                       guarded ? "if (j < count) " : "", at, statement);
  }

  const Problem& p_;
  const Geometry& g_;
  const Levels& levels_;
  const std::vector<int64_t>& kept_;
  KernelText text_;
  RowCut cut_;
  int64_t held_ = 0;  // units that a lane keeps in registers; 0: they are read in each pass
  bool vectors_, in_row_ = false, needs_shared_ = false;
  Expressions expressions_;
  std::set<size_t> used_, row_used_;  // accesses of a pass; accesses with an offset at the start of the row
};

}  // namespace

void row_kernels(const Problem& p, const Geometry& g, bool vectors, const RowCut& cut, LoopPlan& plan,
                 std::vector<int64_t>& row_values) {
  const Expressions plain(p, nullptr);
  const Levels levels(p, plain);
  const bool columns = std::count(p.group.roles.begin(), p.group.roles.end(), Role::ColReduce) > 0;
  const bool apart = cut.segments > 1;
  int64_t rows = 1;
  for (int d = 0; d < p.group.split; ++d) rows *= p.group.space[d];
  row_values.assign(p.size(), -1);
  for (size_t i = 0; i < p.size(); ++i)
    if (p.group.roles[i] == Role::RowReduce && (columns || (apart && levels.top > 0))) {
      row_values[i] = static_cast<int64_t>(plan.workspace);
      plan.workspace += Rows::padded(static_cast<size_t>(rows) * 8);
    }
  if (!apart) {
    plan.kernels.push_back(Rows(p, g, vectors, cut, levels, row_values).whole());
    return;
  }
  for (int level = 0; level <= levels.top; ++level) {
    std::map<size_t, size_t> parts;
    LoopKernel pass = Rows(p, g, vectors, cut, levels, row_values).segments(level, parts, plan.workspace);
    plan.kernels.push_back(std::move(pass));
    if (!parts.empty()) plan.kernels.push_back(Rows(p, g, vectors, cut, levels, row_values).together(level, parts));
  }
}

}  // namespace pyflame::gpu
