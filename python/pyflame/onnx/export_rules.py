"""How functions and methods are written as nodes: a rule gets the recorder, the result, and the arguments of the call, and returns the name of the
output, a list of names, or None where these arguments have no node."""
import numpy as np

import pyflame as pf

from .._C import Tensor
from . import values

# Functions of nn.functional that are one node, though they are composed.
FUNCTIONAL = ("interpolate", "hardswish", "hardsigmoid", "hardtanh", "relu6", "elu", "group_norm", "mish", "embedding")
RULES = {}


def rule(*names):
    def register(function):
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _unary(op):
    return lambda g, y, x, *args, **kwargs: g.node(op, [g.cast(x, y.dtype)])


for _name, _op in {"neg": "Neg", "negative": "Neg", "abs": "Abs", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sign": "Sign", "reciprocal": "Reciprocal", "sin": "Sin", "cos": "Cos",
                   "tan": "Tan", "tanh": "Tanh", "erf": "Erf", "sigmoid": "Sigmoid", "hardswish": "HardSwish", "logical_not": "Not", "asin": "Asin", "acos": "Acos", "atan": "Atan"}.items():
    rule(_name)(_unary(_op))


def _to_integers(op):
    """Integers have no fraction, and the operators do not take them."""
    return lambda g, y, x: g.node(op, [g.name(x)]) if x.is_floating_point() else g.name(x)


rule("floor")(_to_integers("Floor"))
rule("ceil")(_to_integers("Ceil"))


@rule("round")
def round_to(g, y, x, decimals=0):
    """Of decimals: round(x * 10^decimals) / 10^decimals; below 0 round(x / 10^-decimals) * 10^-decimals."""
    if decimals == 0:
        return _to_integers("Round")(g, y, x)
    scale, (before, after) = g.cast(10.0 ** abs(decimals), x.dtype), ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return g.node(after, [g.node("Round", [g.node(before, [g.name(x), scale])]), scale])


@rule("relu")
def relu(g, y, x, inplace=False):
    return g.node("Relu", [g.name(x)]) if x.is_floating_point() else g.node("Max", [g.name(x), g.cast(0, x.dtype)])


def _binary(op, swapped=False):
    def run(g, y, a, b, alpha=1, rounding_mode=None, **kwargs):
        if alpha != 1 or rounding_mode is not None:
            return None
        dtype = y.dtype
        if op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
            dtype = pf.promote_types(a.dtype, b.dtype) if isinstance(b, Tensor) else a.dtype if a.is_floating_point() or isinstance(b, int) else pf.float32
        names = [g.cast(a, dtype), g.cast(b, dtype)]
        return g.node(op, names[::-1] if swapped else names)

    return run


for _names, _op in {("add",): "Add", ("sub", "subtract"): "Sub", ("mul", "multiply"): "Mul", ("div", "divide", "true_divide"): "Div", ("pow",): "Pow", ("maximum",): "Max",
                    ("minimum",): "Min", ("logical_and",): "And", ("logical_or",): "Or", ("eq",): "Equal", ("lt",): "Less", ("le",): "LessOrEqual", ("gt",): "Greater",
                    ("ge",): "GreaterOrEqual"}.items():
    rule(*_names)(_binary(_op))
rule("rsub")(_binary("Sub", True))
rule("rdiv")(_binary("Div", True))


@rule("ne")
def ne(g, y, a, b):
    return g.node("Not", [RULES["eq"](g, y, a, b)])


@rule("square")
def square(g, y, x):
    return g.node("Mul", [g.name(x), g.name(x)])


@rule("rsqrt")
def rsqrt(g, y, x):
    return g.node("Reciprocal", [g.node("Sqrt", [g.cast(x, y.dtype)])])


@rule("silu")
def silu(g, y, x, *args, **kwargs):
    return g.node("Mul", [g.name(x), g.node("Sigmoid", [g.name(x)])])


