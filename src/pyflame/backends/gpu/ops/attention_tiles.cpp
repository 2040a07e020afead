#include "pyflame/backends/gpu/ops/attention_tiles.h"

#include <algorithm>
#include <cmath>
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

namespace {

// How many of `all` rows of the other side a block of rows visits, in the mean: with a causal mask those up to the diagonal, and the rest of
// the block that it cuts.
double visited(const AttentionKind& a, double all, double side, double rows) {
  if (!a.causal) return all;
  return std::min(all, std::max(0.0, all - side) + (std::min(side, all) + rows) / 2);
}
// Registers of a lane for values of float32 that a wave holds for 16 rows and so many columns.
double held_by_lane(const AttentionKind& a, int tiles, double columns) {
  return 16.0 * tiles * columns / std::max(a.wave, 1);
}
constexpr double kHalf = 2;  // bytes of an element

}  // namespace

double attention_forward_us(const AttentionKind& a, const AttentionSizes& s, const AttentionForwardTiles& t,
                            double splits, const Figures& f) {
  const double width = attention_width(a.dim), rows = t.rows();
  const double together = splits > 1 && !a.packed ? s.heads / s.kv_heads : 1;  // heads whose queries are one matrix
  const double seen = splits > 1 ? s.keys / splits : visited(a, s.keys, s.queries, rows);
  const double keys = std::ceil(seen / t.keys) * t.keys;
  Work w;
  w.groups = std::ceil(s.queries * together / rows) * s.sequences * s.heads / together * splits;
  w.operations = 4 * rows * keys * width;
  w.cached = kHalf * width * 2 * (rows + keys);
  w.bytes = kHalf * static_cast<double>(a.dim) * s.sequences * 2 * (s.heads * s.queries + s.kv_heads * s.keys);
  w.waves = t.waves;
  w.registers = kUsualRegisters + held_by_lane(a, t.tiles, width + t.keys + (t.held ? width / 2 : 0));
  w.shared_bytes = forward_bytes(t, attention_width(a.dim));
  w.overlaps = t.stages > 1;
  if (splits <= 1) return launch_us(w, f);
  // Each part of the result, its maximum and its sum are written and read as float32 by a second kernel.
  const double parts = 2 * 4 * splits * s.sequences * s.heads * s.queries * (static_cast<double>(a.dim) + 2);
  return launch_us(w, f) + kLaunchUs + parts / f.bandwidth;
}

double attention_queries_us(const AttentionKind& a, const AttentionSizes& s, const AttentionGradTiles& t,
                            const Figures& f) {
  const double width = attention_width(a.dim), rows = t.rows();
  const double keys = std::ceil(visited(a, s.keys, s.queries, rows) / t.step) * t.step;
  Work w;
  w.groups = std::ceil(s.queries / rows) * s.sequences * s.heads;
  w.operations = 6 * rows * keys * width;  // scores, and the gradients of probabilities and of queries
  w.cached = kHalf * width * (3 * rows + 2 * keys);
  w.bytes = kHalf * static_cast<double>(a.dim) * s.sequences * (3 * s.heads * s.queries + 2 * s.kv_heads * s.keys);
  w.waves = t.waves;
  w.registers = kUsualRegisters + held_by_lane(a, t.tiles, width + 2 * t.step);
  w.shared_bytes = queries_grad_bytes(t, attention_width(a.dim));
  w.overlaps = t.stages > 1;
  return launch_us(w, f);
}

double attention_keys_us(const AttentionKind& a, const AttentionSizes& s, const AttentionGradTiles& t,
                         const Figures& f) {
  const double width = attention_width(a.dim), rows = t.rows();
  const double queries = std::ceil(visited(a, s.queries, s.keys, rows) / t.step) * t.step * s.heads / s.kv_heads;
  Work w;
  w.groups = std::ceil(s.keys / rows) * s.sequences * s.kv_heads;
  w.cached = kHalf * width * (4 * rows + 2 * queries);
  w.bytes = kHalf * static_cast<double>(a.dim) * s.sequences * (2 * s.heads * s.queries + 4 * s.kv_heads * s.keys);
  w.waves = t.waves;
  w.registers = kUsualRegisters + held_by_lane(a, t.tiles, (t.at_once ? 2 : 1) * width + 2 * t.step);
  w.shared_bytes = keys_grad_bytes(t, attention_width(a.dim));
  w.overlaps = t.stages > 1;
  // Products with rows * queries * width multiply-adds: scores, gradients of probabilities, of keys and of values. In two passes each computes
  // the scores.
  const auto pass = [&](double products) {
    w.operations = 2 * products * rows * queries * width;
    return launch_us(w, f);
  };
  return t.at_once ? pass(4) : pass(3) + pass(2);
}

}  // namespace pyflame::gpu
