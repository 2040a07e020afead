// For how many nodes of a loop a kernel has registers. See docs/internals/fusion.md.
//
// A wave has about 100 scalar registers. A kernel's arguments stay in them for the whole loop; the rest is for addresses, masks of lanes and
// the constants of functions. So the measure is the size of the arguments: what fits depends on the functions that the loop calls, and on
// whether a loop over a row or a column is around them. The numbers below are smaller than the arguments of every loop of an op case that
// spilled on an AMD GPU with waves of 64 or of 32 (tools/loop_code.py).
#include <algorithm>
#include <set>

#include "pyflame/backends/gpu/loops/loop.h"
#include "pyflame/backends/gpu/loops/loop_text.h"

namespace pyflame::gpu {

namespace {

// What a node computes: arithmetic; a function such as exp; one with many branches, such as pow.
enum class Weight : uint8_t { Arithmetic, Function, Branches };

bool in_double(const Node& n) {
  const auto is = [](const Operand& o) { return o.dtype == DType::float64; };
  return std::any_of(n.ins.begin(), n.ins.end(), is) || std::any_of(n.outs.begin(), n.outs.end(), is);
}

Weight weight_of(const Node& n, Role role) {
  constexpr uint8_t kBranches = 16;
  const OpInfo& info = n.info();
  if (role != Role::Map || info.cpu_cost == 1) return Weight::Arithmetic;  // other roles: once per row
  return info.gpu_cost >= kBranches && info.cls != OpClass::Source ? Weight::Branches : Weight::Function;
}

// 32-bit words of arguments.
int64_t most_words(Weight w, bool doubles, bool reduces) {
  switch (w) {
    case Weight::Arithmetic: return reduces ? 55 : 72;
    case Weight::Function: return reduces ? (doubles ? 29 : 48) : (doubles ? 38 : 72);
    case Weight::Branches: return reduces ? (doubles ? 0 : 18) : (doubles ? 30 : 72);
  }
  return 0;
}

// The arguments of a loop's first nodes, which grow with each node.
class ArgumentWords {
 public:
  explicit ArgumentWords(const Problem& p)
      : g_(p), e_(p, nullptr), word_(g_.wide() ? 2 : 1), reduces_(p.group.split < p.group.space.size()) {
    if (reduces_) dims_ = {g_.merged(0, p.group.split), g_.merged(p.group.split, p.group.space.size())};
    else dims_ = {g_.merged(flat_order(p))};
    for (const auto& dims : dims_) words_ += static_cast<int64_t>(dims.size() - 1) * (g_.wide() ? 2 : 3);
    words_ += (reduces_ ? 3 : 1) * word_;  // the sizes
  }

  void add(const Problem& p, size_t i) {
    for (const Operand& o : p.node(i).ins) {
      if (o.is_param) words_ += params_.insert(o.param).second ? 2 : 0;
      else if (e_.writer(i, o.binding) < 0) access(o);
    }
    if (e_.stored(i)) access(p.node(i).outs[0]);
    if (reduces_ && p.group.roles[i] == Role::Map) words_ += masks(p, i);
  }
  int64_t words() const { return words_; }

 private:
  void access(const Operand& o) {
    if (pointers_.insert(o.binding).second) words_ += 2;
    const size_t a = g_.access(o);
    for (size_t k = 0; k < dims_.size(); ++k) {
      std::vector<int64_t> strides;
      for (const Dim& d : dims_[k]) strides.push_back(d.strides[a]);
      if (!strides_[k].insert(strides).second) continue;
      if (k + 1 == dims_.size() && strides.back() == 1) strides.pop_back();
      words_ += word_ * std::count_if(strides.begin(), strides.end(), [](int64_t s) { return s != 0; });
    }
  }

  // A lane of a reduction takes 8 elements at once. A bool that is stored, or used more than once, stays in two registers for each.
  int64_t masks(const Problem& p, size_t i) const {
    const Operand& out = p.node(i).outs[0];
    if (out.dtype != DType::bool_) return 0;
    int uses = e_.stored(i) ? 2 : 0;
    for (size_t j = i + 1; j < p.size(); ++j)
      for (const Operand& o : p.node(j).ins) uses += !o.is_param && o.binding == out.binding;
    return uses > 1 ? 8 * 2 : 0;
  }

  const Geometry g_;
  const Expressions e_;
  const int64_t word_;  // of an index
  const bool reduces_;
  std::vector<std::vector<Dim>> dims_;  // outer and inner ones
  std::set<BindingId> pointers_;
  std::set<ParamId> params_;
  std::set<std::vector<int64_t>> strides_[2];
  int64_t words_ = 0;
};

// What a loop's first nodes compute.
struct Computed {
  Weight weight = Weight::Arithmetic;
  bool doubles = false, reduces = false, bools = false;
  int large_functions = 0;  // each has the constants of several polynomials
  void add(const Problem& p, size_t i) {
    weight = std::max(weight, weight_of(p.node(i), p.group.roles[i]));
    doubles |= in_double(p.node(i));
    reduces |= is_reduction(p.group.roles[i]);
    bools |= p.node(i).outs[0].dtype == DType::bool_;
    large_functions += p.node(i).info().gpu_cost >= kLarge;
  }
  int64_t most() const { return most_words(weight, doubles, reduces); }
};

// At least the arguments of the whole loop, found without its strides.
int64_t most_arguments(const Problem& p) {
  const int64_t rank = p.group.space.size();
  int64_t words = 3 + 3 * rank;
  for (size_t i = 0; i < p.size(); ++i) {
    for (const Operand& o : p.node(i).ins) words += o.is_param ? 2 : 2 + rank;
    words += 2 + rank;
  }
  return 2 * words;  // indices of 64 bits
}

}  // namespace

size_t most_nodes(const Problem& p) {
  Computed whole;
  for (size_t i = 0; i < p.size(); ++i) whole.add(p, i);
  if (most_arguments(p) <= whole.most() && !(whole.reduces && whole.bools) && whole.large_functions <= 1)
    return p.size();
  ArgumentWords arguments(p);
  Computed first;
  for (size_t i = 0; i < p.size(); ++i) {
    arguments.add(p, i);
    first.add(p, i);
    if (arguments.words() > first.most() || first.large_functions > 1) return i;
  }
  return p.size();
}

}  // namespace pyflame::gpu