@rule("gelu")
def gelu(g, y, x, approximate="none"):
    if g.opset >= 20:
        return g.node("Gelu", [g.name(x)], approximate=approximate)
    half = g.node("Mul", [g.name(x), g.name(0.5, x)])
    if approximate == "none":
        inner = g.node("Erf", [g.node("Mul", [g.name(x), g.name(2 ** -0.5, x)])])
    else:
        cube = g.node("Mul", [g.node("Pow", [g.name(x), g.name(3.0, x)]), g.name(0.044715, x)])
        inner = g.node("Tanh", [g.node("Mul", [g.node("Add", [g.name(x), cube]), g.name((2 / np.pi) ** 0.5, x)])])
    return g.node("Mul", [half, g.node("Add", [inner, g.name(1.0, x)])])


@rule("leaky_relu")
def leaky_relu(g, y, x, negative_slope=0.01, *args, **kwargs):
    return g.node("LeakyRelu", [g.name(x)], alpha=float(negative_slope))


@rule("elu")
def elu(g, y, x, alpha=1.0, *args, **kwargs):
    return g.node("Elu", [g.name(x)], alpha=float(alpha))


@rule("hardsigmoid")
def hardsigmoid(g, y, x, *args, **kwargs):
    return g.node("HardSigmoid", [g.name(x)], alpha=1 / 6, beta=0.5)


@rule("clamp", "clip")
def clamp(g, y, x, min=None, max=None):
    names = [g.cast(x, y.dtype)] + ["" if v is None else g.cast(v, y.dtype) for v in (min, max)]
    return g.node("Clip", names) if not isinstance(min, Tensor) and not isinstance(max, Tensor) else None


@rule("hardtanh")
def hardtanh(g, y, x, min_val=-1.0, max_val=1.0, *args, **kwargs):
    return clamp(g, y, x, min_val, max_val)


@rule("relu6")
def relu6(g, y, x, *args, **kwargs):
    return clamp(g, y, x, 0, 6)


@rule("softmax", "log_softmax")
def softmax(g, y, x, dim, dtype=None):
    return g.node("Softmax", [g.cast(x, y.dtype)], axis=dim)


RULES["log_softmax"] = lambda g, y, x, dim, dtype=None: g.node("LogSoftmax", [g.cast(x, y.dtype)], axis=dim)


@rule("dropout")
def dropout(g, y, x, p=0.5, training=True, inplace=False):
    """A draw has no node: dropout is the input itself where it does not train."""
    return None if training and p else g.name(x)


@rule("contiguous", "clone", "detach", "requires_grad_", "alias_copy", "positive", "data", "real")
def same(g, y, x, *args, **kwargs):
    return g.name(x) if y.dtype == x.dtype else None


@rule("to", "float", "double", "half", "bfloat16", "long", "int", "bool", "type_as", "cpu")
def to(g, y, x, *args, **kwargs):
    return g.cast(x, y.dtype)


# ---- products and windows


@rule("linear")
def linear(g, y, x, weight, bias=None):
    if x.dim() == 2:
        return g.node("Gemm", [g.name(x), g.name(weight)] + ([] if bias is None else [g.name(bias)]), transB=1)
    product = g.node("MatMul", [g.name(x), g.node("Transpose", [g.name(weight)], perm=[1, 0])])
    return product if bias is None else g.node("Add", [product, g.name(bias)])


@rule("matmul", "mm", "bmm", "batch_matmul")
def matmul(g, y, a, b):
    return g.node("MatMul", [g.name(a), g.name(b)])


def _many(value, count):
    return list(value) * (count if len(value) == 1 else 1) if isinstance(value, (tuple, list)) else [value] * count


