// Writes the nodes of a group as C++ expressions.
#include "pyflame/backends/gpu/loops/expression.h"

#include <algorithm>
#include <bit>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

uint64_t Expressions::ParamUse::bits(Params params) const {
  const Param& p = params[param];
  return real ? std::bit_cast<uint64_t>(p.as_f64()) : static_cast<uint64_t>(p.as_i64());
}

std::string Expressions::param(ParamId id, bool real) {
  auto at =
      std::find_if(params_.begin(), params_.end(), [&](const auto& u) { return u.param == id && u.real == real; });
  if (at == params_.end()) at = params_.insert(at, {id, real});
  return fmt::format("p{}", at - params_.begin());
}

std::string Expressions::arguments() const {
  std::string text;
  for (size_t i = 0; i < params_.size(); ++i)
    text += fmt::format("{} p{}, ", params_[i].real ? "double" : "long long", i);
  return text;
}

int Expressions::writer(size_t i, BindingId binding) const {
  for (size_t j = i; j-- > 0;)
    for (const Operand& o : p_.node(j).outs)
      if (o.binding == binding) return static_cast<int>(j);
  return -1;
}

bool Expressions::stored(size_t i) const {
  const Operand& out = p_.node(i).outs[0];
  if (!p_.group.stores(out)) return false;
  for (size_t j = i + 1; j < p_.size(); ++j)
    if (p_.node(j).outs[0].binding == out.binding) return false;  // a later node writes it again
  return true;
}

std::string Expressions::value(size_t i, const Operand& o) {
  if (o.is_param) return fmt::format("pf::as<{}>({})", stored_type(o.dtype), param(o.param, is_float(o.dtype)));
  const int w = writer(i, o.binding);
  return w >= 0 ? fmt::format("v{}", w) : read_(o);
}

// Ops without tensor inputs: their value depends only on the index and on params.
std::string Expressions::source(size_t i) {
  const Node& n = p_.node(i);
  const std::string result = stored_type(n.outs[0].dtype);
  const auto raw = [&](size_t k) { return param(n.ins[k].param, false); };
  switch (n.op) {
    case OpId::full: return value(i, n.ins[0]);
    case OpId::arange: {  // start + index * step, in the arithmetic of the output's dtype
      const std::string start = value(i, n.ins[0]), step = value(i, n.ins[1]);
      return fmt::format("pf::as<{0}>(({1}) + (pf::C<{0}>)({3}) * ({2}))", result, start, step, index_);
    }
    case OpId::rand_uniform:
    case OpId::rand_normal: {
      if (std::find(neighbours_.begin(), neighbours_.end(), i) != neighbours_.end())
        return fmt::format("pf::as<{}>(z{}[j])", result, i);
      const std::string seed = raw(0), at = raw(1);
      return fmt::format("pf::as<{0}>(pf::{1}<{0}>::at((pf::u64){2}, (pf::u64){3}, (pf::u64)({4})))", result,
                         n.op == OpId::rand_uniform ? "Uniform" : "Normal", seed, at, index_);
    }
    case OpId::rand_int: {
      const std::string seed = raw(0), at = raw(1), low = raw(2), high = raw(3);
      return fmt::format("pf::as<{}>(pf::random_int((pf::u64){}, (pf::u64){}, (pf::u64)({}), {}, {}))", result, seed,
                         at, index_, low, high);
    }
    default: PF_FAIL(NotImplemented, "{}: fused loops cannot generate its values", op_name(n.op));
  }
}

std::string Expressions::declare_neighbours(size_t i, int64_t count, const std::string& first) {
  const Node& n = p_.node(i);
  if ((n.op != OpId::rand_normal && n.op != OpId::rand_uniform) || n.outs[0].dtype == DType::float64 || count < 2)
    return "";
  neighbours_.push_back(i);
  const std::string seed = param(n.ins[0].param, false), at = param(n.ins[1].param, false);
  return fmt::format("const pf::{}<{}, {}> z{}((pf::u64){}, (pf::u64){}, (pf::u64)({}));",
                     n.op == OpId::rand_normal ? "Normals" : "Uniforms", stored_type(n.outs[0].dtype), count, i, seed,
                     at, first);
}

std::string Expressions::declare(size_t i) {
  const Node& n = p_.node(i);
  const Operand& out = n.outs[0];
  const std::string result = stored_type(out.dtype);
  std::string text;
  if (n.info().cls == OpClass::Source) {
    text = source(i);
  } else {
    const size_t decides = n.op == OpId::where ? 1 : 0;
    std::string type = fmt::format("pf::C<{}>", stored_type(n.ins[decides].dtype));
    // An integer input of an op with a float result is converted to the float first.
    if (!is_float(n.ins[decides].dtype) && is_float(out.dtype) && n.op != OpId::cast && !n.info().bits_kept)
      type = fmt::format("pf::C<{}>", result);
    std::string arguments;
    for (size_t k = 0; k < n.ins.size(); ++k) {
      const bool condition = n.op == OpId::where && k == 0;
      arguments += fmt::format("{}({})({})", k ? ", " : "", condition ? "pf::u8" : type, value(i, n.ins[k]));
    }
    text = fmt::format("pf::as<{}>(pf::{}<{}>({}))", result, op_name(n.op), type, arguments);
  }
  return fmt::format("const pf::C<{}> v{} = {};", result, i, text);
}

}  // namespace pyflame::gpu
