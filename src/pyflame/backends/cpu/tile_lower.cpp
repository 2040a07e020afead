// Lowers a group to a tile program: it replaces bindings by values, selects instructions by type, divides the work into
// passes, and assigns memory.
#include <algorithm>
#include <utility>

#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/cpu/tile_program.h"

namespace pyflame::cpu::tile {

bool Access::same_layout(const Access& o) const {
  return kind == o.kind && size_of == o.size_of && rank == o.rank && std::equal(size, size + rank, o.size) &&
         std::equal(stride, stride + rank, o.stride);
}

namespace {

struct Refused {
  std::string reason;
};
[[noreturn]] void refuse(std::string reason) { throw Refused{std::move(reason)}; }

// Targets for the memory use.
constexpr int64_t kTileBytes = 24 * 1024;      // of all values of a tile: leaves room in a 32 KiB L1
constexpr int64_t kRowTileBytes = 192 * 1024;  // rows are kept whole up to this (L2)
constexpr int64_t kMaxRow = 16384;
static_assert(kMaxRow <= kChunk);
constexpr int64_t kFar = 32 << 20;  // working sets above this size are mostly not in a cache

constexpr int64_t round64(int64_t v) { return (v + 63) / 64 * 64; }

enum class Span : uint8_t { All, Outer, Inner };

// A vector holds half as many float64 values, and their functions need more terms.
int64_t op_weight(OpId op, DType d) {
  const int cost = op_info(op).cpu_cost;
  return d == DType::float64 && cost > 1 && cost < kOneByOne ? 3 * cost : cost;
}

class Lowering {
 public:
  Lowering(const Problem& p, TileProgram& out) : p_(p), g_(p.graph), prog_(out) {}

  void run() {
    const bool epilogue = p_.group.kind == GroupKind::Epilogue;
    if (!epilogue && p_.group.kind != GroupKind::Loop) refuse("takes Loop groups only");
    const Operand& root = p_.root().outs.at(0);
    const Operand whole = epilogue ? in_memory_order(root) : root;
    space_ = epilogue ? whole.shape : p_.group.space;
    split_ = epilogue ? space_.size() : p_.group.split;
    if (split_ < 0 || split_ > space_.size()) refuse("split outside the space");
    if (!epilogue && p_.group.roles.size() != p_.size()) refuse("a role is missing");
    for (int i = 0; i < space_.size(); ++i) (i < split_ ? prog_.rows : prog_.cols) *= space_[i];
    if (epilogue) declare_root(whole);
    for (size_t i = epilogue ? 1 : 0; i < p_.size(); ++i)
      lower_node(p_.node(i), epilogue ? Role::Map : p_.group.roles[i]);
    finish();
  }

 private:
  struct Written {
    BindingId binding;
    ValueId value;  // none: of a column reduction
    Dims strides;   // aligned to S
  };
  struct Loaded {
    BindingId binding;
    bool row;
    DType dtype;
    Dims strides;
    ValueId value;
  };

  // --- values and instructions
  ValueId new_value(Reg reg, bool row, DType dtype) {
    Value v;
    v.reg = reg;
    v.row = row;
    v.dtype = dtype;
    return prog_.values.push_back(v);
  }
  Instr& emit(Opcode opcode, bool row) {
    Instr in;
    in.opcode = opcode;
    in.row = row;
    code_.push_back(in);
    return code_.back();
  }
  ValueId compute(Fn fn, std::initializer_list<ValueId> src, Reg reg, bool row, DType dtype) {
    const ValueId dst = new_value(reg, row, dtype);
    Instr& in = emit(Opcode::Compute, row);
    in.fn = fn;
    in.dst = dst;
    std::copy(src.begin(), src.end(), in.src);
    return dst;
  }

