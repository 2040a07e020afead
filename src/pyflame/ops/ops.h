// The public op functions; names and meanings are PyTorch's. One .cpp file per family has the functions with their checks, shape and
// dtype inference, and gradients. Shapes are written [N, C]; "dim" may be negative. Errors are raised here, at the caller's line.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/ops/attrs.h"
#include "pyflame/tensor/tensor.h"

namespace pyflame {

using Tensors = std::vector<Tensor>;

// A tensor or a number.
struct Value {
  Tensor tensor;
  Scalar scalar{0};
  bool is_tensor;
  Value(const Tensor& t) : tensor(t), is_tensor(true) {}
  Value(Scalar s) : scalar(s), is_tensor(false) {}
  Value(double v) : Value(Scalar(v)) {}
  Value(float v) : Value(Scalar(v)) {}
  Value(int v) : Value(Scalar(v)) {}
  Value(int64_t v) : Value(Scalar(v)) {}
  Value(bool v) : Value(Scalar(v)) {}
};

using DTypeOpt = std::optional<DType>;
using DeviceOpt = std::optional<Device>;

// ---- creation (creation.cpp). Default dtype: float32; arange, full and randint infer it as PyTorch does. Default device: the current one.
Tensor empty(const Dims& shape, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor full(const Dims& shape, Scalar value, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor zeros(const Dims& shape, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor ones(const Dims& shape, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor empty_like(const Tensor& x, DTypeOpt dtype = {});
Tensor full_like(const Tensor& x, Scalar value, DTypeOpt dtype = {});
Tensor zeros_like(const Tensor& x, DTypeOpt dtype = {});
Tensor ones_like(const Tensor& x, DTypeOpt dtype = {});
Tensor arange(Scalar start, Scalar end, Scalar step, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor linspace(Scalar start, Scalar end, int64_t steps, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor eye(int64_t n, std::optional<int64_t> m = {}, DTypeOpt dtype = {}, DeviceOpt device = {});
// Copies nbytes = numel * itemsize bytes from host memory.
Tensor from_host(const void* data, const Dims& shape, DType dtype, DeviceOpt device = {});
Tensor one_hot(const Tensor& index, int64_t num_classes = -1);  // -1 reads the maximum: a sync point

// ---- random (random.cpp). Counter-based: each call takes its own offset from the thread-safe global generator when it is recorded.
void manual_seed(uint64_t seed);
// The state of the global generator: its seed, and how many offsets were taken.
struct RngState {
  uint64_t seed, offset;
};
// Reads and sets that state, for all threads.
RngState get_rng_state();
void set_rng_state(RngState s);
// Uniform in [0, 1), standard normal, integers in [low, high), a permutation of 0 to n - 1.
Tensor rand(const Dims& shape, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor randn(const Dims& shape, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor randint(int64_t low, int64_t high, const Dims& shape, DTypeOpt dtype = {}, DeviceOpt device = {});
Tensor randperm(int64_t n, DTypeOpt dtype = {}, DeviceOpt device = {});
// 1 with probability p, else 0; and x with each element zero with probability p, the others divided by 1 - p (x itself unless training).
Tensor bernoulli(const Tensor& p);
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

// ---- exp(x), add(a, b), softmax(x, dim), ... of the op table
#define OP(...)
#define UNARY(name, ...) Tensor name(const Tensor& x);
#define SPECIAL(name, ...) Tensor name(const Tensor& x);
#define BINARY(name, ...) Tensor name(const Value& a, const Value& b);
#define ALONG(name, ...) Tensor name(const Tensor& x, int64_t dim, DTypeOpt dtype = {});
#include "pyflame/ops/ops.def"

// ---- elementwise (elementwise.cpp)
Tensor square(const Tensor& x);
Tensor trunc(const Tensor& x);
Tensor lcm(const Value& a, const Value& b);  // the least common multiple of integers
Tensor round(const Tensor& x, int64_t decimals);
Tensor div(const Value& a, const Value& b, const std::string& rounding_mode);  // "trunc" or "floor"
Tensor gelu(const Tensor& x, const std::string& approximate = "none");         // "none" (erf) or "tanh"
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor cast(const Tensor& x, DType dtype);  // the same handle when nothing changes
Tensor where(const Tensor& condition, const Value& a, const Value& b);
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max);
Tensor clamp_between(const Tensor& x, const Tensor& min, const Tensor& max);  // an undefined tensor: no bound
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
Tensor clone(const Tensor& x);             // row-major
Tensor clone_preserving(const Tensor& x);  // with the order of dims in memory that x has
Tensor lying_as(const Tensor& fresh,
                const Tensor& x);  // a new row-major tensor, whose elements may change places, in the order of x
Tensor contiguous(const Tensor& x, MemoryFormat format = MemoryFormat::contiguous);  // the same handle when it is
bool is_contiguous(const Tensor& x, MemoryFormat format);
Tensor to_device(const Tensor& x, Device device);

// ---- complex numbers (complex.cpp). Of a real tensor, real(), conj() and sgn() give what they give in mathematics.
Tensor view_as_real(const Tensor& x);     // a view [.., 2] of the parts
Tensor view_as_complex(const Tensor& x);  // a view of pairs [.., 2]
Tensor real(const Tensor& x);             // a view; the same handle when x is real
Tensor imag(const Tensor& x);             // a view; TypeError when x is real
Tensor conj(const Tensor& x);             // the same handle when x is real
Tensor complex(const Tensor& re, const Tensor& im);
Tensor angle(const Tensor& x);
Tensor sgn(const Tensor& x);

// ---- Fourier transforms along one dim (fft.cpp), which has n elements after padding or cutting. scale: FftAttrs.
Tensor fft(const Tensor& x, int64_t dim, bool inverse, int64_t scale);       // complex to complex
Tensor fft_of_real(const Tensor& x, int64_t dim, int64_t scale);             // n -> n / 2 + 1
Tensor fft_to_real(const Tensor& x, int64_t dim, int64_t n, int64_t scale);  // n / 2 + 1 -> n

// ---- special functions (special.cpp)
Tensor zeta(const Value& x, const Value& q);
Tensor polygamma(int64_t n, const Tensor& x);
Tensor i0(const Tensor& x);
Tensor i1(const Tensor& x);
Tensor modified_bessel_k0(const Tensor& x);
Tensor modified_bessel_k1(const Tensor& x);
std::pair<Tensor, Tensor> frexp(const Tensor& x);  // mantissa, and exponent in int32
Tensor entr(const Tensor& x);

// ---- in place (inplace.cpp): assigns the value to x, cast to x's dtype and broadcast to its shape. Returns x.
// RuntimeError for a leaf that requires grad while gradients are on.
Tensor copy_(const Tensor& x, const Value& value);
Tensor fill_(const Tensor& x, Scalar value);
// x.op_(b): op is computed out of place and then assigned; fusion makes one step of both.
Tensor binary_(Tensor (*op)(const Value&, const Value&), const char* name, const Tensor& x, const Value& b);
Tensor unary_(Tensor (*op)(const Tensor&), const char* name, const Tensor& x);

// ---- views (view.cpp): they share the storage and record nothing
Tensor view(const Tensor& x, const Dims& shape);     // ValueError when strides do not allow it; one -1 allowed
Tensor reshape(const Tensor& x, const Dims& shape);  // copies when it must
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor permute(const Tensor& x, const Dims& dims);
Tensor expand(const Tensor& x, const Dims& shape);  // -1 keeps a size
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
Tensor unsqueeze(const Tensor& x, int64_t dim);
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step = 1);
Tensor select(const Tensor& x, int64_t dim, int64_t index);
Tensors split(const Tensor& x, int64_t size, int64_t dim = 0);
Tensors split(const Tensor& x, const Dims& sizes, int64_t dim = 0);
Tensors chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
Tensor as_strided(const Tensor& x, const Dims& shape, const Dims& strides, int64_t offset);

// ---- joining (join.cpp)
Tensor cat(const Tensors& xs, int64_t dim = 0);
Tensor stack(const Tensors& xs, int64_t dim = 0);
Tensor pad(const Tensor& x, const Dims& padding, const std::string& mode = "constant",
           Scalar value = 0.0);  // last dim first

// ---- reductions (reduce.cpp). Empty dims: all.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false, DTypeOpt dtype = {});
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false, DTypeOpt dtype = {});
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false, DTypeOpt dtype = {});
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor std_dev(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);  // values, indices
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor sum_to(const Tensor& x, const Dims& shape);  // undoes broadcasting; the same handle if nothing changes
Tensor norm(const Tensor& x);                       // 2-norm of all elements

// Running extrema, and running logarithms of sums of exponentials, along a dim.
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim);  // values, indices
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim);
Tensor logcumsumexp(const Tensor& x, int64_t dim);

// ---- linear algebra (matmul.cpp)
Tensor matmul(const Tensor& a, const Tensor& b);  // 1-D to N-D, as PyTorch
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});  // x [..., K], weight [N, K], bias [N]
// Products of groups of different sizes, as PyTorch's. ends int32 [G]: where each group ends; a group may be empty, and the last one ends with the dim.
// [M, K] x [G, K, N] -> [M, N], groups of rows; [K, M] x [M, N] -> [G, K, N], groups of the sum's terms; [G, M, K] x [K, N] -> [M, N], groups of columns.
// Without ends, [G, M, K] x [G, K, N] -> [G, M, N].
Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& ends = {});
// a [M, K] b [K, N] of 8-bit floats, each times its scales, + bias [N], as float32, float16 or bfloat16 (scaled_mm.cpp). Scales are float32: of one
// element; of rows, scale_a [M, 1] and scale_b [1, N]; or of blocks, scale_a [M, K / 128] and scale_b [K / 128, N / 128], rounded up. No gradients.
// fast: sums may have fewer digits than float32 where that is faster, which is on Hopper's matrix cores.
Tensor scaled_mm(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                 const Tensor& bias = {}, DTypeOpt dtype = {}, bool fast = false);
// To what float32 matrix products on a GPU may round their inputs: highest keeps float32; high and medium allow 10 bits
// of fraction on GPUs whose matrix cores support it (TF32 on NVIDIA from sm_80, xf32 on gfx942). It holds for the whole
// process and for ops called afterwards, gradients included. Other devices and dtypes ignore it.
enum class MatmulPrecision : int64_t { highest, high, medium };
MatmulPrecision float32_matmul_precision();
void set_float32_matmul_precision(MatmulPrecision precision);
// The same for convolutions of float32: high and medium let cuDNN round their inputs to TF32. MIOpen has no such
// kernels, so rocm computes them in float32.
MatmulPrecision float32_conv_precision();
void set_float32_conv_precision(MatmulPrecision precision);

