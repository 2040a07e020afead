#include "pyflame/backends/gpu/ops/attention_tiles.h"

#include <algorithm>
#include <vector>

namespace pyflame::gpu {

namespace {

// Registers and shared memory limit the tiles. CUDA (mma): 255 registers per lane, and the next tile is copied in the
// meantime; these tiles were the fastest of sweeps on an H100 and, for packed sequences, on an H200. AMD: 64 KiB of
// shared memory; with WMMA, or without matrix cores, a lane holds more of each tile than with MFMA.
AttentionForwardTiles forward_tiles(const AttentionKind& a, int width, bool split) {
  const int tiles = split || a.few_rows ? 1 : 2;
  if (a.units == MatrixKind::mma) {
    if (width <= 64) return {tiles, 4, 64, 2, true};
    if (width <= 128) return {tiles, 4, a.packed && tiles == 2 ? 32 : 64, 2, tiles == 1};
    return {1, 4, 32, 2, false};
  }
  if (a.units == MatrixKind::mfma) {
    if (width <= 128) return {tiles, 4, width <= 64 ? 64 : 32, 1, true};
    return {1, 4, 32, 1, true};
  }
  return {1, 4, width <= 64 ? 32 : 16, 1, false};
}

AttentionGradTiles keys_tiles(const AttentionKind& a, int width) {
  if (a.units == MatrixKind::mma) {
    if (width <= 64) return {2, 4, 32, 2, true};
    if (width <= 128) return {1, 4, 64, 2, true};
    return {1, 4, 32, 1, false};
  }
  // Whether the registers of a lane can hold dk and dv together.
  const bool at_once = a.units == MatrixKind::mfma || width <= 64;
  return {1, width <= 128 ? 4 : 2, width <= 128 && a.units == MatrixKind::mfma ? 32 : 16, 1, at_once};
}
AttentionGradTiles queries_tiles(const AttentionKind& a, int width) {
  AttentionGradTiles t = keys_tiles(a, width);
  if (a.units == MatrixKind::mma) {
    if (width <= 64) t = {2, 4, 48, 2, true};
    else if (width <= 128) t = {2, 4, 32, 2, true};
    else t = {1, 4, 16, 2, true};
  }
  t.at_once = true;
  return t;
}

// --- what tuning may try: tiles of each kind of matrix cores, for rows of up to `width`. The most promising come first. On
// AMD, none of them spills vector registers (tests/kernels/test_attention_tiles.py), but for the own choice for the queries'
// gradient of wide heads with WMMA and a mask. Those of CUDA are an estimate: the sums, the scores and the held queries of a
// lane take at most 192 registers, as with the own choices.
template <class Tiles>
struct Row {
  MatrixKind units;
  int width;
  Tiles tiles;
};
constexpr MatrixKind kMma = MatrixKind::mma, kMfma = MatrixKind::mfma, kWmma = MatrixKind::wmma;

// {tiles, waves, keys, stages, held}
// clang-format off
constexpr Row<AttentionForwardTiles> kForward[] = {
    {kMma, 64, {2, 4, 64, 2, true}},
    {kMma, 64, {1, 4, 128, 2, true}},
    {kMma, 64, {2, 8, 64, 2, true}},
    {kMma, 64, {1, 8, 128, 2, true}},
    {kMma, 64, {1, 8, 64, 2, true}},
    {kMma, 64, {1, 4, 64, 2, true}},
    {kMma, 64, {2, 4, 32, 2, true}},
    {kMma, 64, {2, 4, 64, 1, true}},
    {kMma, 64, {1, 2, 64, 2, true}},
    {kMma, 64, {1, 4, 32, 2, true}},
    {kMma, 128, {2, 4, 64, 2, false}},
    {kMma, 128, {1, 8, 64, 2, true}},
    {kMma, 128, {1, 4, 64, 2, true}},
    {kMma, 128, {1, 8, 128, 2, true}},
    {kMma, 128, {1, 4, 128, 2, true}},
    {kMma, 128, {2, 4, 32, 2, false}},
    {kMma, 128, {2, 8, 64, 2, false}},
    {kMma, 128, {2, 8, 32, 2, false}},
    {kMma, 128, {1, 4, 64, 1, true}},
    {kMma, 128, {1, 2, 64, 2, true}},
    {kMma, 128, {1, 4, 32, 2, true}},
    {kMma, 256, {1, 4, 32, 2, false}},
    {kMma, 256, {1, 8, 32, 2, false}},
    {kMma, 256, {1, 4, 64, 2, false}},
    {kMma, 256, {1, 8, 64, 2, false}},
    {kMma, 256, {1, 4, 64, 1, false}},
    {kMma, 256, {1, 4, 16, 2, false}},
    {kMma, 256, {1, 2, 32, 2, false}},
    {kMfma, 64, {2, 4, 64, 1, true}},
    {kMfma, 64, {2, 4, 128, 1, true}},
    {kMfma, 64, {1, 4, 64, 1, true}},
    {kMfma, 64, {2, 8, 64, 1, true}},
    {kMfma, 64, {2, 4, 64, 2, true}},
    {kMfma, 64, {1, 4, 128, 1, true}},
    {kMfma, 64, {1, 8, 64, 1, true}},
    {kMfma, 64, {2, 4, 32, 2, true}},
    {kMfma, 64, {1, 2, 64, 1, true}},
    {kMfma, 128, {2, 4, 32, 1, true}},
    {kMfma, 128, {2, 4, 64, 1, true}},
    {kMfma, 128, {1, 4, 64, 1, true}},
    {kMfma, 128, {1, 8, 64, 1, true}},
    {kMfma, 128, {2, 4, 32, 2, true}},
    {kMfma, 128, {1, 4, 32, 1, true}},
    {kMfma, 128, {2, 4, 96, 1, true}},
    {kMfma, 128, {1, 8, 32, 1, true}},
    {kMfma, 128, {1, 4, 32, 2, true}},
    {kMfma, 128, {1, 2, 64, 1, true}},
    {kMfma, 256, {1, 4, 32, 1, true}},
    {kMfma, 256, {1, 4, 48, 1, true}},
    {kMfma, 256, {1, 8, 32, 1, true}},
    {kMfma, 256, {2, 4, 32, 1, true}},
    {kMfma, 256, {1, 4, 64, 1, true}},
    {kMfma, 256, {1, 4, 16, 2, true}},
    {kMfma, 256, {1, 2, 32, 1, true}},
    {kWmma, 64, {1, 4, 32, 1, false}},
    {kWmma, 64, {1, 8, 32, 1, false}},
    {kWmma, 64, {1, 4, 48, 1, false}},
    {kWmma, 64, {2, 4, 16, 1, false}},
    {kWmma, 64, {1, 4, 32, 1, true}},
    {kWmma, 64, {1, 4, 32, 2, false}},
    {kWmma, 64, {1, 2, 32, 1, false}},
    {kWmma, 64, {1, 4, 16, 2, false}},
    {kWmma, 128, {1, 4, 16, 1, false}},
    {kWmma, 128, {1, 8, 16, 1, false}},
    {kWmma, 128, {1, 4, 16, 2, false}},
    {kWmma, 128, {1, 4, 16, 1, true}},
    {kWmma, 128, {1, 2, 16, 1, false}},
    {kWmma, 256, {1, 4, 16, 1, false}},
    {kWmma, 256, {1, 8, 16, 1, false}},
    {kWmma, 256, {1, 4, 16, 2, false}},
    {kWmma, 256, {1, 2, 16, 1, false}},
    {kWmma, 256, {1, 2, 16, 2, false}},
};
// clang-format on

// {tiles, waves, step, stages, at_once}
// clang-format off
constexpr Row<AttentionGradTiles> kQueries[] = {
    {kMma, 64, {2, 4, 48, 2, true}},
    {kMma, 64, {2, 4, 64, 2, true}},
    {kMma, 64, {2, 4, 32, 2, true}},
    {kMma, 64, {1, 8, 64, 2, true}},
    {kMma, 64, {1, 4, 64, 2, true}},
    {kMma, 64, {2, 8, 32, 2, true}},
    {kMma, 64, {1, 4, 32, 2, true}},
    {kMma, 128, {2, 4, 32, 2, true}},
    {kMma, 128, {1, 8, 64, 2, true}},
    {kMma, 128, {1, 4, 64, 2, true}},
    {kMma, 128, {1, 8, 32, 2, true}},
    {kMma, 128, {2, 4, 16, 2, true}},
    {kMma, 128, {2, 4, 32, 1, true}},
    {kMma, 128, {1, 4, 32, 2, true}},
    {kMma, 256, {1, 4, 16, 2, true}},
    {kMma, 256, {1, 4, 32, 2, true}},
    {kMma, 256, {1, 4, 32, 1, true}},
    {kMma, 256, {1, 8, 16, 2, true}},
    {kMma, 256, {1, 4, 16, 1, true}},
    {kMma, 256, {1, 2, 16, 2, true}},
    {kMfma, 64, {1, 4, 32, 1, true}},
    {kMfma, 64, {2, 4, 32, 1, true}},
    {kMfma, 64, {1, 4, 64, 1, true}},
    {kMfma, 64, {2, 4, 64, 1, true}},
    {kMfma, 64, {1, 8, 32, 1, true}},
    {kMfma, 64, {1, 4, 32, 2, true}},
    {kMfma, 64, {2, 2, 32, 1, true}},
    {kMfma, 128, {1, 4, 32, 1, true}},
    {kMfma, 128, {2, 2, 32, 1, true}},
    {kMfma, 128, {1, 4, 16, 1, true}},
    {kMfma, 128, {2, 4, 16, 1, true}},
    {kMfma, 128, {1, 8, 16, 1, true}},
    {kMfma, 128, {1, 2, 64, 1, true}},
    {kMfma, 128, {1, 4, 16, 2, true}},
    {kMfma, 128, {1, 2, 32, 1, true}},
    {kMfma, 256, {1, 2, 16, 1, true}},
    {kMfma, 256, {1, 4, 16, 1, true}},
    {kMfma, 256, {1, 2, 32, 1, true}},
    {kMfma, 256, {1, 1, 32, 1, true}},
    {kMfma, 256, {1, 1, 16, 2, true}},
    {kWmma, 64, {1, 4, 16, 1, true}},
    {kWmma, 64, {1, 4, 32, 1, true}},
    {kWmma, 64, {1, 8, 32, 1, true}},
    {kWmma, 64, {1, 8, 16, 1, true}},
    {kWmma, 64, {1, 4, 32, 2, true}},
    {kWmma, 128, {1, 4, 16, 1, true}},
    {kWmma, 128, {1, 8, 16, 1, true}},
    {kWmma, 128, {1, 4, 16, 2, true}},
    {kWmma, 256, {1, 2, 16, 1, true}},
};
// clang-format on

// {tiles, waves, step, stages, at_once}
// clang-format off
constexpr Row<AttentionGradTiles> kKeys[] = {
    {kMma, 64, {2, 4, 32, 2, true}},
    {kMma, 64, {1, 4, 64, 2, true}},
    {kMma, 64, {1, 8, 64, 2, true}},
    {kMma, 64, {2, 8, 32, 2, true}},
    {kMma, 64, {1, 8, 32, 2, true}},
    {kMma, 64, {2, 4, 64, 2, false}},
    {kMma, 64, {2, 4, 16, 2, true}},
    {kMma, 64, {1, 4, 32, 2, true}},
    {kMma, 128, {1, 4, 64, 2, true}},
    {kMma, 128, {1, 8, 64, 2, true}},
    {kMma, 128, {1, 8, 32, 2, true}},
    {kMma, 128, {1, 4, 32, 2, true}},
    {kMma, 128, {2, 4, 32, 2, false}},
    {kMma, 128, {1, 4, 64, 1, true}},
    {kMma, 128, {1, 4, 64, 2, false}},
    {kMma, 256, {1, 4, 32, 1, false}},
    {kMma, 256, {1, 4, 32, 2, false}},
    {kMma, 256, {1, 4, 64, 1, false}},
    {kMma, 256, {1, 8, 32, 1, false}},
    {kMma, 256, {1, 4, 16, 2, false}},
    {kMma, 256, {1, 2, 32, 1, false}},
    {kMfma, 64, {1, 4, 32, 1, true}},
    {kMfma, 64, {2, 4, 32, 1, true}},
    {kMfma, 64, {1, 4, 64, 1, true}},
    {kMfma, 64, {2, 4, 64, 1, true}},
    {kMfma, 64, {1, 8, 32, 1, true}},
    {kMfma, 64, {1, 4, 32, 2, true}},
    {kMfma, 64, {2, 2, 32, 1, true}},
    {kMfma, 128, {1, 4, 32, 1, true}},
    {kMfma, 128, {2, 2, 32, 1, true}},
    {kMfma, 128, {1, 4, 16, 1, true}},
    {kMfma, 128, {2, 4, 16, 1, true}},
    {kMfma, 128, {1, 8, 16, 1, true}},
    {kMfma, 128, {1, 4, 16, 2, true}},
    {kMfma, 128, {1, 2, 32, 1, true}},
    {kMfma, 256, {1, 2, 16, 1, true}},
    {kMfma, 256, {1, 4, 16, 1, true}},
    {kMfma, 256, {1, 2, 32, 1, true}},
    {kWmma, 64, {1, 4, 16, 1, true}},
    {kWmma, 64, {1, 4, 32, 1, false}},
    {kWmma, 64, {2, 4, 16, 1, false}},
    {kWmma, 64, {1, 8, 16, 1, true}},
    {kWmma, 64, {1, 4, 16, 2, true}},
    {kWmma, 128, {1, 4, 16, 1, false}},
    {kWmma, 128, {1, 8, 16, 1, false}},
    {kWmma, 128, {1, 4, 16, 2, false}},
    {kWmma, 128, {1, 2, 32, 1, false}},
    {kWmma, 256, {1, 2, 16, 1, false}},
    {kWmma, 256, {1, 4, 16, 1, false}},
    {kWmma, 256, {1, 1, 16, 2, false}},
};
// clang-format on

template <class Tiles, size_t kRows>
std::vector<Tiles> fitting(const Row<Tiles> (&rows)[kRows], const AttentionKind& a, int shared_bytes,
                           int (*bytes)(const Tiles&, int)) {
  const int width = attention_width(a.dim), up_to = width <= 64 ? 64 : width <= 128 ? 128 : 256;
  std::vector<Tiles> all;
  for (const Row<Tiles>& r : rows)
    if (r.units == a.units && r.width == up_to && bytes(r.tiles, width) <= shared_bytes) all.push_back(r.tiles);
  return all;
}

}  // namespace

int attention_width(int64_t dim) {
  for (const int width : {32, 64, 96, 128, 192})
    if (dim <= width) return width;
  return 256;
}

int forward_bytes(const AttentionForwardTiles& f, int width) {
  const int rows = f.rows(), keys = f.stages * 2 * f.keys;
  return (f.held ? std::max(rows, keys) : rows + keys) * (width + kAttentionPad) * 2;
}
int queries_grad_bytes(const AttentionGradTiles& t, int width) {
  return 2 * (t.rows() + t.stages * t.step) * (width + kAttentionPad) * 2;
}
int keys_grad_bytes(const AttentionGradTiles& t, int width) {
  return queries_grad_bytes(t, width) + t.stages * 2 * t.step * 4;
}

AttentionForwardTiles attention_forward_tiles(const AttentionKind& a, bool split) {
  return forward_tiles(a, attention_width(a.dim), split);
}
AttentionGradTiles attention_queries_tiles(const AttentionKind& a) { return queries_tiles(a, attention_width(a.dim)); }
AttentionGradTiles attention_keys_tiles(const AttentionKind& a) { return keys_tiles(a, attention_width(a.dim)); }

std::vector<AttentionForwardTiles> all_attention_forward_tiles(const AttentionKind& a, int shared_bytes) {
  return fitting(kForward, a, shared_bytes, forward_bytes);
}
std::vector<AttentionGradTiles> all_attention_queries_tiles(const AttentionKind& a, int shared_bytes) {
  return fitting(kQueries, a, shared_bytes, queries_grad_bytes);
}
std::vector<AttentionGradTiles> all_attention_keys_tiles(const AttentionKind& a, int shared_bytes) {
  return fitting(kKeys, a, shared_bytes, keys_grad_bytes);
}

}  // namespace pyflame::gpu