  // --- operands
  // Strides over S, 0 where the operand is broadcast.
  Dims align(const Operand& o, Span span) const {
    Dims strides = Dims::filled(space_.size(), 0);
    const int shift = space_.size() - o.shape.size();
    for (int i = 0; i < o.shape.size(); ++i) {
      if (o.shape[i] == 1) continue;
      const int at = i + shift;
      const bool inside = at >= 0 && (span != Span::Outer || at < split_) && (span != Span::Inner || at >= split_);
      if (!inside || o.shape[i] != space_[at])
        refuse("an operand's shape " + o.shape.str() + " does not fit the space " + space_.str());
      strides[at] = o.strides[i];
    }
    return strides;
  }
  void check_covers(const Operand& o, Span span) const {
    int64_t n = 1;
    for (int i = span == Span::Inner ? split_ : 0; i < (span == Span::Outer ? split_ : space_.size()); ++i)
      n *= space_[i];
    if (o.numel() != n) refuse("an output does not cover the space");
  }
  AccessId add_access(const Operand& o, const Dims& strides, Span span, bool output) {
    Access a;
    a.output = output;
    a.dtype = o.dtype;
    a.binding = o.binding;
    a.size_of = static_cast<int32_t>(dtype_size(o.dtype));
    a.reach = a.size_of;
    bool empty = false;
    const int first = span == Span::Inner ? split_ : 0, last = span == Span::Outer ? split_ : space_.size();
    for (int i = first; i < last; ++i) {
      const int64_t size = space_[i], stride = strides[i] * a.size_of;
      if (stride < 0) refuse("a stride is negative");
      if (size == 1) continue;
      empty = empty || size == 0;
      a.reach += (size - 1) * stride;
      if (a.rank > 0 && a.stride[a.rank - 1] == stride * size) {
        a.size[a.rank - 1] *= size;
        a.stride[a.rank - 1] = stride;
      } else {
        a.size[a.rank] = size;
        a.stride[a.rank++] = stride;
      }
    }
    if (empty) a.reach = 0;
    if (a.rank == 0 || (a.rank == 1 && a.stride[0] == 0)) a.kind = Access::Kind::Scalar;
    else if (a.rank == 1 && a.stride[0] == a.size_of) a.kind = Access::Kind::Contiguous;
    else a.kind = Access::Kind::General;
    if (output && a.kind == Access::Kind::Scalar) a.kind = Access::Kind::Contiguous;  // has one element
    return prog_.accesses.push_back(a);
  }
  const Written* find_written(BindingId binding) const {
    for (const Written& w : written_)
      if (w.binding == binding) return &w;
    return nullptr;
  }
  SlotId slot(BindingId binding) const { return g_.bindings[binding].slot; }

  ValueId constant(const Operand& o, bool row) {
    for (const ValueId v : prog_.values.ids()) {
      const Value& x = prog_.values[v];
      if (x.constant && x.param == o.param && x.row == row && x.dtype == o.dtype) return v;
    }
    const ValueId v = new_value(reg_of(o.dtype), row, o.dtype);
    prog_.values.back().constant = true;
    prog_.values.back().param = o.param;
    return v;
  }

  ValueId read(const Operand& o, bool row) {
    if (o.is_param) return constant(o, row);
    const Dims strides = align(o, row ? Span::Outer : Span::All);
    if (const Written* w = find_written(o.binding)) {
      if (!w->value.valid()) refuse("a column reduction's result is read in its group");
      for (int i = 0; i < space_.size(); ++i)
        if (space_[i] > 1 && strides[i] != w->strides[i])
          refuse("a value of the group is read in another layout than it was written");
      const Value v = prog_.values[w->value];
      if (v.dtype != o.dtype) refuse("a value of the group is read as another dtype");
      if (v.row == row) return w->value;
      if (row) refuse("a row value depends on an element value");
      return expand(w->value);
    }
    for (const Written& w : written_)
      if (slot(w.binding) == g_.slot(o)) refuse("memory written in the group is read through another view");
    for (const Loaded& l : loads_)
      if (l.binding == o.binding && l.row == row && l.dtype == o.dtype && l.strides == strides) return l.value;
    const AccessId access = add_access(o, strides, row ? Span::Outer : Span::All, false);
    const ValueId v = new_value(reg_of(o.dtype), row, o.dtype);
    if (prog_.accesses[access].kind == Access::Kind::Scalar) {
      prog_.values.back().constant = true;
      prog_.values.back().access = access;
    } else {
      Instr& in = emit(Opcode::Load, row);
      in.dst = v;
      in.access = access;
    }
    loads_.push_back({o.binding, row, o.dtype, strides, v});
    return v;
  }

