// The parts of a generated kernel: the operands of a group and their strides (Geometry), and the text of a kernel with
// its arguments (KernelText).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/backends/gpu/loops/loop_source.h"

namespace pyflame::gpu {

// An operand in memory: a binding with strides over the group's space (0 where it is broadcast).
struct Access {
  BindingId binding;
  DType dtype;
  Dims strides;
};

// A dim of the space. Dims that are contiguous with each other in all accesses are merged.
struct Dim {
  int64_t size;
  std::vector<int64_t> strides;  // per access
};

class Geometry {
 public:
  explicit Geometry(const Problem& p);
  size_t access(const Operand& o) const;
  const std::vector<Access>& accesses() const { return accesses_; }
  // The space's dims of a list, outermost first; at least one.
  std::vector<Dim> merged(const std::vector<int>& dims) const;
  std::vector<Dim> merged(int begin, int end) const;
  bool wide() const { return wide_; }         // indices need more than 32 bits
  std::string name() const { return name_; }  // for kernel names: the ops

 private:
  const Group& g_;
  std::vector<Access> accesses_;
  std::string name_ = "loop";
  bool wide_ = false;
};

bool is_reduction(Role r);
// pf::Sums, … and the type in which a reduction accumulates.
std::string reduction_op(const Node& n);
std::string accumulator(const Node& n);
size_t accumulator_bytes(const Node& n);

class KernelText {
 public:
  KernelText(const Geometry& geometry, std::vector<Dim> outer, std::vector<Dim> inner);

  std::string pointer(BindingId binding);
  std::string typed(size_t access);  // "(float*)b0"
  std::string workspace(size_t offset);
  std::string number(int64_t value);   // of type I
  std::string divider(int64_t value);  // of type D

  // Declares the coordinates <prefix>0 … of a linear index. `unit`: the index counts units of this many elements.
  std::string coordinates(bool inner, const std::string& index, int64_t unit = 1);
  // The offset of an access at these coordinates, "" if it is 0.
  std::string offset(bool inner, size_t access);
  int64_t stride(size_t access) const;  // between adjacent elements
  std::string step(size_t access);      // the same as text
  const std::vector<Dim>& outer() const { return outer_; }
  const std::vector<Dim>& inner() const { return inner_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // Whether units of n adjacent elements of an access are contiguous, and aligned if the pointer is. Records that the
  // pointer must be aligned.
  bool neighbours(size_t access, int64_t n) const;
  void need_alignment(size_t access, int64_t n);

  // files: what the text needs besides the files of all kernels.
  LoopKernel finish(const Expressions& expressions, const std::string& body, std::array<unsigned, 3> grid,
                    std::initializer_list<const char*> files = {"device/divider.h", "loop/loop.h"});

 private:
  // The strides of an access as text. Accesses with equal strides share their arguments, so that they need fewer
  // registers and the compiler computes their offset once.
  const std::vector<std::string>& strides(bool inner, size_t access);
  std::string argument(LoopArgument a, std::vector<LoopArgument>& list, const char* prefix);
  const Geometry& geometry_;
  std::vector<Dim> outer_, inner_;
  int64_t rows_ = 1, columns_ = 1;
  std::vector<LoopArgument> pointers_, workspaces_, numbers_, dividers_;
  struct Names {
    int64_t unit;
    std::vector<std::string> dividers;
  };
  std::vector<Names> names_[2];
  std::vector<std::vector<std::string>> strides_[2];
  LoopKernel kernel_;
};

// loop_flat.cpp, loop_rows.cpp, loop_columns.cpp
std::vector<int> flat_order(const Problem& p);  // the order of dims in which the last output is contiguous in memory
LoopKernel flat_kernel(const Problem& p, const Geometry& g, bool vectors, const FlatShape& shape);
// Other shapes for which a lane has the registers, the most promising first.
std::vector<FlatShape> other_flat_shapes(const Problem& p, const Geometry& g);
// loop_tile.cpp: over the dims in the order in which they are written. Returns nothing if inputs and outputs are
// contiguous along the same dim.
std::optional<LoopKernel> tile_kernel(const Problem& p, const Geometry& g, std::vector<Dim> dims, bool vectors,
                                      int64_t side);
std::optional<std::vector<int64_t>> other_tile_sides(const Problem& p, const Geometry& g, std::vector<Dim> dims);
// Row values that column reductions need are stored in the workspace: row_values[node] is the offset, or -1.
void row_kernels(const Problem& p, const Geometry& g, bool vectors, const RowCut& cut, LoopPlan& plan,
                 std::vector<int64_t>& row_values);
void column_kernels(const Problem& p, const Geometry& g, bool vectors, const ColumnCut& cut, LoopPlan& plan,
                    const std::vector<int64_t>& row_values);

}  // namespace pyflame::gpu