// ---- determinism (deterministic.cpp)
// Whether every op gives the same bits in every run (the default). Without it, GPU libraries may use faster algorithms
// whose order of additions varies: cuDNN in the gradient of attention, cuDNN and MIOpen in convolutions. PyFlame's own
// kernels and the CPU are not affected. It holds for the whole process and for ops called afterwards, gradients included.
bool are_deterministic_algorithms_enabled();
void use_deterministic_algorithms(bool mode);

// ---- convolution (conv.cpp), NCHW
struct Pair {
  int64_t h, w;
  Pair(int64_t v) : h(v), w(v) {}
  Pair(int64_t hh, int64_t ww) : h(hh), w(ww) {}
};
// Cross-correlation: x [N, C, H, W] and weight [O, C / groups, KH, KW] to [N, O, H', W'].
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Pair stride = 1, Pair padding = 0,
              Pair dilation = 1, int64_t groups = 1);
// conv2d's gradient of its input: with weight [C, O / groups, KH, KW], x [N, C, H, W] becomes [N, O, H', W'], where H'
// = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Pair stride = 1,
                        Pair padding = 0, Pair output_padding = 0, int64_t groups = 1, Pair dilation = 1);
// [N, C, L] is computed as images of one row.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, int64_t stride = 1, int64_t padding = 0,
              int64_t dilation = 1, int64_t groups = 1);
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, int64_t stride = 1,
                        int64_t padding = 0, int64_t output_padding = 0, int64_t groups = 1, int64_t dilation = 1);
