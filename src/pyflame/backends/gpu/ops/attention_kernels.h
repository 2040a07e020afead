// Which tiles the attention kernels use for a head size on an architecture, and the kernels' texts. Needs no device.
#pragma once
#include <string>

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

struct AttentionSource {
  std::string text;
  unsigned threads = 0, rows = 0, shared_bytes = 0;  // rows: per workgroup
};

// Whether the tiled kernels take it, or why not: 16-bit types, head sizes to 256. Without matrix cores, the limit of
// registers is lower.
bool attention_on_matrix_units(const AttentionKind& a, std::string* why);

constexpr int64_t kSplitRows = 64, kStatsPadding = 128;

// wide: all operands consist of aligned pieces of 16 bytes. folded: see kernels/attention/forward.h.
AttentionSource attention_forward(const AttentionKind& a, bool wide, bool folded, bool split);
AttentionSource attention_combine(const AttentionKind& a);
AttentionSource attention_query_stats(const AttentionKind& a);
AttentionSource attention_queries_grad(const AttentionKind& a, bool wide);
// parts: 1 for dv, 2 for dk, 3 for both.
AttentionSource attention_keys_grad(const AttentionKind& a, bool wide, int parts);
// Whether the registers of a lane can hold dk and dv together.
bool attention_keys_grad_at_once(const AttentionKind& a);

// For any dtype, and any head size that fits kMostPlainBytes of shared memory.
constexpr int64_t kMostPlainBytes = 40 * 1024;
AttentionSource attention_plain(const AttentionKind& a);
AttentionSource attention_plain_query_stats(const AttentionKind& a);
AttentionSource attention_plain_queries_grad(const AttentionKind& a);
AttentionSource attention_plain_keys_grad(const AttentionKind& a);

// paged_attention for 16-bit types and head sizes that are multiples of 8, up to kMostPagedWidth: AMD's GPUs have 64 KiB of shared memory.
constexpr int64_t kMostPagedWidth = 192;
AttentionSource attention_paged_tiles(const AttentionKind& a);

}  // namespace pyflame::gpu
