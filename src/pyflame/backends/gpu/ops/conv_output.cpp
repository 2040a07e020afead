// Writes the fused ops after a convolution as a functor: a normalisation in evaluation mode, a bias, an activation, a
// residual.
#include "pyflame/backends/gpu/ops/conv_output.h"

#include <algorithm>

#include "pyflame/base/error.h"

namespace pyflame::gpu {

ConvOutput::ConvOutput(const Problem& p)
    : space_(p.root().outs[0].shape), made_(p.root().outs[0].strides), dtype_(p.root().outs[0].dtype) {
  Expressions expressions(p, [this](const Operand& o) {
    return fmt::format("pf::load((const {}*){} + ({}))", stored_type(o.dtype), pointer(o), address(o));
  });
  // The sum is rounded to its own dtype before it is used.
  body_ = fmt::format("const pf::C<{0}> v0 = pf::as<{0}>(x); ", stored_type(dtype_));
  for (size_t i = 1; i < p.size(); ++i) body_ += expressions.declare(i) + " ";
  for (size_t i = 0; i < p.size(); ++i) {
    if (!expressions.stored(i)) continue;
    const Operand& o = p.node(i).outs[0];
    if (address(o) != "at") refused_ = fmt::format("{}: a result has another layout", op_name(p.node(i).op));
    if (dtype_size(o.dtype) > dtype_size(dtype_))
      refused_ = fmt::format("{}: a result of a wider dtype is kept", op_name(p.node(i).op));
    body_ += fmt::format("pf::store(({}*){} + at, v{}); ", stored_type(o.dtype), pointer(o), i);
  }
  params_ = expressions.params();
  params_text_ = expressions.arguments();
}

std::string ConvOutput::pointer(const Operand& o) {
  auto at = std::find(bindings_.begin(), bindings_.end(), o.binding);
  if (at == bindings_.end()) at = bindings_.insert(at, o.binding);
  return fmt::format("e{}", at - bindings_.begin());
}

std::string ConvOutput::address(const Operand& o) {
  const Dims strides = broadcast_strides(o.shape, o.strides, space_);
  bool same = true, by_channel = true;
  for (int d = 0; d < space_.size(); ++d) {
    if (space_[d] == 1) continue;
    same &= strides[d] == made_[d];
    by_channel &= d == 1 || strides[d] == 0;
  }
  if (same) return "at";
  if (!by_channel) {
    refused_ = "an operand has neither the layout of the result nor one number for each channel";
    return "0";
  }
  if (space_[1] == 1 || strides[1] == 0) return "0";
  numbers_.push_back(strides[1]);
  return fmt::format("channel * q{}", numbers_.size() - 1);
}

std::string ConvOutput::parameters() const {
  std::string text;
  for (size_t i = 0; i < bindings_.size(); ++i) text += fmt::format(", void* e{}", i);
  for (size_t i = 0; i < numbers_.size(); ++i) text += fmt::format(", long long q{}", i);
  if (!params_text_.empty()) text += ", " + params_text_.substr(0, params_text_.size() - 2);
  return text;
}

std::string ConvOutput::text() const {
  std::string members, values;
  const auto member = [&](const char* type, const std::string& name) {
    members += fmt::format("{} {}; ", type, name);
    values += (values.empty() ? "" : ", ") + name;
  };
  for (size_t i = 0; i < bindings_.size(); ++i) member("void*", fmt::format("e{}", i));
  for (size_t i = 0; i < numbers_.size(); ++i) member("long long", fmt::format("q{}", i));
  for (size_t i = 0; i < params_.size(); ++i) member(params_[i].real ? "double" : "long long", fmt::format("p{}", i));
  return fmt::format(
      "struct Out {{ {}PF_DEVICE void operator()(pf::i64 at, pf::i64 channel, pf::C<{}> x) const {{ (void)at, "
      "(void)channel; {}}} }}; const Out out = {{{}}};",
      members, stored_type(dtype_), body_, values);
}

void ConvOutput::append(Arguments& arguments, const RunContext& ctx) {
  pointers_.clear(), values_.clear();
  for (const BindingId b : bindings_) pointers_.push_back(ctx.bindings[b]);
  for (const auto& use : params_) values_.push_back(use.bits(ctx.params));
  for (void* const& x : pointers_) arguments.add(x);
  for (const int64_t& x : numbers_) arguments.add(x);
  for (const uint64_t& x : values_) arguments.add(x);
}

}  // namespace pyflame::gpu