@rule("conv1d", "conv2d", "conv3d")
def conv(g, y, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    count = weight.dim() - 2
    if isinstance(padding, str) or x.dim() != weight.dim():
        return None
    names = [g.name(x), g.name(weight)] + ([] if bias is None else [g.name(bias)])
    return g.node("Conv", names, strides=_many(stride, count), pads=_many(padding, count) * 2, dilations=_many(dilation, count), group=groups,
                  kernel_shape=list(weight.shape)[2:])


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(g, y, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    count = weight.dim() - 2
    if x.dim() != weight.dim():
        return None
    names = [g.name(x), g.name(weight)] + ([] if bias is None else [g.name(bias)])
    return g.node("ConvTranspose", names, strides=_many(stride, count), pads=_many(padding, count) * 2, dilations=_many(dilation, count), group=groups,
                  output_padding=_many(output_padding, count), kernel_shape=list(weight.shape)[2:])


@rule("max_pool2d")
def max_pool2d(g, y, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    if x.dim() != 4:
        return None
    kernel = _many(kernel_size, 2)
    pooled = g.node("MaxPool", [g.name(x)], kernel_shape=kernel, strides=_many(kernel if stride in (None, ()) else stride, 2), pads=_many(padding, 2) * 2,
                    dilations=_many(dilation, 2), ceil_mode=int(ceil_mode))
    return [pooled, ""] if return_indices else pooled  # the places have no node: their use is an error


@rule("avg_pool2d")
def avg_pool2d(g, y, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    if divisor_override is not None or x.dim() != 4:
        return None
    kernel = _many(kernel_size, 2)
    return g.node("AveragePool", [g.name(x)], kernel_shape=kernel, strides=_many(kernel if stride in (None, ()) else stride, 2), pads=_many(padding, 2) * 2,
                  ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad))


@rule("adaptive_avg_pool2d")
def adaptive_avg_pool2d(g, y, x, output_size):
    sizes = [n // m if m and n % m == 0 else 0 for n, m in zip(x.shape[-2:], y.shape[-2:])]
    if not all(sizes) or x.dim() != 4:
        return None
    return g.node("AveragePool", [g.name(x)], kernel_shape=sizes, strides=sizes)


@rule("interpolate")
def interpolate(g, y, x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    """With a factor that is not the quotient of the sizes, and that coordinates use as it is, the node gets the factors, else the sizes."""
    kind = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode)
    if kind is None or antialias:
        return None
    where = "asymmetric" if kind == "nearest" else "align_corners" if align_corners else "half_pixel"
    to = ["", g.ints(*y.shape)]
    if scale_factor is not None and not recompute_scale_factor and not align_corners:
        factors = np.array([1, 1, *_many(scale_factor, x.dim() - 2)], np.float32)
        if (np.floor(np.array(x.shape, np.float32) * factors) != y.shape).any():
            return None  # float32 rounds to another size
        to = [g.constant(factors)] if (np.array(x.shape) * factors != y.shape).any() else to
    return g.node("Resize", [g.name(x), "", *to], mode=kind, coordinate_transformation_mode=where, nearest_mode="floor", cubic_coeff_a=-0.75)


@rule("embedding")
def embedding(g, y, a, b=None, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False, weight=None):
    """max_norm shortens the rows that are looked up: rows * max_norm / (norm + 1e-7) where norm > max_norm."""
    b = weight if b is None else b
    indices, table = (b, a) if a.is_floating_point() else (a, b)
    if max_norm is not None and not 0 < norm_type < np.inf:
        return None
    rows = g.node("Gather", [g.name(table), g.name(indices)])
    if max_norm is None:
        return rows
    powers = g.node("Pow", [g.node("Abs", [rows]), g.cast(norm_type, y.dtype)])
    norm = g.node("Pow", [g.node("ReduceSum", [powers, g.ints(-1)], keepdims=1), g.cast(1 / norm_type, y.dtype)])
    limit = g.cast(max_norm, y.dtype)
    factor = g.node("Div", [limit, g.node("Add", [norm, g.cast(1e-7, y.dtype)])])
    return g.node("Where", [g.node("Greater", [norm, limit]), g.node("Mul", [rows, factor]), rows])


@rule("scaled_dot_product_attention")
def attention(g, y, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    q, k, v = query, key, value
    if enable_gqa or dropout_p or q.dim() < 3:
        return None
    factor = g.name(q.shape[-1] ** -0.5 if scale is None else scale, q)
    turned = list(range(k.dim()))
    turned[-2:] = turned[-1], turned[-2]
    scores = g.node("MatMul", [g.node("Mul", [g.name(q), factor]), g.node("Transpose", [g.name(k)], perm=turned)])
    lowest = np.asarray(-np.inf, q.dtype.name)
    if is_causal:
        mask = np.triu(np.full((q.shape[-2], k.shape[-2]), lowest), 1)
        scores = g.node("Add", [scores, g.constant(mask)])
    elif attn_mask is not None and attn_mask.dtype == pf.bool:
        scores = g.node("Where", [g.name(attn_mask), scores, g.constant(lowest)])
    elif attn_mask is not None:
        scores = g.node("Add", [scores, g.name(attn_mask)])
    result = g.node("MatMul", [g.node("Softmax", [scores], axis=-1), g.name(v)])
    if not _may_mask_a_row(g, attn_mask):
        return result
    return g.node("Where", [_without_a_key(g, scores, lowest), g.name(0, q), result])


def _may_mask_a_row(g, mask):
    """Whether a mask may leave a query without any key."""
    if mask is None or g.is_live(mask):
        return mask is not None
    kept = mask if mask.dtype == pf.bool else mask > -np.inf
    return not kept.any(-1).all().item()


def _without_a_key(g, scores, lowest):
    """Of each query, whether no score is above -inf. The softmax of such a row is NaN, and its result is 0."""
    inputs, attributes = _axes(g, [-1])
    return g.node("Equal", [g.node("ReduceMax", [scores] + inputs, keepdims=1, **attributes), g.constant(lowest)])


# ---- normalizations


@rule("batch_norm")
def batch_norm(g, y, x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, *args, **kwargs):
    if training or mean is None:
        return None
    ones = np.ones(x.shape[1], x.dtype.name)
    scale = g.name(weight) if weight is not None else g.constant(ones)
    shift = g.name(bias) if bias is not None else g.constant(ones * 0)
    return g.node("BatchNormalization", [g.name(x), scale, shift, g.name(mean), g.name(var)], epsilon=eps)


@rule("layer_norm")
def layer_norm(g, y, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    scale = g.name(weight) if weight is not None else g.constant(np.ones(shape, x.dtype.name))
    return g.node("LayerNormalization", [g.name(x), scale] + ([] if bias is None else [g.name(bias)]), axis=-len(shape), epsilon=eps)


@rule("group_norm")
def group_norm(g, y, x, num_groups, weight=None, bias=None, eps=1e-5):
    shape = tuple(x.shape)
    groups = g.node("Reshape", [g.name(x), g.ints(shape[0], num_groups, -1)])
    ones = np.ones(num_groups, x.dtype.name)
    normal = g.node("InstanceNormalization", [groups, g.constant(ones), g.constant(ones * 0)], epsilon=eps)
    result = g.node("Reshape", [normal, g.ints(*shape)])
    for op, value in (("Mul", weight), ("Add", bias)):
        if value is not None:
            result = g.node(op, [result, g.node("Reshape", [g.name(value), g.ints(-1, *[1] * (len(shape) - 2))])])
    return result


@rule("rms_norm")
def rms_norm(g, y, x, normalized_shape, weight=None, eps=None):
    shape = tuple(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else (normalized_shape,)
    eps = np.finfo(x.dtype.name).eps if eps is None else eps
    mean = g.node("ReduceMean", [g.node("Mul", [g.name(x), g.name(x)])] + _axes(g, range(-len(shape), 0))[0], keepdims=1, **_axes(g, range(-len(shape), 0))[1])
    result = g.node("Div", [g.name(x), g.node("Sqrt", [g.node("Add", [mean, g.name(eps, x)])])])
    return result if weight is None else g.node("Mul", [result, g.name(weight)])


# ---- reductions


def _axes(g, axes, always_input=False):
    """(further inputs, attributes) for the axes of a reduction: an input from opset 18 on."""
    axes = [int(a) for a in axes]
    return ([g.ints(*axes)], {}) if g.opset >= 18 or always_input else ([], {"axes": axes})


def _reduction(op):
    def run(g, y, x, dim=None, keepdim=False, dtype=None, **kwargs):
        if not isinstance(y, Tensor) or isinstance(dim, Tensor):
            return None
        dims = range(x.dim()) if dim is None or dim == () else _many(dim, 1)
        inputs, attributes = _axes(g, dims, op == "ReduceSum")
        dtype = pf.int32 if y.dtype == pf.bool else y.dtype  # the operators do not take bool
        found = g.node(op, [g.cast(x, dtype)] + inputs, keepdims=int(keepdim), **attributes)
        return found if dtype == y.dtype else g.node("Cast", [found], to=values.number_of(y.dtype))

    return run


for _name, _op in {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}.items():
    rule(_name)(_reduction(_op))


@rule("argmax", "argmin")
def argmax(g, y, x, dim=None, keepdim=False):
    return None if dim is None else g.node("ArgMax", [g.name(x)], axis=dim, keepdims=int(keepdim))


RULES["argmin"] = lambda g, y, x, dim=None, keepdim=False: None if dim is None else g.node("ArgMin", [g.name(x)], axis=dim, keepdims=int(keepdim))


@rule("cumsum")
def cumsum(g, y, x, dim, dtype=None):
    return g.node("CumSum", [g.cast(x, y.dtype), g.name(np.int64(dim))])


@rule("topk")
def topk(g, y, x, k, dim=-1, largest=True, sorted=True):
    return g.node("TopK", [g.name(x), g.ints(k)], 2, axis=dim, largest=int(largest), sorted=int(sorted))


# ---- shapes: the sizes are those of the call


@rule("reshape", "view", "flatten", "squeeze", "unsqueeze", "unflatten", "reshape_as", "view_as", "ravel")
def reshape(g, y, x, *args, **kwargs):
    if not isinstance(y, Tensor) or y.dtype != x.dtype:
        return None
    return g.node("Reshape", [g.name(x), g.ints(*y.shape)], allowzero=None if y.numel() else 1)


@rule("permute")
def permute(g, y, x, *dims, **kwargs):
    dims = kwargs.get("dims", dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims)
    return g.node("Transpose", [g.name(x)], perm=[d % x.dim() for d in dims])


@rule("transpose", "swapaxes", "swapdims", "t")
def transpose(g, y, x, dim0=0, dim1=1, *, axis0=None, axis1=None):
    a, b = (first if second is None else second for first, second in ((dim0, axis0), (dim1, axis1)))
    perm = list(range(x.dim()))
    if perm:
        perm[a], perm[b] = perm[b], perm[a]
    return g.node("Transpose", [g.name(x)], perm=perm) if x.dim() > 1 else g.name(x)


@rule("expand", "broadcast_to", "expand_as")
def expand(g, y, x, *args, **kwargs):
    return g.node("Expand", [g.name(x), g.ints(*y.shape)])


@rule("cat", "concat", "concatenate")
def cat(g, y, tensors, dim=0):
    return g.node("Concat", [g.cast(t, y.dtype) for t in tensors], axis=dim)


@rule("stack")
def stack(g, y, tensors, dim=0):
    dim = dim % y.dim()
    return g.node("Concat", [g.node("Unsqueeze", [g.cast(t, y.dtype), g.ints(dim)]) for t in tensors], axis=dim)


@rule("split", "chunk", "tensor_split")
def split(g, y, x, sizes=None, dim=0, **kwargs):
    names = g.node("Split", [g.name(x), g.ints(*[part.shape[dim] for part in y])], len(y), axis=dim)
    return names if isinstance(names, list) else [names]


@rule("unbind")
def unbind(g, y, x, dim=0):
    return [select(g, part, x, dim, k) for k, part in enumerate(y)]


@rule("narrow")
def narrow(g, y, x, dim, start, length):
    start = start % x.shape[dim] if start < 0 else start
    return g.node("Slice", [g.name(x), g.ints(start), g.ints(start + length), g.ints(dim)])


@rule("select")
def select(g, y, x, dim, index):
    return g.node("Gather", [g.name(x), g.name(np.int64(index))], axis=dim)


@rule("getitem")
def getitem(g, y, x, index):
    """Numbers, slices, None and an ellipsis."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(p is None or p is Ellipsis or isinstance(p, slice) or type(p) is int for p in parts):
        return None
    if Ellipsis in parts:
        k = parts.index(Ellipsis)
        parts[k:k + 1] = [slice(None)] * (x.dim() - sum(p is not None and p is not Ellipsis for p in parts))
    starts, ends, axes, steps, axis = [], [], [], [], 0
    for p in parts:
        if p is None:
            continue
        if type(p) is int:
            p = slice(p % x.shape[axis], p % x.shape[axis] + 1)
        start, end, step = p.indices(x.shape[axis])
        if (start, end, step) != (0, x.shape[axis], 1):
            starts, ends, axes, steps = starts + [start], ends + [end], axes + [axis], steps + [step]
        axis += 1
    name = g.name(x) if not axes else g.node("Slice", [g.name(x), g.ints(*starts), g.ints(*ends), g.ints(*axes), g.ints(*steps)])
    return g.node("Reshape", [name, g.ints(*y.shape)])


@rule("pad")
def pad(g, y, x, pad, mode="constant", value=None):
    kind = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    if mode == "circular" and (g.opset < 19 or min(pad) < 0):  # wrap is a mode from opset 19 on, and elements that are cut off do not come back
        return _wrapped(g, x, pad)
    pads, rank = [0] * (2 * x.dim()), x.dim()
    for k in range(len(pad) // 2):
        pads[rank - 1 - k], pads[2 * rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    return g.node("Pad", [g.name(x), g.ints(*pads), g.cast(value or 0, x.dtype)], mode=kind)


def _wrapped(g, x, pad):
    name = g.name(x)
    for k, (before, after) in enumerate(zip(pad[::2], pad[1::2]), 1):
        places = np.arange(max(-before, 0), x.shape[-k] - max(-after, 0))
        places = places[np.arange(-max(before, 0), len(places) + max(after, 0)) % len(places)]
        name = g.node("Gather", [name, g.ints(*places)], axis=x.dim() - k)
    return name


@rule("where")
def where(g, y, condition, a=None, b=None):
    return None if a is None else g.node("Where", [g.name(condition), g.cast(a, y.dtype), g.cast(b, y.dtype)])


@rule("masked_fill")
def masked_fill(g, y, x, mask, value):
    return g.node("Where", [g.name(mask), g.cast(value, y.dtype), g.cast(x, y.dtype)])


@rule("gather")
def gather(g, y, x, dim, index, **kwargs):
    return g.node("GatherElements", [g.name(x), g.name(index)], axis=dim)


@rule("index_select")
def index_select(g, y, x, dim, index):
    return g.node("Gather", [g.name(x), g.name(index)], axis=dim)


@rule("tril", "triu")
def tril(g, y, x, diagonal=0):
    return g.node("Trilu", [g.name(x), g.name(np.int64(diagonal))], upper=0)


RULES["triu"] = lambda g, y, x, diagonal=0: g.node("Trilu", [g.name(x), g.name(np.int64(diagonal))], upper=1)


@rule("tile", "repeat")
def tile(g, y, x, *sizes, **kwargs):
    sizes = kwargs.get("dims", sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)
    shape = [1] * (y.dim() - x.dim()) + list(x.shape)
    return g.node("Tile", [g.node("Reshape", [g.name(x), g.ints(*shape)]), g.ints(*[n // m if m else 1 for n, m in zip(y.shape, shape)])])
