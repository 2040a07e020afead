// Writes the common parts of generated kernels.
#include "pyflame/backends/gpu/loops/loop_text.h"

#include <algorithm>
#include <cstring>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/device/divider.h"

namespace pyflame::gpu {

namespace {

Dims strides_over(const Operand& o) {
  Dims s = o.strides;
  for (int d = 0; d < s.size(); ++d)
    if (o.shape[d] == 1) s[d] = 0;
  return s;
}

// A kernel's argument, as the words of a LoopArgument.
template <class T>
LoopArgument by_value(const T& value) {
  LoopArgument a{LoopArgument::Value, {}, {}, {}, sizeof(T)};
  static_assert(sizeof(T) <= sizeof(a.value));
  std::memcpy(a.value.data(), &value, sizeof(T));
  return a;
}

}  // namespace

Geometry::Geometry(const Problem& p) : g_(p.group) {
  wide_ = g_.space.numel() >= (int64_t{1} << 31) - (1 << 24);
  const Expressions e(p, nullptr);
  constexpr size_t kLongName = 60;
  for (size_t i = 0; i < p.size() && name_.size() < kLongName; ++i) name_ += fmt::format("_{}", op_name(p.node(i).op));
  for (size_t i = 0; i < p.size(); ++i)
    for (const auto* operands : {&p.node(i).ins, &p.node(i).outs})
      for (const Operand& o : *operands) {
        if (o.is_param || (operands == &p.node(i).outs ? !e.stored(i) : e.writer(i, o.binding) >= 0)) continue;
        Access a{o.binding, o.dtype, strides_over(o)};
        int64_t reach = 0;
        for (int d = 0; d < a.strides.size(); ++d) {
          wide_ |= a.strides[d] < 0;
          reach += (o.shape[d] - 1) * a.strides[d];
        }
        wide_ |= reach >= (int64_t{1} << 31) - (1 << 24);
        const auto same = [&](const Access& b) {
          return b.binding == a.binding && b.dtype == a.dtype && b.strides == a.strides;
        };
        if (std::none_of(accesses_.begin(), accesses_.end(), same)) accesses_.push_back(std::move(a));
      }
}

size_t Geometry::access(const Operand& o) const {
  const Dims strides = strides_over(o);
  for (size_t i = 0; i < accesses_.size(); ++i)
    if (accesses_[i].binding == o.binding && accesses_[i].dtype == o.dtype && accesses_[i].strides == strides) return i;
  PF_FAIL(Runtime, "loop: an operand is none of its group's; got binding {}", o.binding.value());
}

std::vector<Dim> Geometry::merged(const std::vector<int>& dims) const {
  std::vector<Dim> out;
  for (const int d : dims) {
    if (g_.space[d] == 1) continue;
    Dim dim{g_.space[d], {}};
    for (const Access& a : accesses_) dim.strides.push_back(a.strides[d]);
    bool joins = !out.empty();
    for (size_t i = 0; joins && i < accesses_.size(); ++i) joins = out.back().strides[i] == dim.strides[i] * dim.size;
    if (joins) {
      dim.size *= out.back().size;
      out.back() = std::move(dim);
    } else {
      out.push_back(std::move(dim));
    }
  }
  if (out.empty()) out.push_back({1, std::vector<int64_t>(accesses_.size(), 0)});
  return out;
}

std::vector<Dim> Geometry::merged(int begin, int end) const {
  std::vector<int> dims;
  for (int d = begin; d < end; ++d) dims.push_back(d);
  return merged(dims);
}

bool is_reduction(Role r) { return r == Role::RowReduce || r == Role::ColReduce; }

// Sums of 16-bit floats accumulate in float32, integers in their own type. Products easily leave float32's range.
std::string accumulator(const Node& n) {
  if (n.op == OpId::prod && is_float(n.outs[0].dtype)) return "double";
  return fmt::format("pf::C<{}>", stored_type(n.outs[0].dtype));
}

size_t accumulator_bytes(const Node& n) {
  if (n.op == OpId::prod && is_float(n.outs[0].dtype)) return 8;
  const DType d = n.outs[0].dtype;
  return is_float(d) && d != DType::float64 ? 4 : static_cast<size_t>(dtype_size(d));
}

std::string reduction_op(const Node& n) {
  const char* name = "";
  switch (n.op) {
    case OpId::sum: name = "Sums"; break;
    case OpId::prod: name = "Products"; break;
    case OpId::any: name = "Anys"; break;
    case OpId::all: name = "Alls"; break;
    case OpId::amax: name = "Largests"; break;
    case OpId::amin: name = "Smallests"; break;
    default: PF_FAIL(NotImplemented, "{}: fused loops have no such reduction", op_name(n.op));
  }
  return fmt::format("pf::{}<{}>", name, accumulator(n));
}

KernelText::KernelText(const Geometry& geometry, std::vector<Dim> outer, std::vector<Dim> inner)
    : geometry_(geometry), outer_(std::move(outer)), inner_(std::move(inner)) {
  for (const Dim& d : outer_) rows_ *= d.size;
  for (const Dim& d : inner_) columns_ *= d.size;
}

std::string KernelText::argument(LoopArgument a, std::vector<LoopArgument>& list, const char* prefix) {
  list.push_back(a);
  return fmt::format("{}{}", prefix, list.size() - 1);
}

std::string KernelText::pointer(BindingId binding) {
  for (size_t i = 0; i < pointers_.size(); ++i)
    if (pointers_[i].binding == binding) return fmt::format("b{}", i);
  return argument({LoopArgument::Pointer, binding}, pointers_, "b");
}

std::string KernelText::typed(size_t access) {
  const Access& a = geometry_.accesses()[access];
  return fmt::format("({}*){}", stored_type(a.dtype), pointer(a.binding));
}

std::string KernelText::workspace(size_t offset) {
  return argument({LoopArgument::Workspace, {}, {}, {offset, 0}}, workspaces_, "w");
}

std::string KernelText::number(int64_t value) {
  return argument({LoopArgument::Value, {}, {}, {static_cast<uint64_t>(value), 0}, geometry_.wide() ? 8u : 4u},
                  numbers_, "n");
}

std::string KernelText::divider(int64_t value) {
  return argument(
      geometry_.wide() ? by_value(pf::WideDivider{value}) : by_value(pf::divider_of(static_cast<uint32_t>(value))),
      dividers_, "d");
}

std::string KernelText::coordinates(bool inner, const std::string& index, int64_t unit) {
  const std::vector<Dim>& dims = inner ? inner_ : outer_;
  const char prefix = inner ? 'c' : 'r';
  const std::string scale = unit == 1 ? "" : fmt::format(" * {}", unit);
  if (dims.size() == 1) return fmt::format("const I {0}0 = ({1}){2}; (void){0}0;\n", prefix, index, scale);
  std::vector<Names>& known = names_[inner ? 1 : 0];
  auto names = std::find_if(known.begin(), known.end(), [&](const Names& n) { return n.unit == unit; });
  if (names == known.end()) {
    Names n{unit, {}};
    for (size_t d = 1; d < dims.size(); ++d)
      n.dividers.push_back(divider(d + 1 == dims.size() ? dims[d].size / unit : dims[d].size));
    names = known.insert(known.end(), std::move(n));
  }
  std::string text, from = index;
  for (size_t d = dims.size() - 1; d > 0; --d) {
    const std::string& by = names->dividers[d - 1];
    const std::string quotient = d == 1 ? fmt::format("{}0", prefix) : fmt::format("{}q{}", prefix, d);
    text += fmt::format("const I {0} = {1}.div({2}); const I {3}{4} = (({2}) - {0} * {1}.d){5};\n", quotient, by, from,
                        prefix, d, d + 1 == dims.size() ? scale : "");
    text += fmt::format("(void){}{}; ", prefix, d);
    from = quotient;
  }
  return text + fmt::format("(void){}0;\n", prefix);
}

const std::vector<std::string>& KernelText::strides(bool inner, size_t access) {
  const std::vector<Dim>& dims = inner ? inner_ : outer_;
  auto& all = strides_[inner ? 1 : 0];
  all.resize(geometry_.accesses().size());
  std::vector<std::string>& names = all[access];
  if (!names.empty()) return names;
  const auto same = [&](size_t other) {
    return !all[other].empty() &&
           std::all_of(dims.begin(), dims.end(), [&](const Dim& d) { return d.strides[other] == d.strides[access]; });
  };
  for (size_t other = 0; other < all.size(); ++other)
    if (same(other)) return names = all[other];
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t s = dims[d].strides[access];
    const bool unit = inner && d + 1 == dims.size() && s == 1;
    names.push_back(s == 0 ? "0" : unit ? "1" : number(s));
  }
  return names;
}

