// Which elements are looked at, and what is allowed for those behind an epilogue.
#include "pyflame/runtime/samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pyflame/runtime/sampled_attention.h"
#include "pyflame/runtime/sampled_attention_grad.h"
#include "pyflame/runtime/sampled_epilogue.h"
#include "pyflame/runtime/sampled_packed.h"
#include "pyflame/runtime/sampled_paged.h"
#include "pyflame/runtime/sampled_sums.h"
#include "pyflame/runtime/sums.h"

namespace pyflame {

using namespace sampled;

namespace {

constexpr int64_t kMostElements = 256, kLeastElements = 64, kMostCorners = 32;
constexpr int64_t kMostRows = 48, kLeastRows = 8;  // of attention
constexpr int64_t kMostHeads = 4;                  // of keys, in its gradient
constexpr size_t kMostSequences = 3;               // of those that are packed, in the gradient
constexpr int64_t kFewest = 4;                     // elements or rows, however long they are
constexpr int64_t kUsualWork = int64_t{1} << 24;   // multiplications
constexpr int64_t kMostWork = int64_t{1} << 26;    // unless kFewest take more
constexpr int64_t kMostBytes = int64_t{1} << 30;   // of a device's memory that are copied to the host

// How many of this size, each with so much work. Long ones are fewer, but there are always some.
int64_t affordable(int64_t most, int64_t least, int64_t work) {
  const int64_t each = std::max<int64_t>(1, work);
  return std::clamp(kUsualWork / each, std::min(least, std::max(kFewest, kMostWork / each)), most);
}

// A corner: the last place of some of the dims, and the first one of the others. `which` has a bit for each dim that has two places, the last one first.
Dims corner(const Dims& shape, int64_t which) {
  Dims index = Dims::filled(shape.size(), 0);
  for (int d = shape.size() - 1; d >= 0; --d) {
    if (shape[d] < 2) continue;
    if (which & 1) index[d] = shape[d] - 1;
    which >>= 1;
  }
  return index;
}

Dims random_place(const Dims& shape, int64_t number) {
  Dims index = shape;
  for (int d = 0; d < shape.size(); ++d) {
    const PhiloxBlock words = philox(0, static_cast<uint64_t>(d), static_cast<uint64_t>(number));
    index[d] = static_cast<int64_t>(philox_word64(words, 0) % static_cast<uint64_t>(shape[d]));
  }
  return index;
}

// So many places, or all of a small shape: corners, and then in turns any places, and places that are the last ones of a dim.
std::vector<Dims> chosen(const Dims& shape, int64_t count) {
  std::vector<Dims> all;
  if (shape.numel() <= count) {
    for_indices(shape, [&](const Dims& index) { all.push_back(index); });
    return all;
  }
  int wide = 0;
  for (const int64_t n : shape) wide += n > 1;
  const int64_t corners = std::min({int64_t{1} << wide, kMostCorners, count});
  for (int64_t c = 0; c < corners; ++c) all.push_back(corner(shape, c));
  for (int64_t i = 0; i < count - corners; ++i) {
    Dims index = random_place(shape, i);
    const int d = static_cast<int>(i / 2 % shape.size());
    if (i % 2 == 1) index[d] = shape[d] - 1;
    all.push_back(index);
  }
  return all;
}

double largest_of(DType d) {
  switch (d) {
    case DType::float16: return 65504;
    case DType::bfloat16:
    case DType::float32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

// Whether nothing on the way can overflow, so that there is a bound.
bool is_bounded(double value, double allowed, DType d) {
  return std::isfinite(value) && std::isfinite(allowed) && (!is_float(d) || std::fabs(value) + allowed < largest_of(d));
}

class List {
 public:
  void add(const Operand& o, const Dims& index, double value, double allowed) { add(o, index, value, allowed, index); }
  // `shown`: the index as users know it.
  void add(const Operand& o, const Dims& index, double value, double allowed, const Dims& shown) {
    if (is_bounded(value, allowed, o.dtype))
      all_.push_back({o.binding, o.dtype, offset_of(index, o.strides), shown, value, allowed});
  }
  std::vector<SampledElement> take() { return std::move(all_); }

 private:
  std::vector<SampledElement> all_;
};

bool is_stored(const Problem& p, Pointers pointers, const Operand& o) {
  return p.group.stores(o) && pointers[o.binding] != nullptr;
}

// Whether an operand that a node writes keeps its values: no later node writes the same memory.
bool stays(const Problem& p, size_t node, const Operand& o) {
  for (size_t i = node + 1; i < p.size(); ++i)
    for (const Operand& later : p.node(i).outs)
      if (p.graph.slot(later) == p.graph.slot(o)) return false;
  return true;
}

// A product or convolution with what is elementwise behind it.
class SampledProduct {
 public:
  SampledProduct(const Problem& p, const SumOfProducts& sum, Epilogue epilogue, Pointers pointers, Params params,
                 const Sums::Far& far)
      : p_(p), sum_(sum), epilogue_(std::move(epilogue)), pointers_(pointers), params_(params), far_(far) {}

  // At these indices. `greatest`: of the sums of absolute values; those of other elements of the sample count, too.
  std::vector<SampledElement> elements(const std::vector<Dims>& places, double& greatest) {
    compute(places, greatest);
    List list;
    if (at_.empty()) return {};
    const Operand& product = p_.root().outs[0];
    for (size_t i = 0; i < at_.size() && is_wanted(0, product); ++i) list.add(product, at_[i], values_[i], allowed_[i]);
    if (!epilogue_.nodes().empty()) add_results(list);
    return list.take();
  }

 private:
  void compute(const std::vector<Dims>& places, double& greatest) {
    const Sums sums(p_.root(), pointers_, far_);
    std::vector<double> magnitudes;
    for (const Dims& index : places) {
      const Sum s = sums(index);
      if (!(s.magnitude < largest_of(sum_.dtype))) continue;  // partial sums may overflow, or it is no number
      at_.push_back(index), values_.push_back(s.value), magnitudes.push_back(s.magnitude);
      greatest = std::max(greatest, s.magnitude);
    }
    for (size_t i = 0; i < at_.size(); ++i)
      allowed_.push_back(allowed_difference(sum_, values_[i], magnitudes[i], greatest));
  }

  bool is_wanted(size_t node, const Operand& o) const { return is_stored(p_, pointers_, o) && stays(p_, node, o); }

  // The values of the nodes where each element of the product is off by a part of what is allowed for it.
  std::vector<std::vector<double>> values(double part, bool rounded) const {
    std::vector<double> product = values_;
    for (size_t i = 0; i < product.size(); ++i) product[i] += part * allowed_[i];
    return epilogue_.run(product, at_, rounded, pointers_, params_);
  }

  // The epilogue of what the product may be at the most and at the least, and with each value rounded to its dtype, says what is allowed,
  // beside the rounding of the functions themselves.
  void add_results(List& list) const {
    const auto exact = values(0, false);
    const auto roundings = epilogue_.roundings(values_, at_, pointers_, params_);
    std::vector<std::vector<std::vector<double>>> others;
    for (const double part : {-1.0, -0.5, 0.0, 0.5, 1.0})
      for (const bool rounded : {false, true})
        if (part != 0 || rounded) others.push_back(values(part, rounded));
    for (size_t n = 0; n < exact.size(); ++n) {
      const Operand& out = epilogue_.nodes()[n]->outs[0];
      if (!is_wanted(place(epilogue_.nodes()[n]), out)) continue;
      for (size_t i = 0; i < at_.size(); ++i) {
        double spread = 0;
        for (const auto& o : others) spread = wider(spread, o[n][i] - exact[n][i]);
        const double units = is_float(out.dtype) ? 2 * unit_in_last_place(exact[n][i], out.dtype) : 0;
        list.add(out, epilogue_.from_product(at_[i]), exact[n][i], 2 * spread + units + roundings[n][i], at_[i]);
      }
    }
  }

  size_t place(const Node* node) const {
    size_t i = 0;
    while (&p_.node(i) != node) ++i;
    return i;
  }

  const Problem& p_;
  const SumOfProducts sum_;
  const Epilogue epilogue_;
  const Pointers pointers_;
  const Params params_;
  const Sums::Far& far_;
  std::vector<Dims> at_;
  std::vector<double> values_, allowed_;  // of the product
};

bool is_packed(const Problem& p) { return p.root().op == OpId::varlen_attn || p.root().op == OpId::varlen_attn_grad; }

std::vector<SampledElement> sampled_attention(const Problem& p, Pointers pointers, const AttentionRows& rows,
                                              const std::vector<Dims>& places) {
  const Operand &out = p.root().outs[0], &lse = p.root().outs[1];
  List list;
  for (const Dims& at : places) {
    const auto row = rows.row(at);
    if (!row) continue;
    if (is_stored(p, pointers, lse)) list.add(lse, is_packed(p) ? Dims{at[1], at[0]} : at, row->lse, row->lse_allowed);
    if (!is_stored(p, pointers, out)) continue;
    Dims index = at;
    index.push_back(0);
    for (size_t i = 0; i < row->values.size(); ++i) {
      index[at.size()] = static_cast<int64_t>(i);
      list.add(out, index, row->values[i], row->allowed[i]);
    }
  }
  return list.take();
}

bool is_gradient(const Problem& p) {
  return p.root().op == OpId::attention_grad || p.root().op == OpId::varlen_attn_grad;
}

// Attention, also of packed sequences, or its gradient, with all tensors of one float dtype.
bool is_attention(const Problem& p) {
  const Node& n = p.root();
  if (p.size() != 1 || (n.op != OpId::attention && !is_packed(p) && !is_gradient(p))) return false;
  for (size_t i = 0; i < (is_gradient(p) ? 5 : 3); ++i)
    if (n.ins[i].dtype != n.outs[0].dtype || !has_kernels(n.ins[i].dtype) ||
        n.ins[i].shape.size() != (is_packed(p) ? 3 : 4))
      return false;
  return is_float(n.outs[0].dtype);
}

bool is_paged(const Problem& p) { return p.size() == 1 && PagedRows::takes(p.root()); }

// The index of an element at an offset; none: another element, or none, is there.
std::optional<Dims> index_at(const Operand& o, int64_t offset) {
  std::vector<int> dims;
  for (int d = 0; d < o.shape.size(); ++d)
    if (o.shape[d] > 1) dims.push_back(d);
  std::sort(dims.begin(), dims.end(), [&](int a, int b) { return o.strides[a] > o.strides[b]; });
  Dims index = Dims::filled(o.shape.size(), 0);
  for (const int d : dims) {
    index[d] = o.strides[d] > 0 ? offset / o.strides[d] : o.shape[d];
    if (index[d] >= o.shape[d]) return std::nullopt;
    offset -= index[d] * o.strides[d];
  }
  return offset == 0 ? std::optional(index) : std::nullopt;
}

// What can be sampled of a problem; nothing: it has no sample.
struct Sampled {
  std::optional<SumOfProducts> sum;  // otherwise attention
  std::optional<Epilogue> epilogue;
  Sums::Far far = {};  // of a product, or of keys and values in pages, on a device
};
std::optional<Sampled> sampled_of(const Problem& p) {
  if (p.root().outs.empty() || p.root().outs[0].numel() == 0) return std::nullopt;
  if (is_attention(p) || is_paged(p)) return Sampled{};
  Sampled s{sum_of_products(p.root()), {}};
  if (s.sum) s.epilogue = Epilogue::of(p);
  return s.epilogue ? std::optional(std::move(s)) : std::nullopt;
}

// Multiplications so far, and how many there may be.
struct Cost {
  int64_t done = 0, most = kMostWork;
  // Counts so many more. false: they are too many.
  bool afford(int64_t times, int64_t each, int64_t limit) {
    if (times > (limit - std::min(limit, done)) / std::max<int64_t>(1, each)) return false;
    done += times * each;
    return true;
  }
  bool afford(int64_t times, int64_t each) { return afford(times, each, most); }
};

// Rows of dQ anywhere, and rows of dK and dV in a few heads, because the first one of a head needs what is known of all queries that see it.
class SampledGradient {
 public:
  // `node`: the gradient itself, or that of one of the packed sequences alone, which must live as long as this object.
  SampledGradient(const Problem& p, Pointers pointers, const Node& node, Pointers of_node, Params params, Cost& work,
                  const PackedSequence* sequence = nullptr)
      : p_(p), pointers_(pointers), node_(node), rows_(node, of_node, params), work_(work), sequence_(sequence) {}

  // false: it takes too long.
  bool add(const SampledPlace& at) {
    const Dims i = index_in_node(at);
    return at.operand == &p_.root().outs[0] ? add_query(i) : add_key({i[0], i[1], i[2]}, work_.most);
  }

  void add_usual() {
    const Dims &q = node_.ins[1].shape, &k = node_.ins[2].shape;
    if (q.numel() == 0 || k.numel() == 0) return;
    for (const Dims& at : chosen({q[0], q[1], q[2]}, affordable(kMostRows, kLeastRows, rows_.cost_of_query())))
      if (!add_query(at)) return;
    const int64_t most = work_.done + kUsualWork,
                  heads = std::min(k[0] * k[1], affordable(kMostHeads, 1, rows_.cost_of_head()));
    for (const Dims& head : chosen({k[0], k[1]}, heads))
      for (const Dims& key : chosen({1, 1, k[2]}, kMostRows / heads)) add_key({head[0], head[1], key[2]}, most);
  }

  std::vector<SampledElement> take() { return list_.take(); }

 private:
  bool add_query(const Dims& at) {
    if (!work_.afford(1, rows_.cost_of_query())) return false;
    if (const auto row = rows_.query(at[0], at[1], at[2])) add_row(0, at, *row);
    return true;
  }
  bool add_key(const Dims& at, int64_t most) {
    if (!work_.afford(1, rows_.cost_of_key(at[0], at[1], at[2]), most)) return false;
    const auto rows = rows_.key(at[0], at[1], at[2]);
    if (rows) add_row(1, at, rows->key), add_row(2, at, rows->value);
    return true;
  }
  void add_row(size_t output, const Dims& at, const AttentionGradRows::Row& row) {
    const Operand& o = p_.root().outs[output];
    for (size_t i = 0; i < row.values.size() && is_stored(p_, pointers_, o); ++i)
      list_.add(o, index_in_problem(output, at, static_cast<int64_t>(i)), row.values[i], row.allowed[i]);
  }
  Dims index_in_problem(size_t output, const Dims& at, int64_t i) const {
    if (!sequence_) return {at[0], at[1], at[2], i};
    return {at[2] + (output == 0 ? sequence_->first_query : sequence_->first_key), at[1], i};
  }
  Dims index_in_node(const SampledPlace& at) const {
    if (!sequence_) return at.index;
    const bool of_query = at.operand == &p_.root().outs[0];
    return {0, at.index[1], at.index[0] - (of_query ? sequence_->first_query : sequence_->first_key), at.index[2]};
  }

  const Problem& p_;
  const Pointers pointers_;
  const Node& node_;
  AttentionGradRows rows_;
  Cost& work_;
  const PackedSequence* sequence_;
  List list_;
};

// Without the last dim.
Dims rows_shape(const Dims& shape) { return Dims(std::span(shape.begin(), static_cast<size_t>(shape.size() - 1))); }

// The row of queries to which an element of the result or of the logsumexps belongs.
Dims row_at(const Problem& p, const SampledPlace& place) {
  if (place.operand != &p.root().outs[1]) return rows_shape(place.index);
  return is_packed(p) ? Dims{place.index[1], place.index[0]} : place.index;
}

// Tiles go wrong at the ends of packed sequences, so a half of the rows behind the corners are last ones.
std::vector<Dims> chosen_rows(const Problem& p, const AttentionRows& rows) {
  const Dims shape = rows_shape(p.root().ins[0].shape);
  std::vector<Dims> places = chosen(shape, affordable(kMostRows, kLeastRows, rows.cost()));
  if (!is_packed(p) || static_cast<int64_t>(places.size()) == shape.numel()) return places;
  for (size_t i = 5; i < places.size(); i += 2) places[i][0] = rows.last_of_sequence(places[i][0]);
  return places;
}

// The first and the last of the sequences with rows, and the longest one; or the one that has a place.
std::vector<PackedSequence> chosen_sequences(const Problem& p, Pointers pointers, const SampledPlace* place) {
  std::vector<PackedSequence> all = packed_sequences(p.root(), pointers), some;
  std::erase_if(all, [&](const PackedSequence& s) {
    if (s.queries == 0 || s.keys == 0) return true;
    if (!place) return false;
    const bool of_query = place->operand == &p.root().outs[0];
    const int64_t row = place->index[0] - (of_query ? s.first_query : s.first_key);
    return row < 0 || row >= (of_query ? s.queries : s.keys);
  });
  if (all.size() <= kMostSequences) return all;
  const auto longest = std::max_element(all.begin() + 1, all.end() - 1,
                                        [](const auto& a, const auto& b) { return a.queries < b.queries; });
  return {all.front(), *longest, all.back()};
}

// The gradient's elements at one place, or at the usual ones. Nothing: they take too long.
std::optional<std::vector<SampledElement>> gradient_at(const Problem& p, Pointers pointers, Params params,
                                                       const SampledPlace* place, Cost& work) {
  const auto add = [&](SampledGradient g) -> std::optional<std::vector<SampledElement>> {
    if (!place) g.add_usual();
    else if (!g.add(*place)) return std::nullopt;
    return g.take();
  };
  if (!is_packed(p)) return add({p, pointers, p.root(), pointers, params, work});
  std::vector<SampledElement> all;
  for (const PackedSequence& s : chosen_sequences(p, pointers, place)) {
    const AloneSequence one = alone(p.root(), s, pointers);
    const auto some = add({p, pointers, one.node, one.pointers.data(), params, work, &s});
    if (!some) return std::nullopt;
    all.insert(all.end(), some->begin(), some->end());
  }
  return all;
}

// Multiplications of one row of queries of a gradient.
int64_t work_of_query(const Problem& p, Pointers pointers, Params params) {
  if (!is_packed(p)) return AttentionGradRows(p.root(), pointers, params).cost_of_query();
  int64_t most = 0;
  for (const PackedSequence& s : chosen_sequences(p, pointers, nullptr)) {
    const AloneSequence one = alone(p.root(), s, pointers);
    most = std::max(most, AttentionGradRows(one.node, one.pointers.data(), params).cost_of_query());
  }
  return most;
}

// Rows of attention to pages, at one place or at the usual ones. Nothing: they take too long.
std::optional<std::vector<SampledElement>> paged_at(const Problem& p, const Sampled& s, Pointers pointers,
                                                    Params params, const SampledPlace* place, Cost& work) {
  const Operand& out = p.root().outs[0];
  const PagedRows rows(p.root(), pointers, params, s.far);
  const std::vector<Dims> places =
      place ? std::vector<Dims>{{place->index[0], place->index[1]}}
            : chosen({out.shape[0], out.shape[1]}, affordable(kMostRows, kLeastRows, rows.cost()));
  if (!work.afford(static_cast<int64_t>(places.size()), rows.cost())) return std::nullopt;
  List list;
  for (const Dims& at : places)
    if (const auto row = rows.row(at[0], at[1]))
      for (size_t i = 0; i < row->values.size(); ++i)
        list.add(out, {at[0], at[1], static_cast<int64_t>(i)}, row->values[i], row->allowed[i]);
  return list.take();
}

// Multiplications of one element, or of one row of queries.
int64_t work_of_one(const Problem& p, const Sampled& s, Pointers pointers, Params params) {
  if (s.sum) return s.sum->terms;
  if (is_gradient(p)) return work_of_query(p, pointers, params);
  if (is_paged(p)) return PagedRows(p.root(), pointers, params, s.far).cost();
  return AttentionRows(p.root(), pointers, params).cost();
}

// So many in any case, and the usual number of multiplications.
int64_t least_work(const Problem& p, const Sampled& s, Pointers pointers, Params params) {
  return std::max(kUsualWork, kFewest * work_of_one(p, s, pointers, params));
}

// The elements at one place, or at the usual ones. Adds its multiplications to `work`. Nothing: with those before they are too many.
std::optional<std::vector<SampledElement>> elements_at(const Problem& p, const Sampled& s, Pointers pointers,
                                                       Params params, const SampledPlace* place, Cost& work,
                                                       double& greatest) {
  if (is_gradient(p)) return gradient_at(p, pointers, params, place, work);
  if (is_paged(p)) return paged_at(p, s, pointers, params, place, work);
  if (!s.sum) {
    const AttentionRows rows(p.root(), pointers, params);
    const std::vector<Dims> places = place ? std::vector<Dims>{row_at(p, *place)} : chosen_rows(p, rows);
    if (!work.afford(static_cast<int64_t>(places.size()), rows.cost())) return std::nullopt;
    return sampled_attention(p, pointers, rows, places);
  }
  const std::vector<Dims> places =
      place ? std::vector<Dims>{place->index}
            : chosen(p.root().outs[0].shape, affordable(kMostElements, kLeastElements, s.sum->terms));
  if (!work.afford(static_cast<int64_t>(places.size()), s.sum->terms)) return std::nullopt;
  return SampledProduct(p, *s.sum, *s.epilogue, pointers, params, s.far).elements(places, greatest);
}

}  // namespace

std::vector<SampledElement> sampled_elements(const Problem& p, Pointers pointers, Params params) {
  const std::optional<Sampled> s = sampled_of(p);
  Cost work;
  double greatest = 0;
  if (s) work.most = std::max(work.most, least_work(p, *s, pointers, params));
  auto all = s ? elements_at(p, *s, pointers, params, nullptr, work, greatest) : std::nullopt;
  return all ? std::move(*all) : std::vector<SampledElement>{};
}

double SampledElement::error(double got) const {
  const double off = std::fabs(got - value);
  if (!std::isfinite(off)) return INFINITY;
  return off == 0 ? 0 : off / allowed;
}

namespace {

// What f returns, or nothing where the host has no memory for it. Then there is no sample; the step itself may have the memory.
template <class F>
auto with_memory(F f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return {};
  } catch (const Error& error) {  // of the reference implementation
    if (error.kind() != ErrorKind::OutOfMemory) throw;
    return {};
  }
}

}  // namespace

struct Sample::Spent : Cost {};

// What a step reads: copies, where the device's memory is not the host's.
class Sample::Inputs {
 public:
  Inputs(const Frame& f, const Problem& of, Sampled what)
      : frame(f), problem(of), sampled(std::move(what)), pointers_(f.program.graph.bindings.size()) {
    const Problem& p = problem;
    if (f.memory) leave_far();
    for (const BindingId b : p.graph.bindings.ids()) pointers_[b] = f.pointers[b];
    if (f.memory) fits_ = copy(f, bytes_of(p));
  }
  const Frame& frame;
  const Problem problem;
  Sampled sampled;
  bool fit() const { return fits_; }  // not: there is too much
  Pointers pointers() const { return pointers_.data(); }

