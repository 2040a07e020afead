// The texts of the attention kernels. Needs no device.
#pragma once
#include <string>

#include "pyflame/backends/gpu/ops/attention_tiles.h"

namespace pyflame::gpu {

struct AttentionSource {
  std::string text;
  unsigned threads = 0, rows = 0, shared_bytes = 0;  // rows: per workgroup
};

// Whether the tiled kernels take it, or why not: 16-bit types, head sizes to 256. Without matrix cores, the limit of
// registers is lower.
bool attention_on_matrix_units(const AttentionKind& a, std::string* why);

constexpr int64_t kSplitRows = 64, kStatsPadding = 128;

// wide: all operands consist of aligned pieces of 16 bytes. folded: see kernels/attention/forward.h.
AttentionSource attention_forward(const AttentionKind& a, const AttentionForwardTiles& tiles, bool wide, bool folded,
                                  bool split);
AttentionSource attention_combine(const AttentionKind& a);
AttentionSource attention_query_stats(const AttentionKind& a);
AttentionSource attention_queries_grad(const AttentionKind& a, const AttentionGradTiles& tiles, bool wide);
// parts: 1 for dv, 2 for dk, 3 for both.
AttentionSource attention_keys_grad(const AttentionKind& a, const AttentionGradTiles& tiles, bool wide, int parts);

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