// ---- of volumes [N, C, D, H, W] (conv3d.cpp): three sizes each
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride, const Dims& padding,
              const Dims& dilation, int64_t groups);
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride,
                        const Dims& padding, const Dims& output_padding, int64_t groups, const Dims& dilation);
// ---- windows (windows.cpp): [N, C, H, W] -> [N, C KH KW, windows], and the sums of windows in an image of size `out`
Tensor unfold(const Tensor& x, Pair kernel, Pair dilation = 1, Pair padding = 0, Pair stride = 1);
Tensor fold(const Tensor& x, Pair out, Pair kernel, Pair dilation = 1, Pair padding = 0, Pair stride = 1);

// ---- another size (resample.cpp). mode: "nearest", "nearest-exact", "linear", "cubic", "area" (means), and "linear" or "cubic" with
// antialias, which averages where it shrinks. scale: old over new distances; 0: by the sizes.
Tensor resample(const Tensor& x, int64_t dim, int64_t size, const std::string& mode, double scale = 0,
                bool align_corners = false, bool antialias = false);

// ---- pooling (pool.cpp). ceil_mode: a last window may reach beyond the padding.
Tensor max_pool2d(const Tensor& x, Pair kernel, std::optional<Pair> stride = {}, Pair padding = 0, Pair dilation = 1,
                  bool ceil_mode = false);
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, Pair kernel, std::optional<Pair> stride = {},
                                                  Pair padding = 0, Pair dilation = 1, bool ceil_mode = false);