  ValueId expand(ValueId row_value) {
    for (const auto& [from, to] : expanded_)
      if (from == row_value) return to;
    const Value v = prog_.values[row_value];
    const ValueId dst = new_value(v.reg, false, v.dtype);
    Instr& in = emit(Opcode::Expand, false);
    in.dst = dst;
    in.src[0] = row_value;
    expanded_.emplace_back(row_value, dst);
    return dst;
  }

  void declare_root(const Operand& o) {
    const Dims strides = align(o, Span::All);
    const AccessId access = add_access(o, contiguous_strides(space_), Span::All, false);
    Access& a = prog_.accesses[access];
    a.root = true;
    a.kind = Access::Kind::Contiguous;
    const ValueId v = new_value(reg_of(o.dtype), false, o.dtype);
    Instr& in = emit(Opcode::Load, false);
    in.dst = v;
    in.access = access;
    written_.push_back({o.binding, v, strides});
  }

  void write(const Operand& o, ValueId value, Span span) {
    check_covers(o, span);
    const Dims strides = align(o, span);
    std::erase_if(written_, [&](const Written& w) { return w.binding == o.binding; });
    for (const Written& w : written_)
      if (slot(w.binding) == g_.slot(o) && p_.group.stores(o))
        refuse("two views of the same memory are written in one group");
    written_.push_back({o.binding, value, strides});
    if (!p_.group.stores(o)) return;
    const AccessId access = add_access(o, strides, span, true);
    if (span == Span::Inner) {
      prog_.reductions.back().access = access;
      return;
    }
    Instr& in = emit(Opcode::Store, span == Span::Outer);
    in.src[0] = value;
    in.access = access;
  }

  // --- nodes
  void lower_node(const Node& n, Role role) {
    if (n.outs.size() != 1) refuse("a node has several outputs");
    const OpInfo& info = n.info();
    if (role == Role::RowReduce || role == Role::ColReduce) {
      if (info.cls != OpClass::Reduce) refuse(std::string(info.name) + " is not a reduction");
      return lower_reduce(n, role == Role::ColReduce);
    }
    if (!is_elementwise(info.cls)) refuse(std::string(info.name) + " is not elementwise");
    if (std::ssize(n.ins) < info.arity) refuse(std::string(info.name) + ": an input is missing");
    const bool row = role == Role::RowMap;
    prog_.weight += row ? 0 : op_weight(n.op, n.outs[0].dtype);
    write(n.outs[0], lower_elementwise(n, row), row ? Span::Outer : Span::All);
  }

  ValueId to_bool(ValueId v, bool row) {
    const Value x = prog_.values[v];
    if (x.dtype == DType::bool_) return v;
    return compute(find_to_bool(x.reg), {v}, Reg::u8, row, DType::bool_);
  }
  ValueId round_to(ValueId v, DType dtype, bool row) {
    return is_half(dtype) ? compute(find_round(dtype), {v}, Reg::f32, row, dtype) : v;
  }

  ValueId lower_cast(ValueId v, DType to, bool row) {
    const Value x = prog_.values[v];
    if (x.dtype == to) return v;
    if (to == DType::bool_) return to_bool(v, row);
    if (x.reg == reg_of(to) && !is_half(to)) return retype(v, to, row);
    if (x.reg != reg_of(to)) {
      const Fn odd = is_half(to) ? find_cast_odd(x.reg) : nullptr;
      v = compute(odd ? odd : find_cast(x.reg, reg_of(to)), {v}, reg_of(to), row, is_half(to) ? DType::float32 : to);
    }
    return round_to(v, to, row);
  }
  // The same bytes with another dtype (half -> float32, bool -> uint8).
  ValueId retype(ValueId v, DType to, bool row) {
    const Reg r = reg_of(to);
    return compute(find_cast(r, r), {v}, r, row, to);
  }

