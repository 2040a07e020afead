// Writes the texts of the attention kernels.
#include "pyflame/backends/gpu/ops/attention_kernels.h"

#include "pyflame/backends/gpu/jit/kernel.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kPlainThreads = 128, kStatsThreads = 256;

const char* mask_name(AttentionMask m) {
  return m == AttentionMask::none ? "pf::kNoMask" : m == AttentionMask::boolean ? "pf::kBoolMask" : "pf::kAddedMask";
}

AttentionSource finish(std::string parameters, std::string call, const AttentionKind& a, unsigned threads, int rows,
                       int shared_bytes, bool matrix, const char* file) {
  std::string body = "(" + parameters + ", pf::Attention p) { pf::" + call + "; }";
  const std::string type = stored_type(a.dtype);
  for (size_t at; (at = body.find("$T")) != std::string::npos;) body.replace(at, 2, type);
  AttentionSource s;
  s.text = matrix ? kernel_source({"device/mma.h", "device/async.h", "attention/common.h", "attention/tiles.h", file},
                                  threads, body)
                  : kernel_source({"device/mma.h", "device/async.h", "attention/common.h", "attention/plain.h"},
                                  threads, body);
  s.threads = threads;
  s.rows = static_cast<unsigned>(rows);
  s.shared_bytes = static_cast<unsigned>(shared_bytes);
  return s;
}

int compute_bytes(DType d) { return d == DType::float64 ? 8 : 4; }

}  // namespace

AttentionSource attention_forward(const AttentionKind& a, const AttentionForwardTiles& f, bool wide, bool folded,
                                  bool split) {
  const int width = attention_width(a.dim);
  return finish(
      "const $T* q, const $T* k, const $T* v, const void* mask, $T* out, float* lse, float* parts",
      fmt::format("attention_forward<$T, pf::ForwardTiles<{}, {}, {}, {}, {}, {}>, {}, {}, {}, {}, {}, {}>(q, k, "
                  "v, mask, out, lse, parts, p)",
                  width, f.tiles, f.waves, f.keys, f.stages, f.held, mask_name(a.mask), a.causal, wide, folded, split,
                  a.packed),
      a, static_cast<unsigned>(f.waves * a.wave), f.rows(), forward_bytes(f, width), true, "attention/forward.h");
}

AttentionSource attention_combine(const AttentionKind& a) {
  const unsigned threads = a.dim <= 64 ? 64 : 128;
  return finish("const float* parts, $T* out, float* lse, int splits",
                "attention_combine<$T>(parts, out, lse, p, splits)", a, threads, 1, 0, true, "attention/forward.h");
}

AttentionSource attention_query_stats(const AttentionKind& a) {
  return finish(
      "const $T* grad, const $T* out, const float* lse, float* stats, pf::i64 padded",
      fmt::format("attention_query_stats<$T, {}, {}>(grad, out, lse, stats, padded, p)", kStatsThreads, a.packed), a,
      kStatsThreads, kStatsThreads / 16, 0, true, "attention/backward.h");
}

AttentionSource attention_queries_grad(const AttentionKind& a, const AttentionGradTiles& t, bool wide) {
  const int width = attention_width(a.dim);
  return finish(
      "const $T* grad, const $T* q, const $T* k, const $T* v, const float* stats, pf::i64 padded, const void* mask, "
      "$T* "
      "dq",
      fmt::format(
          "attention_queries_grad<$T, pf::BackwardTiles<{}, {}, {}, {}, {}>, {}, {}, {}, {}>(grad, q, k, v, stats, "
          "padded, mask, dq, p)",
          width, t.tiles, t.waves, t.step, t.stages, mask_name(a.mask), a.causal, wide, a.packed),
      a, static_cast<unsigned>(t.waves * a.wave), t.rows(), queries_grad_bytes(t, width), true, "attention/backward.h");
}

