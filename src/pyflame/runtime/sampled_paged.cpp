// The keys and values that a query sees are gathered from their pages. Then it is an attention of one query.
#include "pyflame/runtime/sampled_paged.h"

#include <algorithm>

#include "pyflame/ops/attrs.h"
#include "pyflame/tensor/layout.h"

namespace pyflame::sampled {

namespace {

constexpr size_t kKeys = 1, kTable = 3, kLengths = 4, kScales = 5;  // inputs

}  // namespace

PagedRows::PagedRows(const Node& node, Pointers inputs, Params params, const std::array<Fetch, 2>& far)
    : node_(node),
      inputs_(inputs),
      far_(far),
      numbers_(has_scales(node) ? kScales + 2 : kScales),
      scale_(params[node.ins[numbers_].param].as_f64()),
      cap_(params[node.ins[numbers_ + 2].param].as_f64()),
      window_(params[node.ins[numbers_ + 1].param].as_i64()) {}

bool PagedRows::has_scales(const Node& n) { return n.ins[kKeys].dtype != n.outs[0].dtype; }

bool PagedRows::takes(const Node& n) {
  return n.op == OpId::paged_attention && n.ins[0].dtype == n.outs[0].dtype && is_float(n.outs[0].dtype) &&
         has_kernels(n.outs[0].dtype) && (!has_scales(n) || dtype_size(n.ins[kKeys].dtype) == 1);
}

// A whole number of the table or the lengths.
int64_t PagedRows::whole(size_t input, int64_t offset) const {
  const Operand& o = node_.ins[input];
  return static_cast<int64_t>(Elements(o, inputs_[o.binding])[offset]);
}

int64_t PagedRows::cost() const {
  int64_t longest = 0;
  for (int64_t s = 0; s < node_.ins[kLengths].shape[0]; ++s)
    longest = std::max(longest, whole(kLengths, s * node_.ins[kLengths].strides[0]));
  if (window_ > 0) longest = std::min(longest, window_);
  return 2 * longest * node_.ins[0].shape[2];
}

// [keys, D] of one head. which: 0 the keys, 1 the values.
std::optional<std::vector<double>> PagedRows::gather(size_t which, int64_t sequence, int64_t head, int64_t first,
                                                     int64_t end) const {
  const Operand &pages = node_.ins[kKeys + which], &table = node_.ins[kTable];
  const int64_t size = dtype_size(pages.dtype), page = pages.shape[1], dim = pages.shape[3];
  const Dims in_page(std::span(pages.shape.begin() + 1, 3)), strides(std::span(pages.strides.begin() + 1, 3));
  std::vector<double> all;
  const auto stored = static_cast<DType>(node_.attr<PagedAttrs>().stored);
  std::optional<Elements> scales;
  if (has_scales(node_)) {
    const Operand& o = node_.ins[kScales + which];
    scales.emplace(o, inputs_[o.binding]);
  }
  std::vector<char> copy(static_cast<size_t>(extent(in_page, strides) * size));
  for (int64_t n = first / page; n * page < end; ++n) {
    const int64_t at = whole(kTable, sequence * table.strides[0] + n * table.strides[1]);
    if (at < 0 || at >= pages.shape[0]) return std::nullopt;
    const char* from = static_cast<const char*>(inputs_[pages.binding]) + at * pages.strides[0] * size;
    if (far_[which]) far_[which](copy.data(), from, copy.size()), from = copy.data();
    const Elements elements = is_float8(stored) ? Elements(pages, from, stored) : Elements(pages, from);
    for (int64_t i = std::max(first, n * page); i < std::min(end, (n + 1) * page); ++i) {
      const double scale =
          scales ? (*scales)[at * scales->stride(0) + i % page * scales->stride(1) + head * scales->stride(2)] : 1;
      for (int64_t d = 0; d < dim; ++d)
        all.push_back(scale * elements[i % page * strides[0] + head * strides[1] + d * strides[2]]);
    }
  }
  return all;
}

std::optional<AttentionRow> PagedRows::row(int64_t sequence, int64_t head) const {
  const Operand &q = node_.ins[0], &keys = node_.ins[kKeys], &table = node_.ins[kTable];
  const int64_t end = whole(kLengths, sequence * node_.ins[kLengths].strides[0]),
                first = window_ > 0 ? std::max<int64_t>(0, end - window_) : 0, count = end - first,
                of_head = head / (q.shape[1] / keys.shape[2]), dim = q.shape[2];
  if (count <= 0 || end > table.shape[1] * keys.shape[1]) return std::nullopt;
  auto k = gather(0, sequence, of_head, first, end), v = gather(1, sequence, of_head, first, end);
  if (!k || !v) return std::nullopt;

  Node one;
  one.op = OpId::attention, one.outs = {node_.outs[0]};
  const AttentionAttrs attrs{0, 0};
  const auto* words = reinterpret_cast<const int64_t*>(&attrs);
  one.attrs.assign(words, words + sizeof(AttentionAttrs) / sizeof(int64_t));
  Indexed<BindingId, void*> pointers;
  const auto add = [&](Operand o, const Dims& shape, const Dims& strides, const void* at) {
    o.shape = shape, o.strides = strides, o.binding = pointers.push_back(const_cast<void*>(at));
    one.ins.push_back(o);
  };
  const char* query = static_cast<const char*>(inputs_[q.binding]) +
                      (sequence * q.strides[0] + head * q.strides[1]) * dtype_size(q.dtype);
  add(q, {1, 1, 1, dim}, {0, 0, 0, q.strides[2]}, query);
  for (const auto* gathered : {&*k, &*v}) {
    Operand o = keys;
    o.dtype = DType::float64;
    add(o, {1, 1, count, dim}, {0, 0, dim, 1}, gathered->data());
  }
  Indexed<ParamId, Param> numbers;
  for (const Scalar& x : {Scalar(scale_), Scalar(count)}) {
    Operand o;
    o.is_param = true, o.param = numbers.push_back(Param(x));
    one.ins.push_back(o);
  }
  return AttentionRows(one, pointers.data(), numbers.data(), cap_).row({0, 0, 0});
}

}  // namespace pyflame::sampled
