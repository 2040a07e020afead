// Matrix products, convolution, normalisation, attention, embedding, losses.
#include "casters.h"
#include "pyflame/ops/recurrent.h"
#include "pyflame/ops/rows_of_blocks.h"
#include "pyflame/record/recorder.h"
#include "pyflame/tensor/float8_rows.h"
#include "pyflame/tensor/gguf_blocks.h"

namespace pyflame::python {

namespace {

#define OPTIONAL(name) name##_a.none() = nb::none()
#define REDUCTION "reduction"_a = "mean"

void bind_products(nb::module_& m, TensorClass& c) {
  auto matrix_product = [](const Tensor& a, const Tensor& b) { return matmul(a, b); };
  both(m, c, "matmul", matrix_product, "other"_a,
       "The matrix product of [..., M, K] and [..., K, N]; a 1-D operand is a vector. Batch dims "
       "broadcast.\nValueError when the inner sizes differ.");
  both(
      m, c, "mm",
      [](const Tensor& a, const Tensor& b) {
        PF_CHECK(a.dim() == 2 && b.dim() == 2, Value, "mm: needs two matrices; got shapes {} and {}", a.shape().str(),
                 b.shape().str());
        return matmul(a, b);
      },
      "mat2"_a,
      "The product of two matrices: [M, K] and [K, N] give [M, N]. The dtypes must be equal. ValueError for other "
      "shapes, TypeError for different dtypes and for bools.");
  both(m, c, "bmm", &bmm, "mat2"_a,
       "B products of matrices: [B, M, K] and [B, K, N] give [B, M, N]. ValueError for other shapes, TypeError for "
       "different dtypes and for bools.");
  m.def(
      "grouped_mm",
      [](const Tensor& a, const Tensor& b, const Tensor* offs) { return grouped_mm(a, b, or_undefined(offs)); },
      "mat_a"_a, "mat_b"_a, nb::kw_only(), OPTIONAL("offs"),
      "Products of groups of different sizes, such as the tokens of each expert of a mixture of experts.\n"
      "offs: int32 [G], where each group ends; it never decreases, and the last one is the size of the dim.\n"
      "mat_a [M, K], mat_b [G, K, N] -> [M, N]: group g is the rows offs[g - 1] to offs[g] - 1 of mat_a, which "
      "mat_b[g] "
      "multiplies.\n"
      "mat_a [K, M], mat_b [M, N] -> [G, K, N]: group g is some columns of mat_a and the same rows of mat_b.\n"
      "mat_a [G, M, K], mat_b [K, N] -> [M, N]: group g is some columns of mat_b, which mat_a[g] multiplies.\n"
      "mat_a [G, M, K], mat_b [G, K, N], without offs -> [G, M, N].\n"
      "float dtypes, the same for both. No group's size is read by the host. TypeError, ValueError (of values in offs "
      "where the result is read).");
  m.def(
      "_scaled_mm",
      [](const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, const Tensor* bias,
         DTypeArg dtype, bool fast) { return scaled_mm(a, b, scale_a, scale_b, or_undefined(bias), dtype, fast); },
      "mat_a"_a, "mat_b"_a, "scale_a"_a, "scale_b"_a, OPTIONAL("bias"), "dtype"_a = nb::none(), "fast"_a = false);
  both(m, c, "batch_matmul", &bmm, "mat2"_a,
       "The same as bmm: B products of matrices, [B, M, K] and [B, K, N] give [B, M, N]. "
       "ValueError for other shapes. TypeError where the dtypes differ, and for bools.");
  both(
      m, c, "dot",
      [](const Tensor& a, const Tensor& b) {
        PF_CHECK(a.dim() == 1 && b.dim() == 1, Value, "dot: needs two vectors; got shapes {} and {}", a.shape().str(),
                 b.shape().str());
        return matmul(a, b);
      },
      "tensor"_a,
      "The inner product of two vectors [K], a 0-d tensor: the sum of input[i] * tensor[i], without a conjugate. "
      "ValueError for other shapes and different lengths.");
  m.def(
      "linear", [](const Tensor& x, const Tensor& w, const Tensor* b) { return linear(x, w, or_undefined(b)); },
      "input"_a, "weight"_a, OPTIONAL("bias"),
      "input @ weight.T + bias. input [..., K], weight [N, K], bias [N] -> [..., N]. "
      "ValueError where the sizes do not fit. TypeError where the dtypes differ, and for bools.");
}

// One size for all three dims, or three.
Dims three(const char* op, const char* what, const DimsArg& given) {
  const Dims& d = given.get();
  if (d.size() == 1) return Dims::filled(3, d[0]);
  PF_CHECK(d.size() == 3, Value, "{}: {} needs one number or three; got {}", op, what, d.str());
  return d;
}

void bind_signals_and_volumes(nb::module_& m) {
  m.def(
      "conv1d",
      [](const Tensor& x, const Tensor& w, const Tensor* b, int64_t stride, int64_t padding, int64_t dilation,
         int64_t groups) { return conv1d(x, w, or_undefined(b), stride, padding, dilation, groups); },
      "input"_a, "weight"_a, OPTIONAL("bias"), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      "1-D cross-correlation. input [N, C, L], weight [O, C / groups, K], bias [O] -> [N, O, L'].");
  m.def(
      "conv_transpose1d",
      [](const Tensor& x, const Tensor& w, const Tensor* b, int64_t stride, int64_t padding, int64_t output_padding,
         int64_t groups, int64_t dilation) {
        return conv_transpose1d(x, w, or_undefined(b), stride, padding, output_padding, groups, dilation);
      },
      "input"_a, "weight"_a, OPTIONAL("bias"), "stride"_a = 1, "padding"_a = 0, "output_padding"_a = 0, "groups"_a = 1,
      "dilation"_a = 1,
      "What conv1d's gradient by its input does. input [N, C, L], weight [C, O / groups, K] -> [N, O, L'].");
  m.def(
      "conv3d",
      [](const Tensor& x, const Tensor& w, const Tensor* b, const DimsArg& stride, const DimsArg& padding,
         const DimsArg& dilation, int64_t groups) {
        return conv3d(x, w, or_undefined(b), three("conv3d", "stride", stride), three("conv3d", "padding", padding),
                      three("conv3d", "dilation", dilation), groups);
      },
      "input"_a, "weight"_a, OPTIONAL("bias"), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      "3-D cross-correlation. input [N, C, D, H, W], weight [O, C / groups, kD, kH, kW], bias [O] -> [N, O, D', H', "
      "W'].");
  m.def(
      "conv_transpose3d",
      [](const Tensor& x, const Tensor& w, const Tensor* b, const DimsArg& stride, const DimsArg& padding,
         const DimsArg& output_padding, int64_t groups, const DimsArg& dilation) {
        constexpr const char* kOp = "conv_transpose3d";
        return conv_transpose3d(x, w, or_undefined(b), three(kOp, "stride", stride), three(kOp, "padding", padding),
                                three(kOp, "output_padding", output_padding), groups, three(kOp, "dilation", dilation));
      },
      "input"_a, "weight"_a, OPTIONAL("bias"), "stride"_a = 1, "padding"_a = 0, "output_padding"_a = 0, "groups"_a = 1,
      "dilation"_a = 1,
      "What conv3d's gradient by its input does. input [N, C, D, H, W], weight [C, O / groups, kD, kH, kW] -> "
      "[N, O, D', H', W'].");
}

void bind_pools(nb::module_& m) {
  m.def(
      "max_pool2d",
      [](const Tensor& x, PairArg kernel, std::optional<PairArg> stride, PairArg padding, PairArg dilation,
         bool ceil_mode, bool return_indices) -> nb::object {
        const std::optional<Pair> s = stride ? std::optional<Pair>(*stride) : std::nullopt;
        if (return_indices) return nb::cast(max_pool2d_with_indices(x, kernel, s, padding, dilation, ceil_mode));
        return nb::cast(max_pool2d(x, kernel, s, padding, dilation, ceil_mode));
      },
      "input"_a, "kernel_size"_a, OPTIONAL("stride"), "padding"_a = 0, "dilation"_a = 1, "ceil_mode"_a = false,
      "return_indices"_a = false, "The maximum of each window of [N, C, H, W]; stride is kernel_size unless given.");
  m.def(
      "avg_pool2d",
      [](const Tensor& x, PairArg kernel, std::optional<PairArg> stride, PairArg padding, bool ceil_mode,
         bool count_include_pad) {
        const std::optional<Pair> s = stride ? std::optional<Pair>(*stride) : std::nullopt;
        return avg_pool2d(x, kernel, s, padding, count_include_pad, ceil_mode);
      },
      "input"_a, "kernel_size"_a, OPTIONAL("stride"), "padding"_a = 0, "ceil_mode"_a = false,
      "count_include_pad"_a = true,
      "The mean of each window of [N, C, H, W] or [C, H, W]; stride is kernel_size unless given.\n"
      "input: of a floating dtype. kernel_size: of a window. stride: between windows. padding: zeros at both ends, at "
      "most half of the kernel_size. Each is a number or a pair (height, width).\n"
      "ceil_mode: a last window may reach beyond the padding; what is beyond is not counted. count_include_pad: the "
      "padding counts as zeros; False: only elements of the input are counted. ValueError, TypeError.");
  m.def(
      "adaptive_avg_pool2d", [](const Tensor& x, PairArg out) { return adaptive_avg_pool2d(x, out); }, "input"_a,
      "output_size"_a,
      "The means of windows that cover [N, C, H, W] as evenly as they can: [N, C, *output_size]. "
      "ValueError for the wrong number of dims and for sizes below 1, TypeError for dtypes that are not floating.");
  m.def("_resample", &resample, "input"_a, "dim"_a, "size"_a, "mode"_a, "scale"_a = 0.0, "align_corners"_a = false,
        "antialias"_a = false, "input with another size along a dim.");
  m.def("_grid_sample", &grid_sample);
  m.def(
      "im2col",
      [](const Tensor& x, PairArg kernel, PairArg dilation, PairArg padding, PairArg stride) {
        return unfold(x, kernel, dilation, padding, stride);
      },
      "input"_a, "kernel_size"_a, "dilation"_a = 1, "padding"_a = 0, "stride"_a = 1,
      "The windows of [N, C, H, W] or [C, H, W] as columns: [N, C kH kW, windows]. The arguments are those of "
      "nn.functional.unfold. "
      "ValueError for the wrong number of dims, where no window fits, and for sizes below 1.");
  m.def(
      "col2im",
      [](const Tensor& x, PairArg out, PairArg kernel, PairArg dilation, PairArg padding, PairArg stride) {
        return fold(x, out, kernel, dilation, padding, stride);
      },
      "input"_a, "output_size"_a, "kernel_size"_a, "dilation"_a = 1, "padding"_a = 0, "stride"_a = 1,
      "The sums of windows [N, C kH kW, windows] or [C kH kW, windows] where they overlap: [N, C, *output_size]. The "
      "arguments are those of nn.functional.fold. "
      "ValueError where the columns do not fit the windows, and for sizes below 1.");
}

void bind_conv(nb::module_& m) {
  m.def(
      "conv2d",
      [](const Tensor& x, const Tensor& w, const Tensor* b, PairArg stride, PairArg padding, PairArg dilation,
         int64_t groups) { return conv2d(x, w, or_undefined(b), stride, padding, dilation, groups); },
      "input"_a, "weight"_a, OPTIONAL("bias"), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      "2-D cross-correlation. input [N, C, H, W], weight [O, C / groups, kH, kW], bias [O] -> [N, O, H', W'],\n"
      "H' = (H + 2 padding - dilation (kH - 1) - 1) / stride + 1.");
  m.def(
      "conv_transpose2d",
      [](const Tensor& x, const Tensor& w, const Tensor* b, PairArg stride, PairArg padding, PairArg output_padding,
         int64_t groups, PairArg dilation) {
        return conv_transpose2d(x, w, or_undefined(b), stride, padding, output_padding, groups, dilation);
      },
      "input"_a, "weight"_a, OPTIONAL("bias"), "stride"_a = 1, "padding"_a = 0, "output_padding"_a = 0, "groups"_a = 1,
      "dilation"_a = 1,
      "What conv2d's gradient by its input does. input [N, C, H, W], weight [C, O / groups, kH, kW], bias [O] -> [N, "
      "O, "
      "H', W'],\nH' = (H - 1) stride - 2 padding + dilation (kH - 1) + output_padding + 1.");
  bind_signals_and_volumes(m);
  bind_pools(m);
}

void bind_norms(nb::module_& m) {
  m.def(
      "layer_norm",
      [](const Tensor& x, const DimsArg& shape, const Tensor* w, const Tensor* b, double eps) {
        return layer_norm(x, shape, or_undefined(w), or_undefined(b), eps);
      },
      "input"_a, "normalized_shape"_a, OPTIONAL("weight"), OPTIONAL("bias"), "eps"_a = 1e-5,
      "(x - mean) / sqrt(var + eps) * weight + bias over the last dims, whose sizes are normalized_shape.\n"
      "input: x, of a floating dtype, [..., *normalized_shape]. weight, bias: of the input's dtype, "
      "[*normalized_shape]; None: 1 and 0. eps: is added to the variance, which is the mean of (x - mean)^2. "
      "ValueError where normalized_shape is not the end of the shape, and for weights of another shape. TypeError "
      "for other dtypes.");
  m.def(
      "rms_norm",
      [](const Tensor& x, const DimsArg& shape, const Tensor* w, std::optional<double> eps) {
        return rms_norm(x, shape, or_undefined(w), eps);
      },
      "input"_a, "normalized_shape"_a, OPTIONAL("weight"), OPTIONAL("eps"),
      "x / sqrt(mean(x * x) + eps) * weight of input x over the last dims, whose sizes are normalized_shape.\n"
      "weight: of that shape, or None. eps: finfo(dtype).eps unless given. "
      "ValueError where normalized_shape is not the end of the shape, and for a weight of another shape. TypeError "
      "for dtypes that are not floating, and where they differ.");
  m.def(
      "batch_norm",
      [](const Tensor& x, const Tensor* mean, const Tensor* variance, const Tensor* w, const Tensor* b, bool training,
         double momentum, double eps) {
        return batch_norm(x, or_undefined(mean), or_undefined(variance), or_undefined(w), or_undefined(b), training,
                          momentum, eps);
      },
      "input"_a, "running_mean"_a.none(), "running_var"_a.none(), OPTIONAL("weight"), OPTIONAL("bias"),
      "training"_a = false, "momentum"_a = 0.1, "eps"_a = 1e-5,
      "Normalises every channel of [N, C, ...] over all other dims: (x - mean) / sqrt(var + eps) * weight + bias. "
      "training=True uses the batch's statistics and updates the running ones in place.\n"
      "input: x, of a floating dtype. running_mean, running_var: [C], floating; None is possible while training. "
      "weight, bias: [C], floating; None: 1 and 0.\n"
      "momentum: the running statistics become (1 - momentum) running + momentum batch, where the batch's variance is "
      "the unbiased one. eps: is added to the variance.\n"
      "ValueError: without training one of the running statistics is None, or there is one value for each channel "
      "while training.");
  m.def(
      "scaled_dot_product_attention",
      [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor* mask, double dropout_p, bool is_causal,
         std::optional<double> scale, bool enable_gqa, std::optional<int64_t> kv_length) {
        return scaled_dot_product_attention(q, k, v, or_undefined(mask), dropout_p, is_causal, scale, enable_gqa,
                                            kv_length);
      },
      "query"_a, "key"_a, "value"_a, OPTIONAL("attn_mask"), "dropout_p"_a = 0.0, "is_causal"_a = false, nb::kw_only(),
      OPTIONAL("scale"), "enable_gqa"_a = false, OPTIONAL("kv_length"),
      "softmax(q k^T * scale + mask) v. query [..., H, T, D], key and value [..., Hk, S, D]; a bool mask says what is "
      "seen, a float mask is added.\n"
      "scale is 1 / sqrt(D) unless given; enable_gqa lets H be a multiple of Hk; kv_length counts only the first keys "
      "(a cache that is filling).\n"
      "attn_mask [..., T, S], bool or of the dtype of query: the mask, or None; dropout_p: the probability of zeros in "
      "the softmax, also outside of training; is_causal: query i sees the keys 0 to i, without an attn_mask. "
      "ValueError where the sizes or the heads do not fit, for a mask that does not broadcast, and for is_causal "
      "with attn_mask. TypeError where the dtypes differ, and for dtypes that are not floating.");
  m.def(
      "_rotary_store", &rotary_store, "q"_a, "k"_a, "v"_a, "cos"_a, "sin"_a, "positions"_a, "slots"_a, "keys"_a,
      "values"_a,
      "Rotates q [T, H, D] and k [T, Hk, D] by the rows positions (int64 [T]) of cos and sin [P, R], and writes the "
      "rotated "
      "k, and v, to the rows slots (int64 [T]; -1: none) of keys and values [N, Hk, D], in place. All of one floating "
      "dtype. Returns the rotated q. Errors: ValueError, TypeError; IndexError when the result is read.");
  m.def(
      "paged_attention",
      [](const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& block_table, const Tensor& lengths,
         std::optional<double> scale, std::optional<int64_t> window, std::optional<double> softcap,
         const Tensor* key_scale, const Tensor* value_scale) {
        return paged_attention(q, keys, values, block_table, lengths, scale, window, softcap, or_undefined(key_scale),
                               or_undefined(value_scale));
      },
      "query"_a, "keys"_a, "values"_a, "block_table"_a, "lengths"_a, nb::kw_only(), OPTIONAL("scale"),
      OPTIONAL("window"), OPTIONAL("softcap"), OPTIONAL("key_scale"), OPTIONAL("value_scale"),
      "Attention of one query for each sequence over keys and values in pages, which are read in place. query [S, H, "
      "D], "
      "keys and values [pages, P, Hk, D] of one floating dtype; P is a power of two, H a multiple of Hk. block_table, "
      "int32 [S, N]: the pages of each sequence in order. lengths, int32 [S]: how many keys each has, 0 to N P. -> "
      "[S, H, D]; zeros where there are no keys.\n"
      "scale is 1 / sqrt(D) unless given. window: a query sees the last so many keys. softcap: scores are softcap "
      "tanh(score / softcap). The result of a sequence has the same bits whatever the other sequences are.\n"
      "key_scale and value_scale, float32 [pages, P, Hk]: with keys and values of int8 or an 8-bit float, which stand "
      "for keys * key_scale[..., None] and values * value_scale[..., None].\n"
      "Inference only. TypeError, ValueError; IndexError for a page that does not exist or a length that does not fit, "
      "at "
      "the read; NotImplementedError for gradients.");
  m.def(
      "varlen_attn",
      [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_q, const Tensor& cu_k, int64_t max_q,
         int64_t max_k, bool is_causal, std::optional<double> scale,
         bool enable_gqa) { return varlen_attn(q, k, v, cu_q, cu_k, max_q, max_k, is_causal, scale, enable_gqa); },
      "query"_a, "key"_a, "value"_a, "cu_seq_q"_a, "cu_seq_k"_a, "max_q"_a, "max_k"_a, "is_causal"_a = false,
      nb::kw_only(), OPTIONAL("scale"), "enable_gqa"_a = false,
      "Attention over packed sequences: query [Tq, H, D], key and value [Tk, Hk, D]; cu_seq_q and cu_seq_k (int32, one "
      "more than sequences) say where each sequence begins and the last one ends.\n"
      "No sequence is longer than max_q and max_k. is_causal aligns the ends: the last query of a sequence sees all of "
      "its keys. scale is 1 / sqrt(D) unless given; enable_gqa lets H be a multiple of Hk. "
      "ValueError where the sizes, the heads or the offsets do not fit. TypeError where the dtypes differ, for "
      "dtypes that are not floating, and for offsets that are not int32.");
}

void bind_embedding(nb::module_& m) {
  m.def(
      "embedding",
      [](const Tensor& index, const Tensor& weight, std::optional<int64_t> padding_idx) {
        return embedding(index, weight, padding_idx);
      },
      "input"_a, "weight"_a, OPTIONAL("padding_idx"),
      "The rows of weight [V, E] that an int64 tensor names: [...] -> [..., E]. padding_idx gets no gradient. "
      "ValueError for a weight that is no matrix. TypeError for an index that is neither int64 nor int32. "
      "IndexError for an index or a padding_idx that is out of range.");
  m.def(
      "quantized_linear",
      [](const Tensor& x, const Tensor& w, const std::string& type, const Tensor* b, int64_t tiled_rows) {
        return quantized_linear(x, w, type, or_undefined(b), tiled_rows);
      },
      "input"_a, "weight"_a, "type"_a, OPTIONAL("bias"), "tiled_rows"_a = 0,
      "input @ W.T + bias with weights W [N, K] that stay in GGUF's blocks of a few bits. input [..., K], float; bias "
      "[N] of the "
      "input's dtype -> [..., N] of that dtype.\n"
      "weight: uint8 [N, bytes of a row], blocks of the type 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q2_K', 'Q3_K', "
      "'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_NL' or 'IQ4_XS'; with tiled_rows=N the tensor that weight_tiles made of them.\n"
      "Rows of 8-bit floats have the type 'F8_E4M3' or 'F8_E5M2' (OCP's formats): K codes, K a multiple of 16, one "
      "float32 scale, and zeros up to a multiple of 16 bytes; or, with the type 'F8_E4M3:128', a scale for each 128 "
      "elements (or another multiple of 16). The input is not rounded, and sums are float32, for any number of rows. "
      "GPUs decode the weights to the input's dtype for more than 32 rows. What follows is of the other types.\n"
      "The CPU rounds each 32 elements of the input to integers of 15 bits times their largest magnitude / 16256. So a "
      "result differs from the exact product by at most the sum over these blocks of max|x| / 32512 times sum|W|, "
      "beside float32 rounding; blocks below 1e-30 count as zeros, and one with a number that is not finite gives "
      "NaN. A block with magnitudes above 8e34 can give infinity or NaN where the exact product is finite.\n"
      "GPUs do so for at most 32 rows, with integers of 8 bits: 127 and 254 in these numbers. For more rows they "
      "decode "
      "the weights to the input's dtype and multiply exactly. A sum has the same order in every run.\n"
      "Inference only. TypeError, ValueError; NotImplementedError for other types and for gradients.");
  m.def(
      "quantized_grouped_mm",
      [](const Tensor& x, const Tensor& w, const std::string& type, const Tensor& offs, int64_t tiled_rows) {
        return quantized_grouped_mm(x, w, type, offs, tiled_rows);
      },
      "input"_a, "weight"_a, "type"_a, "offs"_a, "tiled_rows"_a = 0,
      "Products of groups of rows with weights in GGUF's blocks: the rows of input [M, K], float, that belong to group "
      "g times the transposed rows g N to (g + 1) N - 1 of the weight -> [M, N].\n"
      "offs: int32 [G], the number of rows up to the end of each group; it never decreases, and the last one is M. "
      "weight, type, tiled_rows: as of quantized_linear, with G N rows; on the CPU, N of tiles is a multiple of 8. The "
      "rounding is quantized_linear's.\n"
      "Inference only. TypeError, ValueError (of offs where the result is read); NotImplementedError for other types "
      "and for gradients.");
  m.def("decode_blocks", &decode_blocks, "blocks"_a, "type"_a,
        "The weights in rows of GGUF's blocks: uint8 [N, bytes of a row] -> float32 [N, K]. type: a name of GGUF, such "
        "as "
        "'Q4_K'; GPUs have those that quantized_linear takes. TypeError, ValueError, NotImplementedError.");
  m.def("weight_tiles", &weight_tiles, "blocks"_a, "type"_a,
        "Rows of GGUF's blocks, uint8 [N, bytes of a row], in the order in which their device multiplies them, for "
        "quantized_linear(..., tiled_rows=N) on it. CPU: tiles of eight rows, uint8 [ceil(N / 8), bytes of a tile]. "
        "GPUs: "
        "uint8 [N, bytes of a row], the numbers of all blocks of a row and then their scales.\n"
        "Rows of 8-bit floats have the order of products and stay as they are.\n"
        "TypeError, ValueError; NotImplementedError for types that it does not take.");
  m.def(
      "_weight_tiles_of",
      [](const std::vector<std::pair<Tensor, int64_t>>& pieces, const std::string& type) {
        std::vector<RowsOfBlocks> rows;
        for (const auto& [blocks, heads] : pieces) rows.push_back({blocks, heads});
        return tiles_of_rows(rows, type);
      },
      "pieces"_a, "type"_a);
  // The numbers in a block of a type; of 8-bit floats, those between which a row can be divided.
  m.def(
      "_block_elements",
      [](const std::string& name) {
        if (const auto floats = float8_type(name)) return floats->group != 0 ? floats->group : kFloat8Unit;
        const gguf::Type* type = gguf::find_type(std::string_view(name));
        PF_CHECK(type, Value, "_block_elements: no type has this name; got '{}'; expected a name of GGUF, such as Q4_K",
                 name);
        return int64_t{type->elements};
      },
      "type"_a);
  m.def("_bytes_of_products", &bytes_of_products, "type"_a, "rows"_a, "columns"_a, "in_planes"_a);
  m.def("_embedding_bag", &embedding_bag);
  m.def("_pdist", &pdist);
  m.def(
      "one_hot", [](const Tensor& index, int64_t num_classes) { return one_hot(index, num_classes); }, "input"_a,
      "num_classes"_a = -1,
      "1 at the index and 0 elsewhere, int64: [...] -> [..., num_classes]. -1 reads the largest index. "
      "TypeError for an input that is not int64. ValueError for num_classes of 0 or below -1, and for -1 of no "
      "index. IndexError for an index out of range, also later, when the numbers are computed.");
  m.def(
      "dropout", [](const Tensor& x, double p, bool training) { return dropout(x, p, training); }, "input"_a,
      "p"_a = 0.5, "training"_a = true,
      "Zeroes elements with probability p and scales the rest by 1 / (1 - p); the input itself when not training. "
      "ValueError for a p outside of 0 to 1. TypeError for dtypes of integers when training.");
}

// True and False are numbers of Python. As ignore_index they are a size_average that was meant for nn.functional's function.
int64_t class_number(const char* op, nb::handle ignore_index) {
  int64_t number = 0;
  PF_CHECK(!PyBool_Check(ignore_index.ptr()) && nb::try_cast(ignore_index, number), Type,
           "{}: ignore_index is no class; got {}; expected an int; hint: nn.functional.{} has PyTorch's order of "
           "arguments",
           op, nb::repr(ignore_index).c_str(), op);
  return number;
}

void bind_losses(nb::module_& m) {
  m.def("mse_loss", &mse_loss, "input"_a, "target"_a, REDUCTION,
        "(input - target)^2, elementwise, and its reduction: 'mean' and 'sum' give a 0-d tensor, 'none' the shape of "
        "input. ValueError when the shapes differ and for another reduction.");
  m.def(
      "l1_loss",
      [](const Tensor& a, const Tensor& b, const std::string& reduction) {
        PF_CHECK(a.shape() == b.shape(), Value, "l1_loss: shapes differ; got {} and {}", a.shape().str(),
                 b.shape().str());
        Tensor d = abs(sub(a, b));
        PF_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", Value,
                 "l1_loss: unknown reduction; got '{}'; expected 'none', 'mean' or 'sum'", reduction);
        return reduction == "mean" ? mean(d) : reduction == "sum" ? sum(d) : d;
      },
      "input"_a, "target"_a, REDUCTION,
      "|input - target|, elementwise, and its reduction: 'mean' and 'sum' give a 0-d tensor, 'none' the shape of "
      "input. ValueError when the shapes differ and for another reduction.");
  m.def(
      "nll_loss",
      [](const Tensor& x, const Tensor& target, const Tensor* weight, nb::handle ignore_index,
         const std::string& reduction) {
        return nll_loss(x, target, class_number("nll_loss", ignore_index), reduction, or_undefined(weight));
      },
      "input"_a, "target"_a, OPTIONAL("weight"), "ignore_index"_a = -100, REDUCTION,
      "-input[i, target[i]] for log-probabilities [N, C] and int64 classes [N]; rows with ignore_index count nothing.\n"
      "weight [C] is what each class counts; 'mean' divides by the weights of the targets. reduction: 'mean', 'sum' or "
      "'none'. "
      "ValueError for another reduction and where target or weight do not fit. TypeError for dtypes that are not "
      "floating, and for classes that are neither int64 nor int32. IndexError for a class that is not there.");
  m.def(
      "cross_entropy",
      [](const Tensor& x, const Tensor& target, const Tensor* weight, nb::handle ignore_index,
         const std::string& reduction, double label_smoothing) {
        return cross_entropy(x, target, class_number("cross_entropy", ignore_index), reduction, label_smoothing,
                             or_undefined(weight));
      },
      "input"_a, "target"_a, OPTIONAL("weight"), "ignore_index"_a = -100, REDUCTION, "label_smoothing"_a = 0.0,
      "nll_loss(log_softmax(input), target, weight) for logits [N, C] and int64 classes [N], or probabilities [N, C].\n"
      "input: of a floating dtype, [C], [N, C] or [N, C, ...]. target: classes, integers of the input's shape without "
      "C, or probabilities of the input's shape and dtype. weight: floating [C], what each class counts.\n"
      "ignore_index: elements of this class count nothing; only where the target is classes. reduction: 'mean', 'sum' "
      "or 'none'; with classes 'mean' divides by the weights of the targets that are not ignored, with probabilities "
      "by the number of losses.\n"
      "label_smoothing: s of [0, 1]; the probability p of each class becomes (1 - s) p + s / C. ValueError, TypeError; "
      "IndexError, when the result is read, for a class that does not exist.");
  m.def(
      "binary_cross_entropy_with_logits",
      [](const Tensor& x, const Tensor& target, const Tensor* weight, const std::string& reduction,
         const Tensor* pos_weight) {
        return binary_cross_entropy_with_logits(x, target, or_undefined(weight), reduction, or_undefined(pos_weight));
      },
      "input"_a, "target"_a, OPTIONAL("weight"), REDUCTION, OPTIONAL("pos_weight"),
      "-(pos_weight t log s(x) + (1 - t) log(1 - s(x))) weight with the sigmoid s, without overflow.\n"
      "input: the logits x, of a floating dtype. target: t, floating, of the input's shape. weight, pos_weight: "
      "broadcast to the input; None: 1.\n"
      "reduction: 'mean' (over all elements), 'sum' or 'none'. ValueError, TypeError.");
}

// The steps of recurrent layers, for nn/_recurrence.py.
void bind_recurrent_steps(nb::module_& m) {
  m.def("_lstm_step", &lstm_step, "x"_a, "h"_a, "c"_a, "weight"_a);
  m.def("_lstm_step_grad", &lstm_step_grad, "gates"_a, "c"_a, "new_c"_a, "dh"_a, "dc"_a, "into"_a);
  m.def(
      "_gru_step",
      [](const Tensor& x, const Tensor& h, const Tensor& w, const Tensor* b) {
        return gru_step(x, h, w, or_undefined(b));
      },
      "x"_a, "h"_a, "weight"_a, OPTIONAL("bias"));
  // (results, "") or (None, why there are none)
  m.def(
      "_recurrent",
      [](int64_t mode, bool bidirectional, bool biases, bool kept, const Tensor& x, const Tensors& states,
         const Tensors& weights) {
        std::string why;
        auto results =
            recurrent(static_cast<RecurrentMode>(mode), bidirectional, biases, kept, x, states, weights, &why);
        return std::pair(std::move(results), why);
      },
      "mode"_a, "bidirectional"_a, "biases"_a, "kept"_a, "x"_a, "states"_a, "weights"_a);
  m.def(
      "_recurrent_grad",
      [](int64_t mode, bool bidirectional, bool biases, const Tensors& grads, const Tensor& x, const Tensor& y,
         const Tensors& states, const Tensor& kept, const Tensors& weights) {
        return recurrent_grad(static_cast<RecurrentMode>(mode), bidirectional, biases, grads, x, y, states, kept,
                              weights);
      },
      "mode"_a, "bidirectional"_a, "biases"_a, "grads"_a, "x"_a, "y"_a, "states"_a, "kept"_a, "weights"_a);
  m.def("_gru_step_grad", &gru_step_grad, "h"_a, "x"_a, "own"_a, "dh"_a, "into_x"_a, "into_own"_a);
}

}  // namespace

void bind_layers(nb::module_& m, TensorClass& c) {
  bind_products(m, c);
  bind_conv(m);
  bind_norms(m);
  bind_embedding(m);
  bind_losses(m);
  bind_recurrent_steps(m);
}

}  // namespace pyflame::python
