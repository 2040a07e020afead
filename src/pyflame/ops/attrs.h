// Attributes of ops: plain aggregates of int64_t only. They are copied word by word into the cache key, so equality,
// hash and printing are derived from that; PF_FIELDS only gives the names for printing. A number that may differ from
// call to call must be a param operand instead.
#pragma once
#include <cstdint>

#define PF_FIELDS(names) static constexpr const char* kFields = names;

namespace pyflame {

struct NoAttrs {
  PF_FIELDS("")
};
struct ReduceAttrs {
  int64_t
      axes;  // bit mask of the reduced axes of the input; the output has them with size 1 (strides of the view differ only)
  PF_FIELDS("axes")
};
struct ArgAttrs {
  int64_t dim;  // -1: over the flattened input
  PF_FIELDS("dim")
};
struct DimAttrs {
  int64_t dim;
  PF_FIELDS("dim")
};
// How scatter and index_put combine an element with those that an index leads to it.
enum class Combine : int64_t { Replace, Sum, Product, Largest, Smallest };
struct ScatterAttrs {
  int64_t dim, combine;  // combine: a Combine
  PF_FIELDS("dim,combine")
};
struct SearchAttrs {
  int64_t right;  // count the equal ones too
  PF_FIELDS("right")
};
struct BinAttrs {
  int64_t divide;  // by the scale; otherwise values are multiplied by it
  PF_FIELDS("divide")
};
struct ScanAttrs {
  int64_t dim, reverse;  // reverse: from the dim's end to its beginning
  PF_FIELDS("dim,reverse")
};
// kind 0: [.., N, 2] -> [.., N, 2]; 1: real numbers [.., N] -> the first half of the frequencies [.., N / 2 + 1, 2]; 2: back from that half.
// inverse: the sign of the exponent is plus. scale 1: the result is divided by sqrt(N); 2: by N.
struct FftAttrs {
  int64_t kind, inverse, scale;
  PF_FIELDS("kind,inverse,scale")
};
// An attribute and not a global switch, so that programs and measurements of different precisions are kept apart.
struct MatmulAttrs {
  int64_t precision;  // of float32 on a GPU: MatmulPrecision
  PF_FIELDS("precision")
};
// The dtypes of codes of 8-bit floats, as numbers. fast: sums may have fewer digits than float32 where that is faster.
struct ScaledAttrs {
  int64_t a, b, fast;
  PF_FIELDS("a,b,fast")
};
// Weights in GGUF's blocks: `type` is the number of their type. rows 0: rows of blocks; otherwise tiles of this many rows (tensor/weight_tiles.h).
struct BlockAttrs {
  int64_t type, rows;
  PF_FIELDS("type,rows")
};
// A kernel of the user's (ops/user_kernel.h): its number, the workgroups of a launch, and the bytes of dynamic_shared().
struct UserKernelAttrs {
  int64_t kernel, x, y, z, shared;
  PF_FIELDS("kernel,x,y,z,shared")
};
struct TriangularAttrs {
  int64_t upper, unit;  // unit: the diagonal is taken as ones
  PF_FIELDS("upper,unit")
};
struct AdjointAttrs {
  int64_t adjoint;  // solves with the transposed matrix
  PF_FIELDS("adjoint")
};
struct RowOrderAttrs {
  int64_t inverse;  // the place of each row instead
  PF_FIELDS("inverse")
};
struct EighAttrs {
  int64_t upper, vectors;  // which triangle is read; without vectors that output is empty
  PF_FIELDS("upper,vectors")
};
struct EigAttrs {
  int64_t vectors;  // without vectors those outputs are empty
  PF_FIELDS("vectors")
};
struct SvdAttrs {
  int64_t full, vectors;  // full: U and V are square
  PF_FIELDS("full,vectors")
};
enum class LstsqDriver : int64_t { gels, gelsy, gelsd, gelss };
struct LstsqAttrs {
  int64_t driver;  // LstsqDriver
  PF_FIELDS("driver")
};
// any_order is an attribute for the same reason: a GPU library may add in an order that varies between runs (use_deterministic_algorithms).
// stride_d, pad_d and dilation_d are of volumes [N, C, D, H, W].
struct ConvAttrs {
  int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, any_order = 0;
  int64_t stride_d = 1, pad_d = 0, dilation_d = 1;
  int64_t rounded = 0;  // whether a GPU may round float32 inputs (set_float32_conv_precision)
  PF_FIELDS("stride_h,stride_w,pad_h,pad_w,dilation_h,dilation_w,groups,any_order,stride_d,pad_d,dilation_d,rounded")
};
struct PoolAttrs {
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, count_include_pad;
  PF_FIELDS("kernel_h,kernel_w,stride_h,stride_w,pad_h,pad_w,dilation_h,dilation_w,count_include_pad")
};
enum class GridMode : int64_t { Linear, Nearest, Cubic };
enum class GridPadding : int64_t { Zeros, Border, Reflection };
struct GridAttrs {
  int64_t mode, padding, align_corners;  // a GridMode, a GridPadding
  PF_FIELDS("mode,padding,align_corners")
};
struct NormAttrs {
  int64_t has_weight, has_bias;  // a missing input is passed as the input x and ignored
  PF_FIELDS("has_weight,has_bias")
};
struct AttentionAttrs {
  int64_t causal, has_mask;  // causal: query t sees keys s <= t + (kv_length - T)
  int64_t any_order = 0;     // of the gradient
  int64_t padding = 0;       // query t may be left out where the mask, which has one row for all queries, hides key t
  PF_FIELDS("causal,has_mask,any_order,padding")
};
struct PagedAttrs {
  int64_t
      stored;  // DType of keys and values: the queries', or int8 or a float8 with scales. float8 values are passed as codes
  PF_FIELDS("stored")
};
// Layers of one kind, each on the outputs of the one before. The numbers of the kinds are those of the vendors' libraries.
enum class RecurrentMode : int64_t { Relu, Tanh, Lstm, Gru };
struct RecurrentAttrs {
  int64_t mode, hidden, layers, directions;  // mode: a RecurrentMode
  int64_t biases, kept;  // biases: whether each layer and direction has two; kept: whether a gradient follows
  int64_t any_order = 0, rounded = 0;  // rounded: whether a GPU may round float32 operands of products
  PF_FIELDS("mode,hidden,layers,directions,biases,kept,any_order,rounded")
};
struct TopkAttrs {
  int64_t largest;
  PF_FIELDS("largest")
};
struct SortAttrs {
  int64_t descending;
  PF_FIELDS("descending")
};
struct NllAttrs {
  int64_t ignore_index;  // rows with this target have loss and gradient 0
  PF_FIELDS("ignore_index")
};
struct OptimAttrs {
  int64_t count;      // number of parameters
  int64_t nesterov;   // sgd
  int64_t decoupled;  // adam: 1 is AdamW
  int64_t maximize;
  PF_FIELDS("count,nesterov,decoupled,maximize")
};

}  // namespace pyflame
