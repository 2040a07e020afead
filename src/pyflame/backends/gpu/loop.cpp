// See loop.h.
//
// A group without reductions is a kernel over its flattened space. A group with row reductions gives each row to a workgroup, which goes
// over the row once per level: a value's level is the number of reductions that must be known before it. Values that a later level needs
// again are computed again from the group's inputs; what is stored, is stored at the first level that knows it.
#include "pyflame/backends/gpu/loop.h"

#include <algorithm>
#include <map>
#include <set>

#include "pyflame/backends/gpu/kernel.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kBlock = 256;
constexpr int kMaxPointers = 64;

// What the kernel is made of, and how its arguments are filled from a RunContext.
struct Plan {
  std::string source;
  std::vector<int32_t> pointers;  // bindings, in the order of the kernel's arguments
  std::vector<int64_t> numbers;   // sizes and strides, likewise
  struct ParamUse {
    int32_t index;
    bool real;
  };
  std::vector<ParamUse> params;
  int64_t rows = 0, inner = 0;
  bool by_row = false;
};

class Builder {
 public:
  explicit Builder(const Problem& p) : p_(p), g_(p.group) {}

  Plan build() {
    const int rank = g_.space.size();
    // A column reduction, alone in its group, is a row reduction with the dims in the other order.
    columns_ = g_.roles[0] == Role::ColReduce;
    plan_.by_row = columns_ || std::find(g_.roles.begin(), g_.roles.end(), Role::RowReduce) != g_.roles.end();
    plan_.rows = plan_.inner = 1;
    for (int d = 0; d < rank; ++d)
      (plan_.by_row && (d >= g_.split) != columns_ ? plan_.inner : plan_.rows) *= g_.space[d];
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      PF_CHECK(!(is_reduction(i) && extreme(node(i).op)) || plan_.inner > 0 || plan_.rows == 0, Value,
               "{}: reduction over no elements; expected at least one element in each reduced dim",
               op_name(node(i).op));
    find_levels();
    std::string body = plan_.by_row ? row_body() : flat_body();
    std::string head;
    for (size_t i = 0; i < plan_.pointers.size(); ++i) head += fmt::format("void* b{}, ", i);
    for (size_t i = 0; i < plan_.params.size(); ++i)
      head += fmt::format("{} p{}, ", plan_.params[i].real ? "double" : "long long", i);
    for (size_t i = 0; i < plan_.numbers.size(); ++i) head += fmt::format("long long n{}, ", i);
    plan_.source = kernel_source({}, kBlock, fmt::format("({}long long rows, long long inner) {{\n{}}}", head, body));
    return std::move(plan_);
  }

 private:
  const Node& node(size_t i) const { return p_.node(i); }
  bool is_reduction(size_t i) const { return g_.roles[i] == Role::RowReduce || g_.roles[i] == Role::ColReduce; }

  int pointer(int32_t binding) {
    const auto at = std::find(plan_.pointers.begin(), plan_.pointers.end(), binding);
    if (at != plan_.pointers.end()) return static_cast<int>(at - plan_.pointers.begin());
    plan_.pointers.push_back(binding);
    return static_cast<int>(plan_.pointers.size()) - 1;
  }
  std::string number(int64_t value) {
    plan_.numbers.push_back(value);
    return fmt::format("n{}", plan_.numbers.size() - 1);
  }
  std::string param(const Operand& o) {
    const bool real = is_float(o.dtype);
    const auto at = std::find_if(plan_.params.begin(), plan_.params.end(),
                                 [&](const auto& u) { return u.index == o.index && u.real == real; });
    const auto i = at - plan_.params.begin();
    if (at == plan_.params.end()) plan_.params.push_back({o.index, real});
    return fmt::format("pf::as<{}>(p{})", stored_type(o.dtype), i);
  }

  static int64_t stride(const Operand& o, int d) { return o.shape[d] == 1 ? 0 : o.strides[d]; }