  ValueId lower_elementwise(const Node& n, bool row) {
    const int arity = n.info().arity;
    const DType out = n.outs[0].dtype;
    ValueId v[3];
    for (int i = 0; i < arity; ++i) v[i] = read(n.ins[i], row);
    if (n.op == OpId::cast) return lower_cast(v[0], out, row);
    if (n.op == OpId::full) {
      Operand value = n.ins.at(0);
      value.dtype = out;
      return constant(value, row);
    }
    if (n.op == OpId::where) return lower_where(n, v, row);
    if (n.info().bits_kept) return compute(find_bits(n.op), {v[0], v[arity - 1]}, reg_of(out), row, out);
    if (n.op == OpId::rand_int && (is_float(out) || out == DType::bool_)) {
      Node exact = n;
      exact.outs[0].dtype = DType::int64;
      return lower_cast(lower_kernel(exact, DType::int64, v, row), out, row);
    }
    const DType d = arity ? n.ins[0].dtype : out;
    if (arity > 1 && n.ins[1].dtype != d) refuse(std::string(n.info().name) + ": inputs of different dtypes");
    switch (n.op) {
      case OpId::logical_not:
      case OpId::logical_and:
      case OpId::logical_or:
      case OpId::logical_xor: {
        if (out != DType::bool_) refuse(std::string(n.info().name) + ": the output is not bool");
        for (int i = 0; i < arity; ++i) v[i] = to_bool(v[i], row);
        return compute(find_bool_arith(n.op), {v[0], v[1]}, Reg::u8, row, out);
      }
      default: break;
    }
    return lower_kernel(n, d, v, row);
  }

  ValueId lower_where(const Node& n, const ValueId* v, bool row) {
    if (n.ins[1].dtype != n.outs[0].dtype || n.ins[2].dtype != n.outs[0].dtype)
      refuse("where: inputs of different dtypes");
    return compute(find_where(reg_of(n.outs[0].dtype)), {to_bool(v[0], row), v[1], v[2]}, reg_of(n.outs[0].dtype), row,
                   n.outs[0].dtype);
  }

  Fn find_kernel(OpId op, OpClass cls, DType d, DType out) const {
    if (cls == OpClass::Source) return find_source(op, out);
    if (d == DType::bool_) return find_bool_arith(op);
    const Reg r = reg_of(d);
    if (r != Reg::f32 && r != Reg::f64) return find_int_arith(op, r);
    if (Fn f = find_float_arith(op, r)) return f;
    return r == Reg::f32 ? find_math_f32(op) : find_math_f64(op);
  }

  ValueId lower_kernel(const Node& n, DType d, const ValueId* v, bool row) {
    const DType out = n.outs[0].dtype;
    if (out != (n.info().bool_result ? DType::bool_ : d))
      refuse(std::string(n.info().name) + ": no version from " + std::string(dtype_name(d)) + " to " +
             std::string(dtype_name(out)));
    const Fn fn = find_kernel(n.op, n.info().cls, d, out);
    if (!fn) refuse(std::string(n.info().name) + ": no version for " + std::string(dtype_name(d)));
    const bool exact = n.info().exact_result;
    const ValueId r = compute(fn, {v[0], v[1], v[2]}, reg_of(out), row, exact || !is_half(out) ? out : DType::float32);
    Instr& in = code_.back();
    const int64_t arity = n.info().arity, count = std::ssize(n.ins);
    if (count - arity > 4) refuse(std::string(n.info().name) + ": too many parameters");
    for (int64_t i = arity; i < count; ++i) {
      if (!n.ins[i].is_param) refuse(std::string(n.info().name) + ": a tensor where a number is expected");
      in.param[i - arity] = n.ins[i].param;
      in.param_type[i - arity] = n.ins[i].dtype;
    }
    return exact ? r : round_to(r, out, row);
  }

