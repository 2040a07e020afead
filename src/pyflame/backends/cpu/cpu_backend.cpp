// The CPU backend: the list of implementations for every kind of group, best first. The reference takes what no other
// implementation accepts.
#include <array>
#include <vector>

#include "pyflame/backends/cpu/cpu_backend.h"

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/divisions.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/cpu/transpose.h"
#include "pyflame/backends/reference/reference.h"
#include "pyflame/base/threads.h"

namespace pyflame {

namespace {

using namespace cpu;

constexpr std::span<const Impl> (*kImpls[])() = {
#define OP(...) nullptr,  // the tile interpreter computes it
#define KERNEL(name, ...) name##_impls,
#include "pyflame/ops/ops.def"
};

class CpuBackend final : public Backend {
 public:
  CpuBackend() {
    for (size_t i = 0; i < lists_.size(); ++i) {
      if (kImpls[i])
        for (const Impl& impl : kImpls[i]()) lists_[i].push_back(with_divisions(impl));
      lists_[i].push_back(kReferenceImpl);
    }
    loop_ = {with_divisions({"cpu.tile", tile_accepts, tile_make}), kReferenceImpl};
    transposed_ = {with_divisions({"cpu.transpose", transpose_accepts, transpose_make}), loop_[0], loop_[1]};
  }
  const char* name() const override { return "cpu"; }
  std::span<const Impl> impls(const Problem& p) const override {
    // Only where it is accepted: of other loops nobody wants to read why they are no transposed copies.
    if (p.group.kind == GroupKind::Loop) return transpose_accepts(p) ? loop_ : transposed_;
    return lists_[static_cast<size_t>(p.root().op)];
  }
  MemoryFormat preferred_format(const ImageResult& r) const override {
    const bool last = r.given == MemoryFormat::channels_last || prefers_channels_last(r);
    return last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  }
  // Measurements hold for a number of threads, too.
  std::string libraries(int) const override {
    return fmt::format("{} threads; oneDNN {}; {}", num_threads(), onednn_version(), openblas_version());
  }
  bool loops_in_memory_order() const override { return true; }
  bool composes(OpId op) const override { return op == OpId::batch_norm; }
  bool convolves_volumes() const override { return true; }
  bool computes_with_blocks() const override { return true; }

 private:
  std::array<std::vector<Impl>, static_cast<size_t>(kNumOps)> lists_;
  std::vector<Impl> loop_, transposed_;
};

}  // namespace

const Backend& cpu_backend() {
  static const auto* backend = new CpuBackend;  // leaked: programs compute in exit handlers
  return *backend;
}

}  // namespace pyflame