Tensor avg_pool2d(const Tensor& x, Pair kernel, std::optional<Pair> stride = {}, Pair padding = 0,
                  bool count_include_pad = true, bool ceil_mode = false);
// Means over out.h x out.w windows that cover the plane: window i of n is from floor(i H / n) to ceil((i + 1) H / n).
Tensor adaptive_avg_pool2d(const Tensor& x, Pair out);

// ---- normalisation (norm.cpp)
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
Tensor rms_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});
// running_mean/var may be undefined; they are updated in place when training.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5);

// ---- attention (attention.cpp): q [..., H, T, D], k and v [..., Hk, S, D]
// kv_length (a run-time value, never part of a cache key): only the first kv_length keys are used; default S. With is_causal, query
// t sees keys s <= t as in PyTorch. If kv_length is given (decoding), the last query sees all of them: s <= t + kv_length - T.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attn_mask = {},
                                    double dropout_p = 0.0, bool is_causal = false, std::optional<double> scale = {},
                                    bool enable_gqa = false, std::optional<int64_t> kv_length = {});
// Packed sequences: q [Tq, H, D], k and v [Tk, Hk, D]. Sequence i has the queries cu_seq_q[i] to cu_seq_q[i + 1] - 1
// (int32) and the keys between the same entries of cu_seq_k; none is longer than max_q and max_k. is_causal: the last
// query of a sequence sees all of its keys, the one before it all but the last.
Tensor varlen_attn(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seq_q, const Tensor& cu_seq_k,
                   int64_t max_q, int64_t max_k, bool is_causal = false, std::optional<double> scale = {},
                   bool enable_gqa = false);