  void lower_reduce(const Node& n, bool col) {
    const Operand& x = n.ins.at(0);
    const Operand& y = n.outs[0];
    check_covers(x, Span::All);
    const ValueId v = read(x, false);
    ReductionUse use;
    use.col = col;
    use.out = reg_of(y.dtype);
    use.dtype = y.dtype;
    if (!find_reduction(n.op, reg_of(x.dtype), use.out, &use.fn))
      refuse(std::string(n.info().name) + ": no version from " + std::string(dtype_name(x.dtype)) + " to " +
             std::string(dtype_name(y.dtype)));
    const ReductionId index = prog_.reductions.end_id();
    (col ? prog_.col_reductions : prog_.row_reductions).push_back(index);
    prog_.weight += 1;
    if (col) {
      prog_.reductions.push_back(use);
      write(y, ValueId(), Span::Inner);
      if (!prog_.reductions.back().access.valid()) refuse("a column reduction's result is elided");
      Instr& in = emit(Opcode::ColReduce, false);
      in.src[0] = v;
      in.reduction = index;
      return;
    }
    use.dst = new_value(use.out, true, is_half(y.dtype) ? DType::float32 : y.dtype);
    const ValueId whole = whole_of_part(v, &use);
    if (whole.valid()) join_real_part(whole, index, &use);
    prog_.reductions.push_back(use);
    Instr& in = emit(Opcode::RowReduce, false);
    in.src[0] = whole.valid() ? whole : v;
    in.dst = use.dst;
    in.reduction = index;
    write(y, round_to(use.dst, y.dtype, true), Span::Outer);
  }

  // If `v` is a part of complex elements, a row of parts is summed as it is read: these elements, and the function for them.
  ValueId whole_of_part(ValueId v, ReductionUse* use) {
    for (const Instr& in : code_) {
      if (in.opcode != Opcode::Compute || in.row || in.dst != v) continue;
      for (int part = 0; part < 2; ++part) {
        if (in.fn != find_bits(part == 0 ? OpId::real_part : OpId::imag_part) || !use->fn.part_row[part]) continue;
        use->fn.row = use->fn.part_row[part];
        use->part = part;
        summed_parts_.push_back(v);
        return in.src[0];
      }
    }
    return {};
  }
  // The sum of imaginary parts is computed with that of the real parts of the same elements.
  void join_real_part(ValueId whole, ReductionId index, ReductionUse* use) {
    for (const Instr& in : code_) {
      if (use->part != 1 || in.opcode != Opcode::RowReduce || in.src[0] != whole) continue;
      ReductionUse& real = prog_.reductions[in.reduction];
      if (real.part != 0 || real.imaginary.valid() || real.out != use->out) continue;
      real.imaginary = index;
      use->with_real_part = true;
      return;
    }
  }
  // Parts that nobody reads, because only sums used them.
  void drop_unread_parts() {
    if (summed_parts_.empty()) return;
    Indexed<ValueId, bool> read(prog_.values.size(), false);
    for (const Instr& in : code_)
      for (const ValueId s : in.src)
        if (s.valid()) read[s] = true;
    std::erase_if(code_, [&](const Instr& in) {
      return in.dst.valid() && !read[in.dst] &&
             std::find(summed_parts_.begin(), summed_parts_.end(), in.dst) != summed_parts_.end();
    });
  }

  // --- after all nodes
  void finish() {
    drop_unread_parts();
    bool has_rows = !prog_.row_reductions.empty();
    for (const Value& v : prog_.values) has_rows |= v.row;
    prog_.mode = has_rows ? Mode::Rows : !prog_.col_reductions.empty() ? Mode::Columns : Mode::Map;
    if (prog_.mode == Mode::Rows) {
      const int64_t elements = only_sums() ? 16384 : 1024;
      prog_.rows_per_tile = std::clamp<int64_t>(elements / std::max<int64_t>(prog_.cols, 1), 1, kRowBlock);
      prog_.tile = std::max<int64_t>(prog_.rows_per_tile * prog_.cols, 1);
      if (prog_.cols > kMaxRow) prog_.mode = Mode::LongRows;
    }
    if (prog_.mode == Mode::Map) adapt_to_memory();
    if (prog_.mode == Mode::Map || prog_.mode == Mode::Columns) hold_patterns();
    if (prog_.mode != Mode::LongRows) {
      point_stores();
      find_hazards();
      one_stage();
      if (prog_.mode == Mode::Rows && prog_.cols > 1024 &&
          prog_.stages[0].arena / prog_.rows_per_tile > kRowTileBytes) {
        unpoint_stores();
        prog_.stages.clear();
        prog_.hazards.clear();
        prog_.mode = Mode::LongRows;
      }
    }
    if (prog_.mode == Mode::LongRows) {
      prog_.rows_per_tile = 1;
      find_hazards();
      split_stages();
    }
    place_rows();
    choose_natural_row();
  }

