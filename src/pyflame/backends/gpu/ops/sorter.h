// Stable sorting of rows by keys (kernels/order/radix.h): one kernel for rows that fit into a tile, and passes over
// memory for longer ones. The structs that several ops pass to kernels are defined here as well.
#pragma once
#include <memory>
#include <string>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/kernels/order/radix_args.h"

namespace pyflame::gpu {

using Pairs = pf::Pairs<pf::u8>;  // the type of the keys changes no size

class Sorter {
 public:
  static constexpr int64_t kTile = 4096;
  // `source` and `sink`: types of the kernels, from `files`. Keys have 64 bits (wide) or 32, of which `bits` are
  // compared.
  struct Spec {
    DeviceType type;
    const char* file;
    std::string source, sink;
    bool wide;
    int bits;
    int64_t rows, n, keep;
  };
  using Shape = pf::SortShape;
  explicit Sorter(const Spec& spec);
  size_t workspace() const { return parts_.size(); }
  // The arguments are the host's structs for `source` and `sink`.
  template <class Source, class Sink>
  void run(int device, const Source& source, const Sink& sink, void* workspace) {
    if (spec_.rows == 0 || spec_.n == 0 || spec_.keep == 0) return;
    if (tile_) {
      const Shape shape{spec_.rows, spec_.n, spec_.keep, 1, 0, spec_.bits};
      tile_->launch(device, group_each(spec_.rows), source, sink, shape);
      return;
    }
    for (int pass = 0; pass < passes_; ++pass) {
      const bool first = pass == 0, last = pass == passes_ - 1;
      const Pairs from = pairs(workspace, pass + 1), to = pairs(workspace, pass);
      if (first) count(device, pass, *count_source_, source, workspace);
      else count(device, pass, *count_pairs_, from, workspace);
      if (first && last) move(device, pass, *source_to_sink_, source, sink, workspace);
      else if (first) move(device, pass, *source_to_pairs_, source, to, workspace);
      else if (last) move(device, pass, *pairs_to_sink_, from, sink, workspace);
      else move(device, pass, *pairs_to_pairs_, from, to, workspace);
    }
  }

 private:
  Shape shape(int pass) const {
    return {spec_.rows, spec_.n, pass == passes_ - 1 ? spec_.keep : spec_.n, tiles_, 8 * pass, spec_.bits};
  }
  Pairs pairs(void* workspace, int pass) const;
  uint32_t* counts(void* workspace) const { return reinterpret_cast<uint32_t*>(part_of(workspace, counts_)); }
  uint32_t* totals(void* workspace) const { return reinterpret_cast<uint32_t*>(part_of(workspace, totals_)); }
  template <class Source>
  void count(int device, int pass, Kernel& kernel, const Source& source, void* workspace) {
    uint32_t* to = counts(workspace);
    kernel.launch(device, group_each(spec_.rows * tiles_), source, to, shape(pass));
    const int64_t lines = spec_.rows * 256;
    sum_->launch(device, {groups_for(lines, 1), 1, 1}, to, totals(workspace), lines, tiles_);
  }
  template <class Source, class Sink>
  void move(int device, int pass, Kernel& kernel, const Source& source, const Sink& sink, void* workspace) {
    kernel.launch(device, group_each(spec_.rows * tiles_), source, sink, counts(workspace), totals(workspace),
                  shape(pass));
  }

  Spec spec_;
  int passes_ = 0;
  int64_t tiles_ = 1;
  Parts parts_;
  size_t keys_[2] = {}, ids_[2] = {}, counts_ = 0, totals_ = 0;
  std::unique_ptr<Kernel> tile_, count_source_, count_pairs_, sum_, source_to_sink_, source_to_pairs_, pairs_to_pairs_,
      pairs_to_sink_;
};

}  // namespace pyflame::gpu
