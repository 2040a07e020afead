// The shapes of loops that tuning may try.
#include "pyflame/backends/gpu/loops/loop_shape.h"

#include <set>

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

std::vector<NamedShape> other_shapes(const Problem& p) {
  std::vector<NamedShape> all;
  if (p.group.space.numel() == 0) return all;
  const Sizes size(p.group);
  const LoopShape own = own_shape(p);
  const bool rows = has(p, Role::RowReduce), columns = has(p, Role::ColReduce);
  const size_t most = rows && columns ? kMostOfTwo : kMost;
  if (rows) add_shapes(all, own, &LoopShape::rows, other_row_cuts(size.rows, size.columns), most);
  if (columns) add_shapes(all, own, &LoopShape::columns, other_column_cuts(size.rows, size.columns), most);
  if (!rows && !columns) add_shapes(all, own, &LoopShape::flat, other_flat_shapes(p, Geometry(p)), most);
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