  // Whether rows are reduced where they lie in memory. Then a tile needs no memory for elements, and may have many rows.
  bool only_sums() const {
    return std::all_of(code_.begin(), code_.end(), [&](const Instr& in) {
      if (in.row || in.opcode == Opcode::RowReduce) return true;
      if (in.opcode != Opcode::Load) return false;
      const Access& a = prog_.accesses[in.access];
      return a.kind == Access::Kind::Contiguous && is_native(a.dtype) && !a.root;
    });
  }

  // A short row that is broadcast is the same in every tile that begins with it, so it is repeated once per task, not
  // once per tile.
  void hold_patterns() {
    constexpr int64_t kLeastTile = 256;  // shrink_tile
    const auto runs_long = [](const Access& a) {
      return a.kind == Access::Kind::General && a.size[a.rank - 1] >= kLeastTile;
    };
    if (space_.empty() || std::any_of(prog_.accesses.begin(), prog_.accesses.end(), runs_long)) return;
    std::erase_if(code_, [&](const Instr& in) {
      if (in.opcode != Opcode::Load || in.row) return false;
      const Access& a = prog_.accesses[in.access];
      if (a.kind != Access::Kind::General || a.rank != 2 || a.stride[0] != 0 || a.stride[1] != a.size_of) return false;
      if (kLeastTile % a.size[1] != 0 || space_[space_.size() - 1] % a.size[1] != 0) return false;
      Value& v = prog_.values[in.dst];
      v.constant = true;
      v.access = in.access;
      return true;
    });
  }

  // The number of stores into a slot; more than one if an in-place op follows in the same group.
  int64_t writes_to(SlotId of_slot) const {
    return std::count_if(code_.begin(), code_.end(), [&](const Instr& in) {
      if (in.opcode != Opcode::Store && in.opcode != Opcode::Point) return false;
      return slot(prog_.accesses[in.access].binding) == of_slot;
    });
  }

  // If memory limits the speed (a simple instruction takes about as long as a byte, and several streams are too many
  // for the processor's prefetching), short tiles are faster: their reads overlap with the computation, and outputs can
  // be written without being read first. 5 arrays of 64 MiB, 2 threads: 6.7 ms instead of 10.1.
  void adapt_to_memory() {
    int64_t reach = 0;
    for (const Access& a : prog_.accesses) reach += a.reach;
    const int64_t work = prog_.weight * prog_.rows * prog_.cols;
    far_ = reach >= kFar && (reach >= work || (prog_.accesses.size() > 2 && 2 * reach >= work));
    if (!far_) return;
    prog_.ahead = 2;
    for (Access& a : prog_.accesses) {
      a.streamed = a.output && a.kind == Access::Kind::Contiguous && is_native(a.dtype) && a.reach >= kFar;
      prog_.streams |= a.streamed;
    }
  }

  // A value that is stored contiguously is computed directly in the memory of its output.
  void point_stores() {
    for (int64_t i = 0; i < std::ssize(code_); ++i) {
      if (code_[i].opcode != Opcode::Store || code_[i].row) continue;
      const ValueId v = code_[i].src[0];
      const Access& a = prog_.accesses[code_[i].access];
      if (a.kind != Access::Kind::Contiguous || !is_native(a.dtype) || a.streamed) continue;
      if (writes_to(slot(a.binding)) > 1) continue;  // another value is there before or after
      int64_t def = 0;
      while (def < i && code_[def].dst != v) ++def;
      if (def == i || (code_[def].opcode != Opcode::Compute && code_[def].opcode != Opcode::Expand)) continue;
      if (def > 0 && code_[def - 1].opcode == Opcode::Point) continue;  // already in the memory of another output
      Instr point = code_[i];
      point.opcode = Opcode::Point;
      point.dst = v;
      point.src[0] = ValueId();
      code_.erase(code_.begin() + i);
      code_.insert(code_.begin() + def, point);
    }
  }
  void unpoint_stores() {
    for (size_t i = 0; i + 1 < code_.size(); ++i) {
      if (code_[i].opcode != Opcode::Point) continue;
      code_[i].opcode = Opcode::Store;
      code_[i].src[0] = code_[i].dst;
      code_[i].dst = ValueId();
      std::swap(code_[i], code_[i + 1]);
      ++i;
    }
  }