AttentionSource attention_paged_tiles(const AttentionKind& a) {
  constexpr int kWaves = 4;
  const auto width = static_cast<int>((a.dim + 15) / 16 * 16);
  const std::string type = stored_type(a.dtype);
  AttentionSource s;
  s.threads = static_cast<unsigned>(kWaves * a.wave);
  s.shared_bytes = static_cast<unsigned>((1 + 2 * kWaves) * 16 * (width + kAttentionPad) * 2);
  s.text = kernel_source(
      {"device/mma.h", "device/async.h", "device/float8.h", "attention/paged.h", "attention/paged_tiles.h"}, s.threads,
      fmt::format("(const {0}* q, const {0}* keys, const {0}* values, const int* table, const int* "
                  "lengths, {0}* out, float* parts, pf::PagedAttention p) {{ "
                  "pf::paged_tiles<{0}, {1}, {2}>(q, keys, values, table, lengths, out, parts, p); }}",
                  type, width, kWaves));
  return s;
}

bool attention_on_matrix_units(const AttentionKind& a, std::string* why) {
  const int64_t most = a.units == MatrixKind::none ? 128 : 256;
  if (a.dtype != DType::float16 && a.dtype != DType::bfloat16) *why = "not a 16-bit type";
  else if (a.dim < 1 || a.dim > most) *why = fmt::format("head size not in 1 to {}", most);
  else if (a.units == MatrixKind::none && a.mask != AttentionMask::none) *why = "a mask, and no matrix cores";
  return why->empty();
}

AttentionSource attention_keys_grad(const AttentionKind& a, const AttentionGradTiles& t, bool wide, int parts) {
  const int width = attention_width(a.dim);
  return finish(
      "const $T* grad, const $T* q, const $T* k, const $T* v, const float* stats, pf::i64 padded, const void* mask, "
      "$T* "
      "dk, $T* dv",
      fmt::format("attention_keys_grad<$T, pf::BackwardTiles<{}, {}, {}, {}, {}>, {}, {}, {}, {}, {}>(grad, q, k, v, "
                  "stats, padded, mask, dk, dv, p)",
                  width, t.tiles, t.waves, t.step, t.stages, mask_name(a.mask), a.causal, wide, parts, a.packed),
      a, static_cast<unsigned>(t.waves * a.wave), t.rows(), keys_grad_bytes(t, width), true, "attention/backward.h");
}

AttentionSource attention_plain(const AttentionKind& a) {
  return finish("const $T* q, const $T* k, const $T* v, const void* mask, $T* out, float* lse",
                fmt::format("attention_plain<$T, {}, {}, {}, {}>(q, k, v, mask, out, lse, p)", mask_name(a.mask),
                            a.causal, kPlainThreads, a.packed),
                a, kPlainThreads, 1, 2 * static_cast<int>(a.dim) * compute_bytes(a.dtype), false, "");
}
AttentionSource attention_plain_query_stats(const AttentionKind& a) {
  return finish("const $T* grad, const $T* q, const $T* k, const $T* v, pf::C<$T>* stats, const void* mask",
                fmt::format("attention_plain_query_stats<$T, {}, {}, {}, {}>(grad, q, k, v, stats, mask, p)",
                            mask_name(a.mask), a.causal, kPlainThreads, a.packed),
                a, kPlainThreads, 1, 0, false, "");
}
AttentionSource attention_plain_queries_grad(const AttentionKind& a) {
  return finish(
      "const $T* grad, const $T* q, const $T* k, const $T* v, const pf::C<$T>* stats, const void* mask, $T* dq",
      fmt::format("attention_plain_queries_grad<$T, {}, {}, {}, {}>(grad, q, k, v, stats, mask, dq, p)",
                  mask_name(a.mask), a.causal, kPlainThreads, a.packed),
      a, kPlainThreads, 1, static_cast<int>(a.dim) * compute_bytes(a.dtype), false, "");
}
AttentionSource attention_plain_keys_grad(const AttentionKind& a) {
  return finish(
      "const $T* grad, const $T* q, const $T* k, const $T* v, const pf::C<$T>* stats, const void* mask, $T* dk, $T* dv",
      fmt::format("attention_plain_keys_grad<$T, {}, {}, {}, {}>(grad, q, k, v, stats, mask, dk, dv, p)",
                  mask_name(a.mask), a.causal, kPlainThreads, a.packed),
      a, kPlainThreads, 1, 4 * static_cast<int>(a.dim) * compute_bytes(a.dtype), false, "");
}

}  // namespace pyflame::gpu
