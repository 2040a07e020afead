// Writes the fused ops after a matrix product as a functor.
#include "pyflame/backends/gpu/ops/gemm.h"

#include <algorithm>

#include "pyflame/base/error.h"

namespace pyflame::gpu {

Output::Output(const Problem& p) : space_(p.root().outs[0].shape), dtype_(p.root().outs[0].dtype) {
  Expressions expressions(p, [this](const Operand& o) {
    return fmt::format("pf::load((const {}*){} + ({}))", stored_type(o.dtype), pointer(o), address(o));
  });
  // The product is rounded to its own dtype before it is used.
  body_ = fmt::format("const pf::C<{0}> v0 = pf::as<{0}>(x); ", stored_type(p.root().outs[0].dtype));
  for (size_t i = 1; i < p.size(); ++i) body_ += expressions.declare(i) + " ";
  many_body_ = body_;
  many_ = p.size() == 1 ? 8 : 4;  // the code of `out` is repeated this many times
  bool many = true;
  for (size_t i = 0; i < p.size(); ++i) {
    if (!expressions.stored(i)) continue;
    const Operand& o = p.node(i).outs[0];
    const std::string type = stored_type(o.dtype), to = fmt::format("({}*){} + ({})", type, pointer(o), address(o));
    body_ += fmt::format("pf::store({}, v{}); ", to, i);
    many_body_ += fmt::format("pf::store(&y{0}[i], v{0}); ", i);
    many_vectors_ += fmt::format("pf::Vec<{}, kMany> y{}; ", type, i);
    many_stores_ += fmt::format("pf::store_vec({}, y{}); ", to, i);
    many_whole_ += fmt::format("(pf::u64){} % (kMany * sizeof({})) == 0 && ", pointer(o), type);
    const Dims strides = broadcast_strides(o.shape, o.strides, space_);
    for (int d = 0; d + 1 < space_.size(); ++d) many &= space_[d] == 1 || strides[d] % many_ == 0;
    many &= strides.back() == 1;
  }
  if (!many) many_ = 1;
  params_ = expressions.params();
  params_text_ = expressions.arguments();
}

std::string Output::pointer(const Operand& o) {
  auto at = std::find(bindings_.begin(), bindings_.end(), o.binding);
  if (at == bindings_.end()) at = bindings_.insert(at, o.binding);
  return fmt::format("e{}", at - bindings_.begin());
}

std::string Output::address(const Operand& o) {
  // The root keeps its own shape; the other operands have the rank of the space, with size 1 where they are broadcast.
  const Dims strides = broadcast_strides(o.shape, o.strides, space_);
  const int r = space_.size();
  const auto number = [&](int64_t value) {
    numbers_.push_back(value);
    return fmt::format("q{}", numbers_.size() - 1);
  };
  std::string text;
  const auto term = [&](const std::string& index, int64_t stride) {
    if (stride == 0) return;
    if (!text.empty()) text += " + ";
    text += stride == 1 ? index : fmt::format("{} * {}", index, number(stride));
  };
  if (space_[r - 2] > 1) term("row", strides[r - 2]);
  if (space_[r - 1] > 1) term("col", strides[r - 1]);
  // If one stride covers all batch dims, no division is needed.
  int64_t unit = 0, next = 0;
  bool even = true, first = true;
  for (int d = r - 3; d >= 0; --d) {
    if (space_[d] == 1) continue;
    if (first) unit = strides[d];
    else even &= strides[d] == next;
    first = false;
    next = strides[d] * space_[d];
  }
  if (even) {
    term("z", unit);
  } else {
    std::string rest = "z";
    for (int d = r - 3; d >= 0; --d) {
      if (space_[d] == 1) continue;
      const std::string size = number(space_[d]);
      term(fmt::format("({} % {})", rest, size), strides[d]);
      rest = fmt::format("({} / {})", rest, size);
    }
  }
  return text.empty() ? "0" : text;
}

std::string Output::parameters() const {
  std::string text;
  for (size_t i = 0; i < bindings_.size(); ++i) text += fmt::format(", void* e{}", i);
  for (size_t i = 0; i < numbers_.size(); ++i) text += fmt::format(", long long q{}", i);
  if (!params_text_.empty()) text += ", " + params_text_.substr(0, params_text_.size() - 2);
  return text;
}

std::string Output::text(bool swapped, bool many) const {
  std::string members, values;
  const auto member = [&](const char* type, const std::string& name) {
    members += fmt::format("{} {}; ", type, name);
    values += (values.empty() ? "" : ", ") + name;
  };
  for (size_t i = 0; i < bindings_.size(); ++i) member("void*", fmt::format("e{}", i));
  for (size_t i = 0; i < numbers_.size(); ++i) member("long long", fmt::format("q{}", i));
  for (size_t i = 0; i < params_.size(); ++i) member(params_[i].real ? "double" : "long long", fmt::format("p{}", i));
  if (many)
    members +=
        many_ == 1
            ? "enum { kMany = 1 }; "
            : fmt::format(
                  "enum {{ kMany = {0} }}; PF_DEVICE bool whole() const {{ return {1}true; }}\n"
                  "PF_DEVICE void many(pf::i64 z, pf::i64 row, pf::i64 first, const pf::Vec<pf::C<{2}>, {0}>& xs) "
                  "const {{ (void)z, (void)row; {3}\n#pragma unroll\nfor (int i = 0; i < kMany; ++i) {{ const "
                  "pf::i64 col = first + i; (void)col; const pf::C<{2}> x = xs[i]; {4}}}\n"
                  "const pf::i64 col = first; (void)col; {5}}}\n",
                  many_, many_whole_, stored_type(dtype_), many_vectors_, many_body_, many_stores_);
  return fmt::format(
      "struct Out {{ {}PF_DEVICE void operator()(pf::i64 z, pf::i64 {}, pf::i64 {}, pf::C<{}> x) const {{ (void)z, "
      "(void)row, (void)col; {}}} }}; const Out out = {{{}}};",
      members, swapped ? "col" : "row", swapped ? "row" : "col", stored_type(dtype_), body_, values);
}

void Output::append(Arguments& arguments, const RunContext& ctx) {
  pointers_.clear(), values_.clear();
  for (const BindingId b : bindings_) pointers_.push_back(ctx.bindings[b]);
  for (const auto& use : params_) values_.push_back(use.bits(ctx.params));
  for (void* const& x : pointers_) arguments.add(x);
  for (const int64_t& x : numbers_) arguments.add(x);
  for (const uint64_t& x : values_) arguments.add(x);
}

std::array<unsigned, 3> tile_grid(int64_t tiles, int64_t batches) {
  constexpr int64_t kMostBatches = 32768;  // the kernels loop over the grid
  return {static_cast<unsigned>(tiles), static_cast<unsigned>(std::min(batches, kMostBatches)), 1};
}

}  // namespace pyflame::gpu