  // The memory plan may give an output the memory of an input (in-place ops, donated buffers).
  void find_hazards() {
    std::vector<AccessId> hoist;
    for (const AccessId i : prog_.accesses.ids()) {
      if (prog_.accesses[i].output) continue;
      for (const AccessId o : prog_.accesses.ids()) {
        if (!prog_.accesses[o].output) continue;
        Hazard h{i, o, false, false};
        const bool aligned = prog_.mode != Mode::LongRows && prog_.accesses[i].same_layout(prog_.accesses[o]) &&
                             load_and_store_are_alike(h);
        h.same_place_ok = aligned && last_use(h.input) <= store_of(h.output);
        h.same_place_copy = aligned && !h.same_place_ok;
        if (h.same_place_copy) hoist.push_back(h.input);
        prog_.hazards.push_back(h);
      }
    }
    // Loads that may have to be copied come before all stores.
    std::stable_partition(code_.begin(), code_.end(), [&](const Instr& in) {
      return in.opcode == Opcode::Load && std::find(hoist.begin(), hoist.end(), in.access) != hoist.end();
    });
  }
  bool load_and_store_are_alike(const Hazard& h) const {
    const Instr* load = nullptr;
    const Instr* store = nullptr;
    for (const Instr& in : code_) {
      if (in.access == h.input) load = &in;
      if (in.access == h.output) store = &in;
    }
    return load && store && !load->row && !store->row;
  }
  int64_t last_use(AccessId access) const {
    ValueId value;
    int64_t last = -1;
    for (int64_t i = 0; i < std::ssize(code_); ++i) {
      if (code_[i].access == access && code_[i].opcode == Opcode::Load) value = code_[i].dst;
      for (const ValueId s : code_[i].src)
        if (s.valid() && s == value) last = i;
    }
    return last;
  }
  int64_t store_of(AccessId access) const {
    for (int64_t i = 0; i < std::ssize(code_); ++i) {
      if (code_[i].access != access) continue;
      return code_[i].opcode == Opcode::Point ? i + 1 : i;  // written by the next instruction
    }
    return -1;
  }

  // Assigns memory by liveness. Operands are freed before the destination is assigned, because instructions may work in
  // place.
  void place(Stage& stage, int64_t tile) {
    Indexed<ValueId, int64_t> last(prog_.values.size(), -1);
    for (int64_t i = 0; i < std::ssize(stage.code); ++i)
      for (const ValueId s : stage.code[i].src)
        if (s.valid()) last[s] = i;
    stage.place.assign(prog_.values.size(), -1);
    stage.arena = 0;
    std::vector<int64_t> unused[9];
    const auto take = [&](ValueId v) {
      const int size = reg_size(prog_.values[v].reg);
      auto& list = unused[size];
      int64_t at = stage.arena;
      if (list.empty()) {
        stage.arena += round64(tile * size);
      } else {
        at = list.back();
        list.pop_back();
      }
      stage.place[v] = at;
    };
    for (const ValueId v : prog_.values.ids())
      if (prog_.values[v].constant && !prog_.values[v].row && last[v] >= 0) take(v);
    for (int64_t i = 0; i < std::ssize(stage.code); ++i) {
      const Instr& in = stage.code[i];
      for (int k = 0; k < 3; ++k) {
        const ValueId s = in.src[k];
        if (!s.valid() || last[s] != i || std::find(in.src, in.src + k, s) != in.src + k) continue;
        const Value& v = prog_.values[s];
        if (!v.row && !v.constant && stage.place[s] >= 0) unused[reg_size(v.reg)].push_back(stage.place[s]);
      }
      const bool pointed = i > 0 && stage.code[i - 1].opcode == Opcode::Point && stage.code[i - 1].dst == in.dst;
      if (!in.dst.valid() || in.opcode == Opcode::Point || pointed || prog_.values[in.dst].row) continue;
      take(in.dst);
      if (last[in.dst] < 0)  // computed but never read
        unused[reg_size(prog_.values[in.dst].reg)].push_back(stage.place[in.dst]);
    }
  }