  // Offset of an operand at the current point: from the row `r` and the position `i` (flat: all in `i`).
  std::string offset(const Operand& o) {
    const std::string key = shape_key(o);
    if (const auto it = offsets_.find(key); it != offsets_.end()) return it->second;
    std::string text;
    const auto part = [&](int begin, int end, const char* index) {
      // Contiguous over these dims: the index itself.
      int64_t expect = 1;
      bool plain = true, zero = true;
      for (int d = end - 1; d >= begin; --d) {
        if (g_.space[d] == 1) continue;
        zero &= stride(o, d) == 0;
        plain &= stride(o, d) == expect;
        expect *= g_.space[d];
      }
      if (zero) return;
      if (!text.empty()) text += " + ";
      if (plain) {
        text += index;
        return;
      }
      const std::string scale = [&]() -> std::string {
        // One stride over all of these dims (a row's start, say).
        int64_t unit = 0, next = 0;
        for (int d = end - 1; d >= begin; --d) {
          if (g_.space[d] == 1) continue;
          if (unit == 0) unit = stride(o, d), next = unit * g_.space[d];
          else if (stride(o, d) != next) return "";
          else next *= g_.space[d];
        }
        return number(unit);
      }();
      if (!scale.empty()) {
        text += fmt::format("{} * {}", index, scale);
        return;
      }
      std::string rest = index, terms;
      for (int d = end - 1; d >= begin; --d) {
        if (g_.space[d] == 1) continue;
        bool last = true;
        for (int e = d - 1; e >= begin; --e) last &= g_.space[e] == 1;
        const std::string size = last ? "" : number(g_.space[d]);
        if (stride(o, d) != 0)
          terms += fmt::format("{}{} * {}", terms.empty() ? "" : " + ",
                               last ? fmt::format("({})", rest) : fmt::format("(({}) % {})", rest, size),
                               number(stride(o, d)));
        if (!last) rest = fmt::format("({}) / {}", rest, size);
      }
      text += terms;
    };
    const int rank = g_.space.size();
    if (plan_.by_row) {
      part(0, g_.split, columns_ ? "i" : "r");
      part(g_.split, rank, columns_ ? "r" : "i");
    } else {
      part(0, rank, "i");
    }
    if (text.empty()) text = "0";
    offsets_[key] = text;
    return text;
  }
  std::string shape_key(const Operand& o) const {
    std::string key;
    for (int d = 0; d < g_.space.size(); ++d) key += fmt::format("{},", g_.space[d] == 1 ? 0 : stride(o, d));
    return key;
  }

  // Node that gives a binding its value before node `i` of the group, or -1: it is read from memory.
  int writer(size_t i, int32_t binding) const {
    for (size_t j = i; j-- > 0;)
      for (const Operand& o : node(j).outs)
        if (o.index == binding) return static_cast<int>(j);
    return -1;
  }

  void find_levels() {
    level_.assign(g_.nodes.size(), 0);
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      for (const Operand& o : node(i).ins) {
        if (o.is_param) continue;
        const int w = writer(i, o.index);
        if (w < 0) continue;
        const auto j = static_cast<size_t>(w);
        level_[i] = std::max(level_[i], level_[j] + (is_reduction(j) ? 1 : 0));
      }
    top_ = level_.empty() ? 0 : *std::max_element(level_.begin(), level_.end());
  }

  std::string value(size_t i, const Operand& o) {
    if (o.is_param) return param(o);
    const int w = writer(i, o.index);
    if (w >= 0) return fmt::format("v{}", w);
    const std::string at = offset(o);
    const int b = pointer(o.index);
    return fmt::format("pf::load((const {}*)b{} + ({}))", stored_type(o.dtype), b, at);
  }

