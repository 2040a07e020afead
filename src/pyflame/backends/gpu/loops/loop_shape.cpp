// The shapes of loops that tuning may try.
#include "pyflame/backends/gpu/loops/loop_shape.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/loops/loop_text.h"

namespace pyflame::gpu {

namespace {

constexpr size_t kMost = 6;           // shapes of a loop, because each one costs time to compile and to measure
constexpr size_t kMostOfTwo = 4;      // the same for each of two, where a loop reduces both rows and columns
constexpr int64_t kMostParts = 8192;  // workgroups with a part of a row or of columns each

struct Sizes {
  int64_t rows = 1, columns = 1;
  explicit Sizes(const Group& g) {
    for (int d = 0; d < g.space.size(); ++d) (d < g.split ? rows : columns) *= g.space[d];
  }
};

bool has(const Problem& p, Role role) {
  return std::find(p.group.roles.begin(), p.group.roles.end(), role) != p.group.roles.end();
}

// Keeps what differs from the own choice and from what is there.
template <class Cut>
void add(std::vector<Cut>& all, const Cut& own, const Cut& c) {
  if (c != own && std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
}

std::vector<RowCut> other_row_cuts(int64_t rows, int64_t n) {
  const RowCut own = cut_rows(rows, n);
  std::vector<RowCut> all;
  const auto segments = [&](int64_t wanted) {
    const RowCut c = row_segments(n, std::max<int64_t>(wanted, 1));
    if (rows * c.segments <= kMostParts || c.segments == 1) add(all, own, c);
  };
  // Lanes of a part of a wave, with at most so many elements each.
  const auto lanes = [&](int64_t wanted) {
    constexpr int64_t kMostUnits = 32;
    if (wanted >= 1 && ceil_div(n, kUnit * wanted) <= kMostUnits) add(all, own, {wanted, 1, n});
  };
  if (own.segments > 1) {
    for (const int64_t wanted : {2 * own.segments, own.segments / 2, 4 * own.segments, own.segments / 4, int64_t{1}})
      segments(wanted);
    return all;
  }
  const bool few = rows * own.lanes / kGroupThreads < kBusyGroups;
  if (own.lanes < kGroupThreads) {
    if (few && n > kGroupThreads) segments(1);
    lanes(own.lanes / 2);
    lanes(own.lanes / 4);
    if (!few && n > kGroupThreads) segments(1);
    return all;
  }
  if (!few) lanes(kGroupThreads / 8), lanes(kGroupThreads / 16);
  for (const int64_t wanted : {2, 4, 8}) segments(wanted);
  if (few) lanes(kGroupThreads / 8);
  return all;
}

std::vector<ColumnCut> other_column_cuts(int64_t rows, int64_t columns) {
  constexpr int64_t kMostSegments = 1024, kMostAcross = 64;
  const ColumnCut own = cut_columns(rows, columns);
  std::vector<ColumnCut> all;
  const auto cut = [&](int64_t across, int64_t wanted) {
    if (across < 1 || across > kMostAcross || 4 * across > std::max<int64_t>(columns, 4)) return;
    const int64_t lanes = kGroupThreads / across, parts = std::clamp<int64_t>(wanted, 1, kMostSegments);
    const int64_t segment = parts == 1 ? rows : ceil_div(ceil_div(rows, parts), lanes) * lanes;
    if (parts == 1 || segment >= kRowsAtOnce * lanes) add(all, own, column_segments(rows, across, segment));
  };
  cut(own.across, 2 * own.segments);
  cut(own.across, own.segments / 2);
  cut(2 * own.across, own.segments);
  cut(own.across / 2, own.segments);
  cut(own.across, 4 * own.segments);
  cut(own.across, own.segments / 4);
  return all;
}

// What a loop reads and writes, each operand once.
struct Moved {
  double bytes = 0, loads = 0;  // the latter for an element of the space
  explicit Moved(const Problem& p) {
    std::set<BindingId> seen;
    const auto add = [&](const Operand& o, double& to) {
      if (o.is_param || !p.group.stores(o) || !seen.insert(o.binding).second) return;
      bytes += static_cast<double>(o.nbytes()), to += static_cast<double>(o.nbytes());
    };
    double stores = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      for (const Operand& o : p.node(i).ins) add(o, loads);
      for (const Operand& o : p.node(i).outs) add(o, stores);
    }
    loads /= static_cast<double>(std::max<int64_t>(1, p.group.space.numel()));
  }
};
double number(int64_t x) { return static_cast<double>(x); }
constexpr double kRegister = 4, kLine = 128;  // bytes
constexpr double kPartBytes = 2 * 8;          // of a part of a reduction, written and read

// Parts of a reduction are combined by a second kernel.
double combine_us(double segments, double results, const Figures& f) {
  return segments > 1 ? kLaunchUs + segments * results * kPartBytes / f.bandwidth : 0;
}
// Of a workgroup with kGroupThreads threads, each of which has asked for so many bytes before it waits. used: the part of the lanes' time in
// which they have elements.
double group_us(double groups, double loads, double used, double fixed_us, const Moved& m, const Figures& f) {
  Work w;
  w.groups = groups;
  w.waves = static_cast<double>(kGroupThreads) / f.wave;
  w.cached = m.bytes / groups / used;
  w.bytes = m.bytes;
  w.loads = loads * used;
  w.registers = kUsualRegisters + 2 * loads / kRegister;  // what is loaded, and what is computed of it
  w.fixed_us = fixed_us;
  return launch_us(w, f);
}
// A lane that takes less than a register of an operand leaves a part of each access unused.
double flat_us(const FlatShape& s, double elements, const Moved& m, const Figures& f) {
  const double each = number(s.vector * s.each);
  const double groups = std::max(1.0, std::ceil(elements / (each * kGroupThreads)));
  return group_us(groups, each * m.loads, std::min(1.0, number(s.vector) * std::max(m.loads, 1.0) / kRegister), 0, m,
                  f);
}
double rows_us(const RowCut& c, double rows, const Moved& m, const Figures& f) {
  constexpr double kShuffleUs = 0.02;  // of one step among the lanes of a wave
  const double units = std::ceil(number(c.segment) / kUnit), lanes = number(c.lanes), steps = std::ceil(units / lanes);
  const double groups = std::max(1.0, std::ceil(rows * number(c.segments) * lanes / kGroupThreads));
  const double combines = c.lanes > f.wave ? kBarrierUs : kShuffleUs * std::log2(lanes);
  return group_us(groups, kUnit * m.loads, units / (steps * lanes), combines, m, f) +
         combine_us(number(c.segments), rows, f);
}
// Rows that are read in pieces shorter than a line of the cache leave a part of it unused.
double columns_us(const ColumnCut& c, double rows, double columns, const Moved& m, const Figures& f) {
  const double wide = number(kUnit * c.across), blocks = std::ceil(columns / wide);
  const double each = std::ceil(number(c.segment) / number(c.lanes));
  const double used = columns / (blocks * wide) * rows / (number(c.segments * c.lanes) * each) *
                      std::min(1.0, wide * std::max(m.loads, 1.0) / kLine);
  return group_us(blocks * number(c.segments), kUnit * std::min(each, number(kRowsAtOnce)) * m.loads,
                  std::min(1.0, used), kBarrierUs, m, f) +
         combine_us(number(c.segments), columns, f);
}

std::string name_of(const FlatShape& f) {
  return f.side > 0 ? fmt::format("side={}", f.side) : fmt::format("vector={},each={}", f.vector, f.each);
}
std::string name_of(const RowCut& c) {
  return c.segments > 1 ? fmt::format("segments={}", c.segments) : fmt::format("lanes={}", c.lanes);
}
std::string name_of(const ColumnCut& c) { return fmt::format("across={},column_segments={}", c.across, c.segments); }

// Adds the first `most` of several ways to divide a part of the loop.
template <class Part>
void add_shapes(std::vector<NamedShape>& all, const LoopShape& own, Part LoopShape::*part,
                const std::vector<Part>& others, size_t most) {
  for (size_t i = 0; i < std::min(most, others.size()); ++i) {
    NamedShape s{name_of(others[i]), own};
    s.shape.*part = others[i];
    all.push_back(std::move(s));
  }
}

}  // namespace

LoopShape own_shape(const Problem& p) {
  const Sizes size(p.group);
  LoopShape s;
  if (has(p, Role::RowReduce)) s.rows = cut_rows(size.rows, size.columns);
  if (has(p, Role::ColReduce)) s.columns = cut_columns(size.rows, size.columns);
  return s;
}

double shape_us(const Problem& p, const LoopShape& shape, const Figures& f) {
  const Sizes size(p.group);
  const Moved moved(p);
  const bool rows = has(p, Role::RowReduce), columns = has(p, Role::ColReduce);
  if (!rows && !columns) return flat_us(shape.flat, number(p.group.space.numel()), moved, f);
  return (rows ? rows_us(shape.rows, number(size.rows), moved, f) : 0) +
         (columns ? columns_us(shape.columns, number(size.rows), number(size.columns), moved, f) : 0);
}

std::vector<NamedShape> other_shapes(const Problem& p) {
  const Device d = p.graph.device;
  if (count_devices(d.type) == 0) return other_shapes(p, Figures());
  const Arch& arch = arch_of(d.type, d.index);
  return other_shapes(p, Figures::of(arch.name, arch.wave, arch.compute_units, false));
}

std::vector<NamedShape> other_shapes(const Problem& p, const Figures& f) {
  std::vector<NamedShape> all;
  if (p.group.space.numel() == 0) return all;
  const Sizes size(p.group);
  const LoopShape own = own_shape(p);
  const bool rows = has(p, Role::RowReduce), columns = has(p, Role::ColReduce);
  const size_t most = rows && columns ? kMostOfTwo : kMost;
  if (rows) add_shapes(all, own, &LoopShape::rows, other_row_cuts(size.rows, size.columns), most);
  if (columns) add_shapes(all, own, &LoopShape::columns, other_column_cuts(size.rows, size.columns), most);
  if (!rows && !columns) add_shapes(all, own, &LoopShape::flat, other_flat_shapes(p, Geometry(p)), most);
  if (all.size() < 2) return all;  // a transposition has one, and its tiles have no estimate
  std::vector<std::pair<double, NamedShape>> timed;
  for (NamedShape& s : all) {
    const double us = shape_us(p, s.shape, f);
    timed.emplace_back(us, std::move(s));
  }
  std::stable_sort(timed.begin(), timed.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
  for (size_t i = 0; i < all.size(); ++i) all[i] = std::move(timed[i].second);
  return all;
}

bool worth_measuring(const Problem& p) {
  constexpr size_t kLeastBytes = size_t{1} << 20;
  constexpr int64_t kLong = 32768;
  const Sizes size(p.group);
  if (has(p, Role::RowReduce) && size.columns >= kLong) return true;
  if (has(p, Role::ColReduce) && size.rows >= kLong) return true;
  size_t operands = 0, bytes = 0;
  for (size_t i = 0; i < p.size(); ++i) operands += p.node(i).ins.size() + p.node(i).outs.size();
  if (operands * static_cast<size_t>(p.group.space.numel()) * sizeof(double) < kLeastBytes) return false;
  std::set<BindingId> seen;
  for (size_t i = 0; i < p.size(); ++i)
    for (const auto* all : {&p.node(i).ins, &p.node(i).outs})
      for (const Operand& o : *all)
        if (!o.is_param && p.group.stores(o) && seen.insert(o.binding).second) bytes += o.nbytes();
  return bytes >= kLeastBytes;
}

}  // namespace pyflame::gpu