std::string KernelText::step(size_t access) { return strides(true, access).back(); }

std::string KernelText::offset(bool inner, size_t access) {
  const std::vector<Dim>& dims = inner ? inner_ : outer_;
  const std::vector<std::string>& names = strides(inner, access);
  std::string text;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (names[d] == "0") continue;
    text += fmt::format("{}{}{}{}", text.empty() ? "" : " + ", inner ? 'c' : 'r', d,
                        names[d] == "1" ? "" : " * " + names[d]);
  }
  return text;
}

int64_t KernelText::stride(size_t access) const { return inner_.back().strides[access]; }

bool KernelText::neighbours(size_t access, int64_t n) const {
  if (stride(access) != 1) return false;
  const int64_t piece = std::min<int64_t>(n, 16 / dtype_size(geometry_.accesses()[access].dtype));
  for (const auto* dims : {&outer_, &inner_})
    for (const Dim& d : *dims)
      if (&d != &inner_.back() && d.strides[access] % piece != 0) return false;
  return true;
}

void KernelText::need_alignment(size_t access, int64_t n) {
  const Access& a = geometry_.accesses()[access];
  const auto bytes = static_cast<uint32_t>(std::min<int64_t>(16, n * dtype_size(a.dtype)));
  for (auto& at : kernel_.aligned)
    if (at.binding == a.binding) {
      at.bytes = std::max(at.bytes, bytes);
      return;
    }
  kernel_.aligned.push_back({a.binding, bytes});
}

LoopKernel KernelText::finish(const Expressions& expressions, const std::string& body, std::array<unsigned, 3> grid,
                              std::initializer_list<const char*> files) {
  std::string head;
  const auto add = [&](const std::vector<LoopArgument>& list, const char* type, const char* prefix) {
    for (size_t i = 0; i < list.size(); ++i) head += fmt::format("{} {}{}, ", type, prefix, i);
    kernel_.arguments.insert(kernel_.arguments.end(), list.begin(), list.end());
  };
  add(pointers_, "void*", "b");
  add(workspaces_, "void*", "w");
  head += expressions.arguments();
  for (const auto& use : expressions.params()) kernel_.arguments.push_back({LoopArgument::Parameter, {}, use});
  add(numbers_, "I", "n");
  add(dividers_, "D", "d");
  if (!head.empty()) head.resize(head.size() - 2);
  kernel_.source = kernel_source(
      files, kGroupThreads, fmt::format("({}) {{\n{}}}", head, body),
      geometry_.wide() ? "typedef pf::i64 I; typedef pf::WideDivider D;" : "typedef pf::u32 I; typedef pf::Divider D;",
      geometry_.name());
  kernel_.grid = grid;
  return std::move(kernel_);
}

}  // namespace pyflame::gpu