 private:
  // A factor of a product with more lines than the sample has elements stays on the device, and lines are copied as they are needed. It is copied as a whole where
  // the elements of a line are apart from each other. Keys and values in pages stay, and pages are copied.
  void leave_far() {
    const Node& n = problem.root();
    if (n.op != OpId::matmul && n.op != OpId::scaled_mm && !is_paged(problem)) return;
    for (int i = 0; i < 2; ++i) {
      const Operand& o = n.ins[static_cast<size_t>(i) + first_far()];
      const int along = o.shape.size() - (i == 0 ? 1 : 2);
      const bool has_lines = o.strides[along] == 1 && o.numel() > kMostElements * o.shape[along];
      if (uses_of(o.binding) > 1 || (!is_paged(problem) && !has_lines)) continue;
      sampled.far[static_cast<size_t>(i)] = [m = frame.memory](void* to, const void* from, size_t nbytes) {
        m->to_host(to, from, nbytes);
      };
    }
  }

  int uses_of(BindingId b) const {
    int uses = 0;
    for (size_t i = 0; i < problem.size(); ++i)
      for (const Operand& o : problem.node(i).ins) uses += !o.is_param && o.binding == b;
    return uses;
  }

  // Of each binding that is read.
  Indexed<BindingId, int64_t> bytes_of(const Problem& p) const {
    Indexed<BindingId, int64_t> bytes(p.graph.bindings.size());
    for (size_t i = 0; i < p.size(); ++i)
      for (size_t k = 0; k < p.node(i).ins.size(); ++k)
        if (const Operand& o = p.node(i).ins[k]; !o.is_param && p.group.stores(o) && !is_far(i, k))
          bytes[o.binding] = std::max(bytes[o.binding], extent(o.shape, o.strides) * dtype_size(o.dtype));
    return bytes;
  }