// One query for each sequence (decoding), whose keys and values lie in pages that are read in place: q [S, H, D], keys and values
// [pages, P, Hk, D], P a power of two; block_table int32 [S, N] names the pages of a sequence, lengths int32 [S] says how many keys it
// has. window: only the last so many keys are seen. softcap: cap tanh(score / cap). A sequence's result does not depend on the others.
// keys and values have q's dtype, or int8 or an 8-bit float; then each row of D has a factor in key_scale and value_scale, float32 [pages, P, Hk].
Tensor paged_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& block_table,
                       const Tensor& lengths, std::optional<double> scale = {}, std::optional<int64_t> window = {},
                       std::optional<double> softcap = {}, const Tensor& key_scale = {},
                       const Tensor& value_scale = {});

// The step before paged_attention, in one pass: rotates the first R of the D dims of q [T, H, D] and k [T, Hk, D] by the rows `positions` of cos and
// sin [P, R], as x cos + (-x2, x1) sin with the halves x1 and x2 of these dims (RoPE, arXiv:2104.09864), and writes the rotated k, and v, to the
// rows `slots` of keys and values [N, Hk, D]. A row with slot -1 is not written; each other slot occurs once. Returns the rotated q.
Tensor rotary_store(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos, const Tensor& sin,
                    const Tensor& positions, const Tensor& slots, const Tensor& keys, const Tensor& values);

// ---- weights in GGUF's blocks (quantized.cpp): `type` is a name such as Q4_K
// x [..., K] W^T + bias [N] -> [..., N]. weight: rows of blocks, uint8 [N, bytes of a row]; or, with rows = N, tiles made by weight_tiles.
Tensor quantized_linear(const Tensor& x, const Tensor& weight, const std::string& type, const Tensor& bias = {},
                        int64_t rows = 0);
// x [M, K] in groups of rows that end at ends, int32 [G] (see grouped_mm); group g is multiplied with the transposed part g of the weight's G N rows.
Tensor quantized_grouped_mm(const Tensor& x, const Tensor& weight, const std::string& type, const Tensor& ends,
                            int64_t rows = 0);
// The weights, float32 [N, K].
Tensor decode_blocks(const Tensor& blocks, const std::string& type);
// The same weights in the order in which the device multiplies. CPU: uint8 [tiles of 8 rows, bytes of a tile] (tensor/weight_tiles.h);
// GPUs: uint8 [N, bytes of a row of planes] (tensor/weight_planes.h).
Tensor weight_tiles(const Tensor& blocks, const std::string& type);

// ---- images read at any places (grid_sample.cpp): input [N, C, (D,) H, W], grid [N, .., 2 or 3] -> [N, C, ..]
// mode: "bilinear", "nearest" or "bicubic"; padding_mode: "zeros", "border" or "reflection".
Tensor grid_sample(const Tensor& input, const Tensor& grid, const std::string& mode, const std::string& padding_mode,
                   bool align_corners);

// Euclidean distances of the rows i < j: [N, M] -> [N (N - 1) / 2]. (distance.cpp)
Tensor pdist(const Tensor& input);

// ---- indexing (index.cpp)
Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<int64_t> padding_idx = {});
// Sums of the rows of bags: index [n], offsets [B] where bags begin, ascending, the first at 0 -> [B, D].
Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets);
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim = {});
// How many elements of the last dim of `sorted` (a vector, or with the leading dims of the values) come before each value; right: or equal it.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);
// (ids int64 [B], largest logits [B]): the choice of the next token from each row of logits [B, V], by settings [B, 5] (ops.def), all float32. Tokens are
// put in order by their logits, of equal ones the lower id first. top_k keeps the first k of them (0, V and more: all); of these, top_p keeps the fewest
// whose share of the probability is at least top_p (1 and more: all), and min_p those that are at least min_p times as likely as the first. The token is
// the first whose kept probabilities, added in the order of the ids, are more than the drawn number times their sum. A temperature below 1e-30 takes the
// likeliest token. Rows with NaN, and those whose largest logit is not finite, get the id 0; their largest logit is NaN or that one.
std::pair<Tensor, Tensor> draw_tokens(const Tensor& logits, const Tensor& settings);
// (sums [bins], statistics int64 [4]) of a vector of float64 or float32: the sums of the weights of the values by bin, of which `start` is the first,
// and the lowest bin, the highest bin, the largest weight (of integers) and the number of elements that cannot be used (ops.def). Weights of int64
// and int32 are added as int64, those of float64 and float32 as float64, in an order that depends on n and `bins` alone.
std::pair<Tensor, Tensor> bin_sums(const Tensor& values, const Tensor& weights, double scale, bool divide,
                                   int64_t start, int64_t bins);
