// What a matmul group's own kernels do with each output element, as text and as arguments.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/loops/expression.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/product.h"

namespace pyflame::gpu {

// The arguments of a launch; each must live until the launch.
struct Arguments {
  std::vector<void*> pointers;
  std::vector<uint32_t> sizes;
  template <class T>
  void add(const T& x) {
    pointers.push_back(const_cast<void*>(static_cast<const void*>(&x)));
    sizes.push_back(sizeof(T));
  }
  void clear() { pointers.clear(), sizes.clear(); }
};

// What the kernels of kernels/matmul do with an element: all nodes of the group after the product, and the stores. Its
// arguments follow the kernel's own.
class Output {
 public:
  explicit Output(const Problem& p);
  // "void* e0, …" with a leading comma.
  std::string parameters() const;
  // Statements that define `out`, which is called with (z, row, col, x), or with `swapped` (z, col, row, x). z is the
  // row-major index of the output's batch dims. Without `swapped`, and if rows of the result are contiguous, also
  // out.many(z, row, col, xs) for kMany adjacent elements, which stores each result at once. out.whole() says whether
  // it may be used (pointers are aligned; col is a multiple of kMany).
  std::string text(bool swapped, bool many = false) const;
  void append(Arguments& arguments, const RunContext& ctx);

 private:
  std::string address(const Operand& o);
  std::string pointer(const Operand& o);
  Dims space_;
  DType dtype_;
  std::string body_, params_text_;
  // For many(): like body_, but into the vectors y<i>; then the vectors, their stores, and the required alignment.
  std::string many_body_, many_vectors_, many_stores_, many_whole_;
  int many_ = 1;
  std::vector<BindingId> bindings_;
  std::vector<int64_t> numbers_;
  std::vector<Expressions::ParamUse> params_;
  std::vector<void*> pointers_;  // of the current run
  std::vector<uint64_t> values_;
};

// The text of the kernel of a group, for aligned pointers.
enum class MatmulEntry { gemv, units, tile };
std::string matmul_source(const Problem& p, MatmulEntry entry);
// The configurations of the entry for matrix cores, with their kernels' texts, on an AMD GPU with such waves.
std::vector<std::pair<std::string, std::vector<std::string>>> units_configurations(const Problem& p, int wave);

// Workgroups: x for tiles, y for batches.
std::array<unsigned, 3> tile_grid(int64_t tiles, int64_t batches);

}  // namespace pyflame::gpu