  // The first of the two inputs that may stay on the device.
  size_t first_far() const { return is_paged(problem) ? 1 : 0; }
  bool is_far(size_t node, size_t input) const {
    const size_t which = input - first_far();
    return node == 0 && which < 2 && sampled.far[which];
  }

  bool copy(const Frame& f, const Indexed<BindingId, int64_t>& bytes) {
    int64_t total = 0;
    for (const int64_t n : bytes) total += n;
    if (total > kMostBytes) return false;
    for (const BindingId b : bytes.ids()) {
      if (!pointers_[b] || bytes[b] == 0) continue;
      copies_.emplace_back(static_cast<size_t>(bytes[b]));
      f.memory->to_host(copies_.back().data(), pointers_[b], copies_.back().size());
      pointers_[b] = copies_.back().data();
    }
    return true;
  }

  Indexed<BindingId, void*> pointers_;
  std::vector<std::vector<char>> copies_;
  bool fits_ = true;
};

Sample::Sample(std::unique_ptr<Inputs> inputs) : inputs_(std::move(inputs)), work_(std::make_unique<Spent>()) {}
Sample::~Sample() = default;
Sample::Sample(Sample&&) noexcept = default;
Sample& Sample::operator=(Sample&&) noexcept = default;

std::optional<Sample> Sample::of(const Frame& f, size_t k) {
  return with_memory([&] { return of_step(f, k); });
}

std::optional<Sample> Sample::of_step(const Frame& f, size_t k) {
  const Problem problem{f.program.graph, f.program.steps[k].group};
  std::optional<Sampled> sampled = sampled_of(problem);
  if (!sampled) return std::nullopt;
  Sample s(std::make_unique<Inputs>(f, problem, std::move(*sampled)));
  if (!s.inputs_->fit()) return std::nullopt;
  s.allow_more();
  s.compute(nullptr);
  return s.all_.empty() ? std::nullopt : std::optional(std::move(s));
}

void Sample::allow_more() {
  const int64_t more =
      least_work(inputs_->problem, inputs_->sampled, inputs_->pointers(), inputs_->frame.window.params.data());
  work_->most = std::max(work_->most, work_->done + more);
}

bool Sample::compute(const SampledPlace* place) {
  const Frame& f = inputs_->frame;
  const auto elements = elements_at(inputs_->problem, inputs_->sampled, inputs_->pointers(), f.window.params.data(),
                                    place, *work_, greatest_);
  if (!elements) return false;
  for (const SampledElement& e : *elements) {
    const SlotId slot = inputs_->problem.graph.bindings[e.binding].slot;
    if (!f.bases[slot]) continue;
    const int64_t start = static_cast<const char*>(f.pointers[e.binding]) - f.bases[slot];
    all_.push_back({slot, start + e.at * dtype_size(e.dtype), e});
  }
  return true;
}

bool Sample::has(SlotId slot, int64_t byte) const {
  return std::any_of(all_.begin(), all_.end(), [&](const Placed& e) { return e.slot == slot && e.byte == byte; });
}

std::optional<SampledPlace> Sample::place_of(SlotId slot, int64_t byte) const {
  const Frame& f = inputs_->frame;
  const Problem& p = inputs_->problem;
  for (size_t i = 0; i < p.size(); ++i)
    for (const Operand& o : p.node(i).outs) {
      if (p.graph.slot(o) != slot || !p.group.stores(o)) continue;
      const int64_t offset = byte - (static_cast<const char*>(f.pointers[o.binding]) - f.bases[slot]);
      if (offset < 0 || offset % dtype_size(o.dtype) != 0) continue;
      const std::optional<Dims> index = index_at(o, offset / dtype_size(o.dtype));
      if (!index) continue;
      if (is_attention(p) || i == 0) return SampledPlace{&o, *index};
      const std::vector<const Node*>& nodes = inputs_->sampled.epilogue->nodes();
      if (std::find(nodes.begin(), nodes.end(), &p.node(i)) != nodes.end())
        return SampledPlace{&o, inputs_->sampled.epilogue->to_product(*index)};
    }
  return std::nullopt;
}

Sample::Added Sample::add(SlotId slot, int64_t byte) {
  // The sample of a gradient may lack dK and dV, so one that is not known there is not taken for right.
  const Added missing = is_gradient(inputs_->problem) ? Added::unknown : Added::too_long;
  return with_memory([&] { return std::optional(add_to(slot, byte, missing)); }).value_or(missing);
}

Sample::Added Sample::add_to(SlotId slot, int64_t byte, Added missing) {
  if (is_open(slot, byte)) return Added::open;
  if (has(slot, byte)) return Added::compared;
  const std::optional<SampledPlace> place = place_of(slot, byte);
  if (!place) return Added::unknown;
  if (!compute(&*place)) return missing;
  if (has(slot, byte)) return Added::compared;
  open_.emplace(slot, byte);
  return Added::open;
}

bool Sample::is_open(SlotId slot, int64_t byte) const {
  if (open_.contains({slot, byte})) return true;
  if (inputs_->sampled.sum || is_packed(inputs_->problem) || is_paged(inputs_->problem))
    return false;  // these have no padding
  const AttentionRows rows(inputs_->problem.root(), inputs_->pointers(), inputs_->frame.window.params.data());
  if (!rows.has_padding()) return false;
  const std::optional<SampledPlace> at = place_of(slot, byte);
  const bool of_query = at && (!is_gradient(inputs_->problem) || at->operand == &inputs_->problem.root().outs[0]);
  return of_query && rows.is_padding(at->index[0], at->index[1], at->index[2]);
}

Sample::Difference Sample::difference(SlotId slot, const char* bytes) const {
  Difference worst;
  for (const Placed& p : all_) {
    if (p.slot != slot) continue;
    const SampledElement& e = p.element;
    const double got = element(e.dtype, bytes + p.byte), error = e.error(got);
    if (error > worst.error)
      worst = {error, fmt::format("got {:.6g} at {}; expected {:.6g} to within {:.2g}", got, e.index.str(), e.value,
                                  e.allowed)};
  }
  return worst;
}

double Sample::most_allowed(SlotId slot) const {
  double most = 0;
  for (const Placed& p : all_)
    if (p.slot == slot) most = std::max(most, p.element.allowed);
  return most;
}

}  // namespace pyflame