  std::string expression(size_t i) {
    const Node& n = node(i);
    const Operand& out = n.outs[0];
    const std::string result = stored_type(out.dtype);
    const std::string index = plan_.by_row ? "(pf::u64)(r * inner + i)" : "(pf::u64)i";
    switch (n.op) {
      case OpId::full: return value(i, n.ins[0]);
      case OpId::arange: {
        // start + index * step, in the output's own arithmetic.
        const std::string start = value(i, n.ins[0]), step = value(i, n.ins[1]);
        return fmt::format("pf::as<{0}>(({1}) + (pf::C<{0}>)(i + {3}) * ({2}))", result, start, step,
                           plan_.by_row ? "r * inner" : "0");
      }
      case OpId::rand_uniform:
        return fmt::format("pf::as<{0}>(pf::Uniform<{0}>::at((pf::u64){1}, (pf::u64){2}, {3}))", result, raw(n.ins[0]),
                           raw(n.ins[1]), index);
      case OpId::rand_normal:
        return fmt::format("pf::as<{0}>(pf::Normal<{0}>::at((pf::u64){1}, (pf::u64){2}, {3}))", result, raw(n.ins[0]),
                           raw(n.ins[1]), index);
      case OpId::rand_int:
        return fmt::format("pf::as<{0}>(pf::random_int((pf::u64){1}, (pf::u64){2}, {3}, {4}, {5}))", result,
                           raw(n.ins[0]), raw(n.ins[1]), index, raw(n.ins[2]), raw(n.ins[3]));
      default: break;
    }
    std::string arguments;
    const size_t decides = n.op == OpId::where ? 1 : 0;
    std::string type = fmt::format("pf::C<{}>", stored_type(n.ins[decides].dtype));
    // An integer into an op that gives floats is computed as the float.
    if (!is_float(n.ins[decides].dtype) && is_float(out.dtype) && n.op != OpId::cast)
      type = fmt::format("pf::C<{}>", result);
    for (size_t k = 0; k < n.ins.size(); ++k) {
      const bool condition = n.op == OpId::where && k == 0;
      arguments += fmt::format("{}({})({})", k ? ", " : "", condition ? "pf::u8" : type, value(i, n.ins[k]));
    }
    return fmt::format("pf::as<{}>(pf::{}<{}>({}))", result, op_name(n.op), type, arguments);
  }
  std::string raw(const Operand& o) {
    plan_.params.push_back({o.index, false});
    return fmt::format("p{}", plan_.params.size() - 1);
  }

  bool stored(size_t i) const {
    const int32_t b = node(i).outs[0].index;
    if (!g_.elided.empty() && g_.elided[static_cast<size_t>(b)]) return false;
    for (size_t j = i + 1; j < g_.nodes.size(); ++j)
      if (node(j).outs[0].index == b) return false;  // written again later
    return true;
  }
  std::string store(size_t i) {
    const Operand& o = node(i).outs[0];
    const std::string at = offset(o);
    const int b = pointer(o.index);
    return fmt::format("pf::store(({}*)b{} + ({}), v{});", stored_type(o.dtype), b, at, i);
  }
  std::string declare(size_t i) {
    return fmt::format("const pf::C<{}> v{} = {};", stored_type(node(i).outs[0].dtype), i, expression(i));
  }

  std::string flat_body() {
    std::string lines;
    for (size_t i = 0; i < g_.nodes.size(); ++i) lines += "    " + declare(i) + "\n";
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      if (stored(i)) lines += "    " + store(i) + "\n";
    return "  for (long long i = (long long)pf::group().x * pf::threads() + pf::thread(); i < rows; i += (long "
           "long)pf::groups().x "
           "* pf::threads()) {\n" +
           lines + "  }\n";
  }

  // Nodes that `needed` depends on, of Map role and up to a level: what has to be computed in a pass.
  void collect(size_t i, std::set<size_t>& needed) const {
    if (!needed.insert(i).second) return;
    for (const Operand& o : node(i).ins) {
      if (o.is_param) continue;
      const int w = writer(i, o.index);
      if (w >= 0 && g_.roles[static_cast<size_t>(w)] == Role::Map) collect(static_cast<size_t>(w), needed);
    }
  }