// The flat positions of the first `size` true elements, as a vector of int64; there may be fewer, then the rest is `fill`.
Tensor true_positions(const Tensor& mask, int64_t size, int64_t fill = -1);
Tensor true_positions(const Tensor& mask);  // of all: reads their number, which is a sync point

// ---- writing by index (scatter.cpp). Elements that an index leads to the same place are combined in their order.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Value& src, Combine how = Combine::Replace);
Tensor scatter_(const Tensor& x, int64_t dim, const Tensor& index, const Value& src, Combine how = Combine::Replace);
// index 1-D: where the slices of src go, which is x's size along dim; a number is written to all of them.
Tensor put_slices(const Tensor& x, int64_t dim, const Tensor& index, const Value& src, Combine how = Combine::Replace);
Tensor put_slices_(const Tensor& x, int64_t dim, const Tensor& index, const Value& src, Combine how = Combine::Replace);

// ---- several index tensors (advanced_index.cpp), one for each dim from the first one on; an undefined one takes the whole dim. Integers
// count from the end where they are negative; a bool mask stands for as many dims as it has, and its true elements are counted, which is a
// sync point. Indices are broadcast; their shape takes the place of adjacent indexed dims, or else is in front.
Tensor index(const Tensor& x, const Tensors& indices);
Tensor index_put(const Tensor& x, const Tensors& indices, const Value& value, bool accumulate = false);
Tensor index_put_(const Tensor& x, const Tensors& indices, const Value& value, bool accumulate = false);

// Triangles of matrices (the others are zero), and elements in order. topk and sort return values and indices (int64).
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);
std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false);
Tensor sorted_values(const Tensor& x, int64_t dim = -1, bool descending = false);  // without positions and gradient

// ---- losses (loss.cpp); reduction is "none", "mean" or "sum"
Tensor mse_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean");
// weight: one number per class; "mean" divides by the sum of the targets' weights.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target, int64_t ignore_index = -100,
                const std::string& reduction = "mean", const Tensor& weight = {});
Tensor cross_entropy(const Tensor& input, const Tensor& target, int64_t ignore_index = -100,
                     const std::string& reduction = "mean", double label_smoothing = 0.0, const Tensor& weight = {});
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                                        const std::string& reduction = "mean", const Tensor& pos_weight = {});

// ---- fused multi-tensor updates (optim.cpp), in place, without gradients. Undefined tensors are not allowed.
struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize, first;
};
// One update of all tensors in place.
void sgd_step(const Tensors& params, const Tensors& grads, const Tensors& momentum_buffers, const SgdStep& s);
// The numbers of one step of Adam; with `decoupled`, of AdamW.
struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;  // 1 at the first update
  bool decoupled, maximize;
};
// One update of all tensors in place.
void adam_step(const Tensors& params, const Tensors& grads, const Tensors& exp_avg, const Tensors& exp_avg_sq,
               const AdamStep& s);
Tensor total_norm(const Tensors& xs);                                // 0-d float32, 2-norm over all
Tensor clip_grad_norm_(const Tensors& parameters, double max_norm);  // returns the norm before; scales .grad in place

}  // namespace pyflame
