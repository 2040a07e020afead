// Which tiles the attention kernels use for a head size on an architecture, and which others they could use. Needs no device.
#pragma once
#include <string>
#include <vector>

#include "pyflame/backends/gpu/shapes/estimate.h"
#include "pyflame/base/gpu_arch.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame::gpu {

enum class AttentionMask { none, boolean, added };

// What the text of a kernel depends on.
struct AttentionKind {
  DType dtype = DType::float32;
  int64_t dim = 0;  // the head size
  AttentionMask mask = AttentionMask::none;
  bool causal = false;
  MatrixKind units = MatrixKind::none;  // the matrix cores of the architecture, which determine the tiles
  int wave = 0;
  bool packed = false;    // sequences are concatenated and found through their offsets
  bool few_rows = false;  // with the usual tiles of rows, some of the device would be idle
};

// The tiles of a workgroup: the arguments of ForwardTiles in kernels/attention/forward.h.
struct AttentionForwardTiles {
  int tiles, waves, keys, stages;
  bool held;
  int rows() const { return 16 * tiles * waves; }
  bool operator==(const AttentionForwardTiles&) const = default;
};
// The same of BackwardTiles in kernels/attention/backward.h. at_once: dk and dv are computed together, not one after the other,
// which the kernel of dq is not asked.
struct AttentionGradTiles {
  int tiles, waves, step, stages;
  bool at_once;
  int rows() const { return 16 * tiles * waves; }
  bool operator==(const AttentionGradTiles&) const = default;
};
// The width of a kernel's rows: the head size, rounded up to one that has tiles.
int attention_width(int64_t dim);
int forward_bytes(const AttentionForwardTiles& t, int width);  // of shared memory
int queries_grad_bytes(const AttentionGradTiles& t, int width);
int keys_grad_bytes(const AttentionGradTiles& t, int width);
constexpr int kAttentionPad = 8;  // kPitch of the kernels: padded rows of shared memory start in different banks

// PyFlame's own choice.
AttentionForwardTiles attention_forward_tiles(const AttentionKind& a, bool split);
AttentionGradTiles attention_queries_tiles(const AttentionKind& a);
AttentionGradTiles attention_keys_tiles(const AttentionKind& a);
// All tiles for which a lane has the registers and the workgroup has the shared memory, the most promising first; own choices are among
// them. Without matrix cores there are none.
std::vector<AttentionForwardTiles> all_attention_forward_tiles(const AttentionKind& a, int shared_bytes);
std::vector<AttentionGradTiles> all_attention_queries_tiles(const AttentionKind& a, int shared_bytes);
std::vector<AttentionGradTiles> all_attention_keys_tiles(const AttentionKind& a, int shared_bytes);

// Sequences, the heads of queries and of keys, and the rows of a sequence; of packed ones their mean.
struct AttentionSizes {
  double sequences = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1;
};
// Microseconds by arithmetic (estimate.h): the forward pass with keys that `splits` workgroups share, and the kernels of the gradient of
// queries, and of keys and values.
double attention_forward_us(const AttentionKind& a, const AttentionSizes& s, const AttentionForwardTiles& t,
                            double splits, const Figures& f);
double attention_queries_us(const AttentionKind& a, const AttentionSizes& s, const AttentionGradTiles& t,
                            const Figures& f);
double attention_keys_us(const AttentionKind& a, const AttentionSizes& s, const AttentionGradTiles& t,
                         const Figures& f);

}  // namespace pyflame::gpu