  static const char* start_of(OpId op) {
    switch (op) {
      case OpId::prod:
      case OpId::all: return "1";
      default: return "0";
    }
  }
  static std::string combine(OpId op, const std::string& a, const std::string& x) {
    switch (op) {
      case OpId::sum: return fmt::format("{} + {}", a, x);
      case OpId::prod: return fmt::format("{} * {}", a, x);
      case OpId::any: return fmt::format("({0} != 0 || {1} != 0)", a, x);
      case OpId::all: return fmt::format("({0} != 0 && {1} != 0)", a, x);
      case OpId::amax: return fmt::format("pf::maximum({}, {})", a, x);
      default: return fmt::format("pf::minimum({}, {})", a, x);
    }
  }
  static bool extreme(OpId op) { return op == OpId::amax || op == OpId::amin; }

  std::string row_body() {
    std::string text = "  for (long long r = pf::group().x; r < rows; r += pf::groups().x) {\n";
    for (int level = 0; level <= top_; ++level) {
      // Values of the row itself come first: they are known from the levels before.
      for (size_t i = 0; i < g_.nodes.size(); ++i)
        if (g_.roles[i] == Role::RowMap && level_[i] == level) {
          text += "  " + declare(i) + "\n";
          if (stored(i)) text += "  if (pf::thread() == 0) " + store(i) + "\n";
        }
      std::set<size_t> needed;
      std::vector<size_t> reduces, stores;
      for (size_t i = 0; i < g_.nodes.size(); ++i) {
        if (level_[i] != level) continue;
        if (is_reduction(i)) {
          reduces.push_back(i);
          collect(i, needed);
          needed.erase(i);
        } else if (g_.roles[i] == Role::Map && stored(i)) {
          stores.push_back(i);
          collect(i, needed);
        }
      }
      if (reduces.empty() && stores.empty()) continue;
      for (const size_t i : reduces) {
        const std::string type = fmt::format("pf::C<{}>", accumulator(i));
        text += fmt::format("  {0} a{1} = ({0}){2};\n", type, i, start_of(node(i).op));
        if (extreme(node(i).op)) text += fmt::format("  bool f{} = false;\n", i);
      }
      text += "  for (long long i = pf::thread(); i < inner; i += pf::threads()) {\n";
      for (const size_t i : needed) text += "    " + declare(i) + "\n";
      for (const size_t i : stores) text += "    " + store(i) + "\n";
      for (const size_t i : reduces) {
        const std::string x = fmt::format("(pf::C<{}>)({})", accumulator(i), value(i, node(i).ins[0]));
        if (extreme(node(i).op))
          text += fmt::format("    a{0} = f{0} ? {1} : {2}; f{0} = true;\n", i,
                              combine(node(i).op, fmt::format("a{}", i), x), x);
        else text += fmt::format("    a{} = {};\n", i, combine(node(i).op, fmt::format("a{}", i), x));
      }
      text += "  }\n";
      for (const size_t i : reduces) text += tree(i);
    }
    return text + "  }\n";
  }

  // Sums of 16-bit floats are accumulated as float32, integers as they are.
  std::string accumulator(size_t i) const { return stored_type(node(i).outs[0].dtype); }

  // The workgroup's tree: the same for every wave size, because it goes through LDS in a fixed order.
  std::string tree(size_t i) {
    const std::string type = fmt::format("pf::C<{}>", accumulator(i));
    const Node& n = node(i);
    std::string t;
    t += fmt::format("  PF_SHARED {0} s{1}[{2}];\n  s{1}[pf::thread()] = a{1};\n", type, i, kBlock);
    if (extreme(n.op)) t += fmt::format("  PF_SHARED bool t{0}[{1}];\n  t{0}[pf::thread()] = f{0};\n", i, kBlock);
    t += "  pf::barrier();\n";
    t += fmt::format("  for (int step = {}; step > 0; step >>= 1) {{\n    if ((int)pf::thread() < step) {{\n",
                     kBlock / 2);
    const std::string a = fmt::format("s{}[pf::thread()]", i), b = fmt::format("s{}[pf::thread() + step]", i);
    if (extreme(n.op))
      t += fmt::format(
          "      if (t{0}[pf::thread() + step]) {{ {1} = t{0}[pf::thread()] ? {2} : {3}; t{0}[pf::thread()] = true; "
          "}}\n",
          i, a, combine(n.op, a, b), b);
    else t += fmt::format("      {} = {};\n", a, combine(n.op, a, b));
    t += "    }\n    pf::barrier();\n  }\n";
    t += fmt::format("  const pf::C<{0}> v{1} = pf::as<{0}>(s{1}[0]);\n", stored_type(n.outs[0].dtype), i);
    t += "  pf::barrier();\n";
    if (stored(i)) t += "  if (pf::thread() == 0) " + store(i) + "\n";
    return t;
  }