  void one_stage() {
    prog_.stages.emplace_back();
    Stage& stage = prog_.stages[0];
    stage.code = code_;
    if (prog_.mode != Mode::Rows) shrink_tile(stage);
    place(stage, prog_.tile);
  }
  void shrink_tile(Stage& stage) {
    prog_.tile = far_ ? 256 : 1024;
    place(stage, prog_.tile);
    while (prog_.tile > 256 && stage.arena > kTileBytes) {
      prog_.tile /= 2;
      place(stage, prog_.tile);
    }
  }

  // Long rows: pass k computes what depends on reductions of earlier passes. Values that are needed again are
  // recomputed.
  void split_stages() {
    Indexed<ValueId, int> level(prog_.values.size(), 0);
    std::vector<int> at(code_.size(), 0);
    int stages = 1;
    for (size_t i = 0; i < code_.size(); ++i) {
      int l = 0;
      for (const ValueId s : code_[i].src)
        if (s.valid()) l = std::max(l, level[s]);
      at[i] = l;
      if (code_[i].dst.valid()) level[code_[i].dst] = code_[i].opcode == Opcode::RowReduce ? l + 1 : l;
      stages = std::max(stages, code_[i].opcode == Opcode::RowReduce ? l + 2 : l + 1);
    }
    prog_.tile = 4 * kBlock;
    for (int k = 0; k < stages; ++k) {
      Stage stage;
      Indexed<ValueId, bool> wanted(prog_.values.size(), false);
      std::vector<bool> keep(code_.size(), false);
      for (size_t i = code_.size(); i-- > 0;) {
        const Instr& in = code_[i];
        if (in.row) continue;
        const bool sink =
            in.opcode == Opcode::Store || in.opcode == Opcode::RowReduce || in.opcode == Opcode::ColReduce;
        keep[i] = sink ? at[i] == k : in.dst.valid() && wanted[in.dst];
        if (!keep[i]) continue;
        for (const ValueId s : in.src)
          if (s.valid()) wanted[s] = true;
      }
      for (size_t i = 0; i < code_.size(); ++i) {
        if (code_[i].row && at[i] == k) stage.row_code.push_back(code_[i]);
        if (keep[i]) stage.code.push_back(code_[i]);
      }
      place(stage, prog_.tile);
      if (stage.arena > 4 * kTileBytes) prog_.tile = kBlock;
      prog_.stages.push_back(std::move(stage));
    }
    for (Stage& s : prog_.stages) place(s, prog_.tile);
  }

  void place_rows() {
    prog_.row_place.assign(prog_.values.size(), -1);
    for (const ValueId v : prog_.values.ids()) {
      if (!prog_.values[v].row) continue;
      prog_.row_place[v] = prog_.row_arena;
      prog_.row_arena += round64(prog_.rows_per_tile * 8);
    }
  }

  // Tiles that end with the rows of a broadcast operand can use it in place.
  void choose_natural_row() {
    for (const Access& a : prog_.accesses)
      if (a.kind == Access::Kind::General && a.size[a.rank - 1] >= 256)
        prog_.natural_row = prog_.natural_row ? std::min(prog_.natural_row, a.size[a.rank - 1]) : a.size[a.rank - 1];
  }

  const Problem& p_;
  const Graph& g_;
  TileProgram& prog_;
  bool far_ = false;  // the working set is in no cache
  Dims space_;
  int split_ = 0;
  std::vector<Instr> code_;
  std::vector<ValueId> summed_parts_;
  std::vector<Written> written_;
  std::vector<Loaded> loads_;
  std::vector<std::pair<ValueId, ValueId>> expanded_;  // (row value, element value)
};

}  // namespace

Refusal lower(const Problem& p, TileProgram* program) {
  try {
    Lowering(p, *program).run();
  } catch (const Refused& r) {
    return r.reason;
  }
  return {};
}

}  // namespace pyflame::cpu::tile