  const Problem& p_;
  const Group& g_;
  Plan plan_;
  bool columns_ = false;
  std::vector<int> level_;
  int top_ = 0;
  std::map<std::string, std::string> offsets_;
};

class Loop final : public Executable {
 public:
  Loop(DeviceType type, Plan plan) : type_(type), plan_(std::move(plan)), kernel_(type, kBlock, plan_.source) {}
  void run(const RunContext& ctx) override {
    if (plan_.rows == 0) return;
    std::vector<void*> pointers;
    std::vector<double> reals(plan_.params.size());
    std::vector<int64_t> integers(plan_.params.size());
    std::vector<void*> arguments;
    pointers.reserve(plan_.pointers.size());
    for (const int32_t b : plan_.pointers) pointers.push_back(ctx.bindings[b]);
    for (void*& p : pointers) arguments.push_back(&p);
    for (size_t i = 0; i < plan_.params.size(); ++i) {
      const Param& p = ctx.params[plan_.params[i].index];
      reals[i] = p.as_f64();
      integers[i] = p.as_i64();
      arguments.push_back(plan_.params[i].real ? static_cast<void*>(&reals[i]) : static_cast<void*>(&integers[i]));
    }
    for (int64_t& n : plan_.numbers) arguments.push_back(&n);
    arguments.push_back(&plan_.rows);
    arguments.push_back(&plan_.inner);
    const int64_t wanted = plan_.by_row ? plan_.rows : (plan_.rows + kBlock - 1) / kBlock;
    const auto grid =
        static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{device(type_, ctx.device).arch().compute_units} * 32));
    kernel_.run(ctx.device, {grid, 1, 1}, arguments.data());
  }

 private:
  DeviceType type_;
  Plan plan_;
  Kernel kernel_;
};

Refusal accepts(const Problem& p) {
  if (p.group.kind != GroupKind::Loop) return "not a loop of elementwise ops and reductions";
  for (const Role r : p.group.roles)
    if (r == Role::ColReduce && p.group.nodes.size() > 1) return "column reductions are kernels of their own";
  std::set<int32_t> bindings, written;
  for (size_t i = 0; i < p.size(); ++i) {
    for (const Operand& o : p.node(i).ins)
      if (!o.is_param) bindings.insert(o.index);
    for (const Operand& o : p.node(i).outs) bindings.insert(o.index), written.insert(o.index);
  }
  if (static_cast<int>(bindings.size()) > kMaxPointers) return "more operands than a kernel takes";
  const bool rows = std::find(p.group.roles.begin(), p.group.roles.end(), Role::RowReduce) != p.group.roles.end();
  if (rows && p.size() > 1)  // a later pass would read what an earlier one has overwritten
    for (size_t i = 0; i < p.size(); ++i)
      for (const Operand& o : p.node(i).ins)
        if (!o.is_param && written.count(o.index)) {
          bool before = false;
          for (size_t j = 0; j < i; ++j) before |= p.node(j).outs[0].index == o.index;
          if (!before) return "writes in place what another pass reads";
        }
  return std::nullopt;
}

std::unique_ptr<Executable> make(const Problem& p) {
  return std::make_unique<Loop>(p.graph.device.type, Builder(p).build());
}

}  // namespace

std::string loop_source(const Problem& p) { return Builder(p).build().source; }

const Impl kLoop{"gpu.loop", accepts, make};

}  // namespace pyflame::gpu
