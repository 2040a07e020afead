"""Rules of functions that ONNX has no single operator for: short compositions. Sizes, and indices that do not depend on inputs, are those of the call."""
import math

import numpy as np

import pyflame as pf

from .. import _C
from .._C import Tensor
from . import values
from .export_rules import RULES, _axes, _many, rule


def _chain(g, name, *steps):
    """Nodes one after the other: each step is an operator, and what follows its first input."""
    for op, *others in steps:
        name = g.node(op, [name, *others])
    return name


def _integer(dtype):
    return not dtype.is_floating_point and dtype != pf.bool


# ---- numbers


for _name, _op in {"sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "sgn": "Sign", "absolute": "Abs", "arcsin": "Asin", "arccos": "Acos",
                   "arctan": "Atan", "arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh"}.items():
    rule(_name)(lambda g, y, x, op=_op: g.node(op, [g.cast(x, y.dtype)]))
for _name, _base in {"log2": 2.0, "log10": 10.0}.items():
    rule(_name)(lambda g, y, x, base=_base: g.node("Mul", [g.node("Log", [g.cast(x, y.dtype)]), g.cast(1 / math.log(base), y.dtype)]))


@rule("log1p")
def log1p(g, y, x):
    return g.node("Log", [g.node("Add", [g.cast(x, y.dtype), g.cast(1, y.dtype)])])


@rule("expm1")
def expm1(g, y, x):
    return g.node("Sub", [g.node("Exp", [g.cast(x, y.dtype)]), g.cast(1, y.dtype)])


@rule("exp2")
def exp2(g, y, x):
    return g.node("Pow", [g.cast(2, y.dtype), g.cast(x, y.dtype)])


@rule("erfc")
def erfc(g, y, x):
    return g.node("Sub", [g.cast(1, y.dtype), g.node("Erf", [g.cast(x, y.dtype)])])


def _trunc(g, name):
    return g.node("Mul", [g.node("Sign", [name]), g.node("Floor", [g.node("Abs", [name])])])


@rule("trunc")
def trunc(g, y, x):
    return g.name(x) if _integer(x.dtype) else _trunc(g, g.name(x))


RULES["isnan"] = lambda g, y, x: g.node("IsNaN", [g.cast(x, x.dtype if x.is_floating_point() else pf.float32)])
RULES["isinf"] = lambda g, y, x: g.node("IsInf", [g.cast(x, x.dtype if x.is_floating_point() else pf.float32)])
RULES["isfinite"] = lambda g, y, x: g.node("Not", [g.node("Or", [RULES["isnan"](g, y, x), RULES["isinf"](g, y, x)])])


def _bits(op):
    def run(g, y, a, b):
        if y.dtype == pf.bool:
            return g.node(op, [g.cast(a, pf.bool), g.cast(b, pf.bool)])
        return g.node("Bitwise" + op, [g.cast(a, y.dtype), g.cast(b, y.dtype)]) if g.opset >= 18 else None

    return run


for _name, _op in {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor"}.items():
    rule(_name)(_bits(_op))
rule("logical_xor")(lambda g, y, a, b: g.node("Xor", [g.cast(a, pf.bool), g.cast(b, pf.bool)]))
rule("bitwise_not")(lambda g, y, x: g.node("Not", [g.name(x)]) if y.dtype == pf.bool else g.node("BitwiseNot", [g.name(x)]) if g.opset >= 18 else None)


@rule("remainder")
def remainder(g, y, a, b):
    a, b = g.cast(a, y.dtype), g.cast(b, y.dtype)
    if _integer(y.dtype):
        return g.node("Mod", [a, b])
    rest, zero = g.node("Mod", [a, b], fmod=1), g.cast(0, y.dtype)
    wrong = g.node("And", [g.node("Not", [g.node("Equal", [rest, zero])]), g.node("Xor", [g.node("Less", [rest, zero]), g.node("Less", [b, zero])])])
    return g.node("Where", [wrong, g.node("Add", [rest, b]), rest])  # with the sign of b


@rule("floor_divide")
def floor_divide(g, y, a, b):
    quotient = g.node("Div", [g.node("Sub", [g.cast(a, y.dtype), remainder(g, y, a, b)]), g.cast(b, y.dtype)])
    return quotient if _integer(y.dtype) else g.node("Round", [quotient])


rule("rfloor_divide")(lambda g, y, a, b: floor_divide(g, y, b, a))
rule("rremainder")(lambda g, y, a, b: remainder(g, y, b, a))
rule("rpow")(lambda g, y, a, b: g.node("Pow", [g.cast(b, y.dtype), g.cast(a, y.dtype)]))
_plain = {n: RULES[n] for n in ("add", "sub", "div")}


@rule("div", "divide", "true_divide")
def div(g, y, a, b, rounding_mode=None):
    if rounding_mode == "floor":
        return floor_divide(g, y, a, b)
    quotient = _plain["div"](g, y, a, b)
    return _trunc(g, quotient) if rounding_mode == "trunc" and not _integer(y.dtype) else quotient


def _scaled(op):
    def run(g, y, a, b, alpha=1):
        return _plain[op](g, y, a, b) if alpha == 1 else g.node(op.title(), [g.cast(a, y.dtype), g.node("Mul", [g.cast(b, y.dtype), g.cast(alpha, y.dtype)])])

    return run


rule("add")(_scaled("add"))
rule("sub", "subtract")(_scaled("sub"))


@rule("bitwise_left_shift")
def bitwise_left_shift(g, y, x, k):
    return g.node("Mul", [g.cast(x, y.dtype), g.cast(2**k, y.dtype)]) if isinstance(k, int) else None


@rule("bitwise_right_shift")
def bitwise_right_shift(g, y, x, k):
    return floor_divide(g, y, x, 2**k) if isinstance(k, int) else None


_clamp_by_numbers = RULES["clamp"]


@rule("clamp", "clip")
def clamp(g, y, x, min=None, max=None):
    if not isinstance(min, Tensor) and not isinstance(max, Tensor):
        return _clamp_by_numbers(g, y, x, min, max)
    name = g.cast(x, y.dtype)
    for op, limit in (("Max", min), ("Min", max)):
        name = name if limit is None else g.node(op, [name, g.cast(limit, y.dtype)])
    return name


@rule("atan2", "arctan2")
def atan2(g, y, a, b):
    a, b, zero = g.cast(a, y.dtype), g.cast(b, y.dtype), g.cast(0, y.dtype)
    turned = g.node("Where", [g.node("Less", [a, zero]), g.cast(-math.pi, y.dtype), g.cast(math.pi, y.dtype)])
    angle = g.node("Atan", [g.node("Div", [a, b])])
    angle = g.node("Where", [g.node("Less", [b, zero]), g.node("Add", [angle, turned]), angle])
    return g.node("Where", [g.node("And", [g.node("Equal", [a, zero]), g.node("Equal", [b, zero])]), zero, angle])


@rule("softplus")
def softplus(g, y, x, beta=1, threshold=20):
    """log(1 + exp(beta x)) / beta, or x where beta x > threshold. From a threshold of 20 on the two are equal but for 1e-10 of the value."""
    scaled = g.name(x) if beta == 1 else g.node("Mul", [g.name(x), g.cast(beta, y.dtype)])
    soft = g.node("Softplus", [scaled])
    soft = soft if beta == 1 else g.node("Div", [soft, g.cast(beta, y.dtype)])
    return soft if threshold >= 20 else g.node("Where", [g.node("Greater", [scaled, g.cast(threshold, y.dtype)]), g.name(x), soft])


@rule("mish")
def mish(g, y, x, *args, **kwargs):
    return g.node("Mish", [g.name(x)]) if g.opset >= 18 else g.node("Mul", [g.name(x), g.node("Tanh", [g.node("Softplus", [g.name(x)])])])


@rule("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor")
def of_its_shape(g, y, x, *args, **kwargs):
    return g.constant(values.to_array(y))


# ---- reductions and orders


def _dims(x, dim):
    return range(x.dim()) if dim is None or not isinstance(dim, int) and not len(dim) else _many(dim, 1)


def _reduce(g, op, name, x, dim, keepdim):
    inputs, attributes = _axes(g, _dims(x, dim), op == "ReduceSum")
    return g.node(op, [name] + inputs, keepdims=int(keepdim), **attributes)


for _name, _op in {"any": "ReduceMax", "all": "ReduceMin"}.items():
    def _run(g, y, x, dim=None, keepdim=False, op=_op):
        if dim is not None and not isinstance(dim, int) and not len(dim):
            return None
        number = g.node("Cast", [g.cast(x, pf.bool)], to=values.number_of(pf.int32))
        return g.node("Cast", [_reduce(g, op, number, x, dim, keepdim)], to=values.number_of(y.dtype))

    rule(_name)(_run)


@rule("logsumexp")
def logsumexp(g, y, x, dim, keepdim=False):
    return _reduce(g, "ReduceLogSumExp", g.cast(x, y.dtype), x, dim, keepdim)


def _variance(g, y, x, dim, unbiased, keepdim, correction):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    correction = int(unbiased is not False) if correction is None else correction
    count = math.prod(x.shape[d] for d in _dims(x, dim))
    if count <= correction:
        return None
    d = g.node("Sub", [g.name(x), _reduce(g, "ReduceMean", g.name(x), x, dim, True)])
    return g.node("Mul", [_reduce(g, "ReduceMean", g.node("Mul", [d, d]), x, dim, keepdim), g.cast(count / (count - correction), y.dtype)])


@rule("var")
def var(g, y, x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    return _variance(g, y, x, dim, unbiased, keepdim, correction)


@rule("std")
def std(g, y, x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    variance = _variance(g, y, x, dim, unbiased, keepdim, correction)
    return variance and g.node("Sqrt", [variance])


@rule("norm")
def norm(g, y, x, *args, **kwargs):
    return None if args or kwargs else g.node("Sqrt", [_reduce(g, "ReduceSum", g.node("Mul", [g.name(x), g.name(x)]), x, None, False)])


def _extreme(reduce, arg, both):
    def run(g, y, x, dim=None, keepdim=False):
        if isinstance(dim, Tensor):
            return g.node(both, [g.cast(x, y.dtype), g.cast(dim, y.dtype)])
        found = _reduce(g, reduce, g.name(x), x, dim, keepdim)
        return found if dim is None else [found, g.node(arg, [g.name(x)], axis=dim, keepdims=int(keepdim))]

    return run


rule("max")(_extreme("ReduceMax", "ArgMax", "Max"))
rule("min")(_extreme("ReduceMin", "ArgMin", "Min"))
for _name, _op in {"argmax": "ArgMax", "argmin": "ArgMin"}.items():
    def _run(g, y, x, dim=None, keepdim=False, op=_op):
        flat = g.name(x) if dim is not None else g.node("Reshape", [g.name(x), g.ints(-1)])
        place = g.node(op, [flat], axis=dim or 0, keepdims=int(keepdim and dim is not None))
        return g.node("Reshape", [place, g.ints(*y.shape)]) if dim is None and keepdim else place

    rule(_name)(_run)


def _sorted(g, x, dim, descending):
    return g.node("TopK", [g.name(x), g.ints(x.shape[dim])], 2, axis=dim, largest=int(descending)) if x.dim() else None


@rule("sort")
def sort(g, y, x, dim=-1, descending=False, stable=False):
    return _sorted(g, x, dim, descending)


rule("argsort")(lambda g, y, x, dim=-1, descending=False, stable=False: (_sorted(g, x, dim, descending) or [None])[-1])
rule("_sorted_values")(lambda g, y, x, dim, descending: (_sorted(g, x, dim, descending) or [None])[0])
_LONGEST = 512  # of a line whose parts up to each element are reduced


def _up_to_each(op, beyond):
    """A reduction of the elements up to each one along a dim: of a square of copies, in which the later ones are `beyond`."""

    def run(g, y, x, dim, dtype=None):
        dim = dim % max(x.dim(), 1)
        if not x.dim() or x.shape[dim] > _LONGEST:
            return None
        kind = (y if isinstance(y, Tensor) else y[0]).dtype
        n, after = x.shape[dim], x.dim() - dim - 1
        mask = g.constant(np.tri(n, dtype=bool).reshape(n, n, *[1] * after))
        square = g.node("Where", [mask, g.node("Unsqueeze", [g.cast(x, kind), g.ints(dim)]), g.cast(beyond if kind.is_floating_point or beyond == 1 else 0, kind)])
        inputs, attributes = _axes(g, [dim + 1])
        found = g.node(op, [square] + inputs, keepdims=0, **attributes)
        return found if isinstance(y, Tensor) else [found, ""]

    return run


rule("cumprod")(_up_to_each("ReduceProd", 1))
rule("logcumsumexp")(_up_to_each("ReduceLogSumExp", -math.inf))
rule("cummax")(lambda g, y, x, dim: _up_to_each("ReduceMax", -math.inf)(g, y, x, dim) if x.is_floating_point() else None)
rule("cummin")(lambda g, y, x, dim: _up_to_each("ReduceMin", math.inf)(g, y, x, dim) if x.is_floating_point() else None)


@rule("_searchsorted")
def searchsorted(g, y, sequence, x, right):
    if sequence.dim() != 1:
        return None
    dtype = pf.promote_types(sequence.dtype, x.dtype)
    before = g.node("LessOrEqual" if right else "Less", [g.cast(sequence, dtype), g.node("Unsqueeze", [g.cast(x, dtype), g.ints(-1)])])
    return g.node("ReduceSum", [g.node("Cast", [before], to=values.number_of(y.dtype)), g.ints(-1)], keepdims=0)


# ---- elements at places


def _turned(g, y, x):
    return g.node("Transpose", [g.name(x)], perm=[*range(x.dim() - 2), x.dim() - 1, x.dim() - 2]) if x.dim() > 1 else g.name(x)


rule("T")(lambda g, y, x: g.node("Transpose", [g.name(x)]))
rule("mT", "H", "mH")(_turned)


def _numbered(x):
    """The number of each element, in the shape of x."""
    return pf.arange(x.numel()).reshape(x.shape)


def _taken(g, x, places, outside=False):
    """Elements of a tensor by their numbers; with outside, 0 stands for a zero, and numbers begin at 1."""
    places, flat = np.asarray(places, np.int64), g.node("Reshape", [g.name(x), g.ints(-1)])
    if outside:
        flat = g.node("Concat", [g.constant(np.zeros(1, x.dtype.name)), flat], axis=0)
    return g.node("Gather", [flat, g.constant(places)])


@rule("as_strided")
def as_strided(g, y, x, size, stride, storage_offset=None):
    def offsets(shape, strides, start):
        total = np.full((), start, np.int64)
        for n, step in zip(shape, strides):
            total = total[..., None] + np.arange(n) * step
        return total

    here = offsets(x.shape, x.stride(), x.storage_offset())
    wanted = offsets(size, stride, x.storage_offset() if storage_offset is None else storage_offset)
    table = np.full(max(here.max(initial=0), wanted.max(initial=0)) + 1, -1)
    table[here] = np.arange(x.numel()).reshape(here.shape)
    return None if (table[wanted] < 0).any() else _taken(g, x, table[wanted])


@rule("im2col")
def im2col(g, y, x, *args, **kwargs):
    return _taken(g, x, values.to_array(_C.im2col((_numbered(x) + 1).double(), *args, **kwargs)), outside=True)


@rule("col2im")
def col2im(g, y, x, output_size, kernel_size, dilation=1, padding=0, stride=1):
    if g.opset < 18:
        return None
    return g.node("Col2Im", [g.name(x), g.ints(*_many(output_size, 2)), g.ints(*_many(kernel_size, 2))], dilations=_many(dilation, 2), pads=_many(padding, 2) * 2,
                  strides=_many(stride, 2))


@rule("take_along_dim")
def take_along_dim(g, y, x, indices, dim=None):
    if dim is None:
        return g.node("Gather", [g.node("Reshape", [g.name(x), g.ints(-1)]), g.node("Reshape", [g.name(indices), g.ints(-1)])])
    wide = list(y.shape)
    wide[dim] = x.shape[dim]
    return g.node("GatherElements", [g.node("Expand", [g.name(x), g.ints(*wide)]), g.node("Expand", [g.name(indices), g.ints(*y.shape)])], axis=dim)


@rule("broadcast_tensors")
def broadcast_tensors(g, y, *tensors):
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return [g.node("Expand", [g.name(t), g.ints(*y[0].shape)]) for t in tensors]


_simple_getitem = RULES["getitem"]


@rule("getitem")
def getitem(g, y, x, index):
    """Besides numbers and slices: indices that do not depend on inputs, one tensor among whole dims, and several tensors in front."""
    parts = list(index) if isinstance(index, (tuple, list)) and not (isinstance(index, list) and all(isinstance(p, int) for p in index)) else [index]
    if not any(g.is_live(p) for p in parts):
        made = _simple_getitem(g, y, x, index)
        return _taken(g, x, _numbered(x)[index].numpy()) if made is None else made
    if any(isinstance(p, Tensor) and (not _integer(p.dtype) or not p.dim() and len(parts) > 1) for p in parts):
        return None
    tensors = [k for k, p in enumerate(parts) if isinstance(p, Tensor)]
    if len(tensors) == 1 and all(p == slice(None) for k, p in enumerate(parts) if k not in tensors):
        return g.node("Gather", [g.name(x), g.name(parts[tensors[0]])], axis=tensors[0])
    if tensors == list(range(len(parts))):
        shape = np.broadcast_shapes(*(tuple(p.shape) for p in parts))
        columns = [g.node("Unsqueeze", [g.node("Expand", [g.cast(p, pf.int64), g.ints(*shape)]), g.ints(-1)]) for p in parts]
        return g.node("GatherND", [g.name(x), g.node("Concat", columns, axis=-1)])
    return None


@rule("_index")
def _index(g, y, x, indices):
    return getitem(g, y, x, tuple(slice(None) if p is None else p for p in indices))


def _written(g, x, index, value, accumulate):
    if isinstance(index, Tensor) and index.dtype == pf.bool and tuple(index.shape) == tuple(x.shape) and not accumulate and (not isinstance(value, Tensor) or value.numel() == 1):
        return g.node("Where", [g.name(index), g.cast(value, x.dtype), g.name(x)])
    if g.is_live(index):
        return None
    places = _numbered(x)[index].numpy()
    source = g.node("Reshape", [g.node("Expand", [g.cast(value, x.dtype), g.ints(*places.shape)]), g.ints(-1)])
    flat = g.node("ScatterElements", [g.node("Reshape", [g.name(x), g.ints(-1)]), g.constant(places.reshape(-1)), source], reduction="add" if accumulate else None)
    return g.node("Reshape", [flat, g.ints(*x.shape)])


@rule("copy_")
def copy(g, y, x, source, *args):
    return g.node("Expand", [g.cast(source, x.dtype), g.ints(*x.shape)])


@rule("setitem")
def setitem(g, y, x, index, value):
    return _written(g, x, index, value, False)


@rule("_index_put")
def _index_put(g, y, x, indices, value, accumulate, in_place):
    index = indices[0] if len(indices) == 1 else tuple(slice(None) if p is None else p for p in indices)
    return _written(g, x, index, value, accumulate)


_COMBINE = (None, "add", "mul", "max", "min")


def _scattered(g, x, dim, index, source, how):
    if how > 2 and g.opset < 18:
        return None
    if not isinstance(source, Tensor):
        source = g.constant(np.full(tuple(index.shape), source, x.dtype.name))
    elif tuple(source.shape) == tuple(index.shape):
        source = g.cast(source, x.dtype)
    else:
        n = index.dim()
        source = g.node("Slice", [g.cast(source, x.dtype), g.ints(*[0] * n), g.ints(*index.shape), g.ints(*range(n))])
    return g.node("ScatterElements", [g.name(x), g.name(index), source], axis=dim, reduction=_COMBINE[how])


rule("_scatter")(lambda g, y, x, dim, index, source, how, in_place: _scattered(g, x, dim, index, source, how))
rule("scatter_add")(lambda g, y, x, dim, index, src: _scattered(g, x, dim, index, src, 1))


def _slices_put(g, x, dim, index, source, how):
    """Whole slices along a dim."""
    if how > 2 and g.opset < 18 or not x.dim():
        return None
    dim = dim % x.dim()
    shape = [index.numel() if d == dim else n for d, n in enumerate(x.shape)]
    wide = g.node("Expand", [g.node("Reshape", [g.name(index), g.ints(*[-1 if d == dim else 1 for d in range(x.dim())])]), g.ints(*shape)])
    return g.node("ScatterElements", [g.name(x), wide, g.node("Expand", [g.cast(source, x.dtype), g.ints(*shape)])], axis=dim, reduction=_COMBINE[how])


rule("_put_slices")(lambda g, y, x, dim, index, source, how, in_place: _slices_put(g, x, dim, index, source, how))
rule("index_add")(lambda g, y, x, dim, index, source, alpha=None: _slices_put(g, x, dim, index, source, 1) if alpha in (None, 1) else None)


@rule("one_hot")
def one_hot(g, y, x, num_classes=-1):
    if num_classes == -1:  # the values decide the size
        return None
    return g.node("OneHot", [g.name(x), g.ints(y.shape[-1]), g.ints(0, 1)])


# ---- layers


rule("dot")(lambda g, y, a, b: g.node("MatMul", [g.name(a), g.name(b)]))


def _with_batch(name, dims):
    """The rule, also for an input without a batch."""
    of_batch = RULES[name]

    def run(g, y, x, *args, **kwargs):
        if x.dim() != dims + 1:
            return of_batch(g, y, x, *args, **kwargs)
        one = x.unsqueeze(0)
        g.note("unsqueeze", [one], g.node("Unsqueeze", [g.name(x), g.ints(0)]), one)
        made = of_batch(g, y, one, *args, **kwargs)
        return made and g.node("Squeeze", [made, g.ints(0)])

    rule(name)(run)


@rule("max_pool2d")
def max_pool2d(g, y, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    kernel = _many(kernel_size, 2)
    pooled, places = g.node("MaxPool", [g.name(x)], 2, kernel_shape=kernel, strides=_many(kernel if stride in (None, ()) else stride, 2), pads=_many(padding, 2) * 2,
                            dilations=_many(dilation, 2), ceil_mode=int(ceil_mode))
    if not return_indices:
        return pooled
    return [pooled, g.node("Mod", [places, g.ints(x.shape[-1] * x.shape[-2])])]  # within each plane


for _name, _count in {"conv1d": 1, "conv2d": 2, "conv3d": 3, "conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3, "avg_pool2d": 2}.items():
    _with_batch(_name, _count)


def _along(g, name, x, dim, matrix):
    """A matrix [n, m] applied along a dim of size n."""
    dim, last = dim % x.dim(), x.dim() - 1
    perm = list(range(x.dim()))
    perm[dim], perm[last] = last, dim
    turned = name if dim == last else g.node("Transpose", [name], perm=perm)
    product = g.node("MatMul", [turned, g.constant(matrix.astype(x.dtype.name))])
    return product if dim == last else g.node("Transpose", [product], perm=perm)


@rule("_resample")
def _resample(g, y, x, dim, size, *args):
    n = x.shape[dim]
    return _along(g, g.name(x), x, dim, values.to_array(_C._resample(pf.eye(n, dtype=pf.float64), 1, size, *args))) if x.is_floating_point() else None


@rule("_grid_sample")
def _grid_sample(g, y, x, grid, mode, padding_mode, align_corners):
    """Volumes since opset 20, where two modes have other names."""
    if x.dim() != 4 and (g.opset < 20 or mode == "bicubic"):
        return None
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode) if g.opset >= 20 else mode
    return g.node("GridSample", [g.name(x), g.name(grid)], mode=mode, padding_mode=padding_mode, align_corners=int(align_corners))


@rule("_embedding_bag")
def _embedding_bag(g, y, index, weight, starts):
    """The sums of the rows of bags: of equal ones by a sum, of others by a matrix that says which row is in which bag."""
    rows, bags, n = g.node("Gather", [g.name(weight), g.name(index)]), starts.shape[0], index.shape[0]
    if not g.is_live(starts) and bags and n % bags == 0 and starts.tolist() == list(range(0, n, n // bags or 1)):
        return g.node("ReduceSum", [g.node("Reshape", [rows, g.ints(bags, n // bags, weight.shape[1])]), g.ints(1)], keepdims=0)
    first = g.cast(starts, pf.int64)
    ends = g.node("Concat", [g.node("Slice", [first, g.ints(1), g.ints(bags), g.ints(0)]), g.ints(n)], axis=0)
    columns, place = [g.node("Unsqueeze", [name, g.ints(1)]) for name in (first, ends)], g.constant(np.arange(n, dtype=np.int64))
    within = g.node("And", [g.node("GreaterOrEqual", [place, columns[0]]), g.node("Less", [place, columns[1]])])
    return g.node("MatMul", [g.node("Cast", [within], to=values.number_of(y.dtype)), rows])


_even_adaptive_pool = RULES["adaptive_avg_pool2d"]


@rule("adaptive_avg_pool2d")
def adaptive_avg_pool2d(g, y, x, output_size):
    made = _even_adaptive_pool(g, y, x, output_size)
    if made is not None:
        return made
    name = g.name(x)
    for dim in (-1, -2):
        n = x.shape[dim]
        means = _C.adaptive_avg_pool2d(pf.eye(n, dtype=pf.float64).reshape(1, n, 1, n), (1, y.shape[dim])).reshape(n, y.shape[dim])
        name = _along(g, name, x, dim, values.to_array(means))
    return name


_trained_batch_norm = RULES["batch_norm"]


@rule("batch_norm")
def batch_norm(g, y, x, mean=None, var=None, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Of the batch itself where there are no running statistics."""
    if not training or mean is not None:
        return _trained_batch_norm(g, y, x, mean, var, weight, bias, training, momentum, eps)
    dims = [d for d in range(x.dim()) if d != 1]
    d = g.node("Sub", [g.name(x), _reduce(g, "ReduceMean", g.name(x), x, dims, True)])
    variance = _reduce(g, "ReduceMean", g.node("Mul", [d, d]), x, dims, True)
    name = g.node("Div", [d, g.node("Sqrt", [g.node("Add", [variance, g.cast(eps, x.dtype)])])])
    for op, value in (("Mul", weight), ("Add", bias)):
        name = name if value is None else g.node(op, [name, g.node("Reshape", [g.name(value), g.ints(-1, *[1] * (x.dim() - 2))])])
    return name


@rule("_lstm_step")
def _lstm_step(g, y, x, h, c, weight):
    gates = g.node("Add", [g.node("MatMul", [g.name(h), g.name(weight)]), g.name(x)])
    n = c.shape[-1]
    i, f, new, o = g.node("Split", [gates, g.ints(n, n, n, n)], 4, axis=-1)
    sigmoid = lambda name: g.node("Sigmoid", [name])  # noqa: E731
    state = g.node("Add", [g.node("Mul", [sigmoid(f), g.name(c)]), g.node("Mul", [sigmoid(i), g.node("Tanh", [new])])])
    return [g.node("Mul", [sigmoid(o), g.node("Tanh", [state])]), state, gates][:len(y)]


@rule("_gru_step")
def _gru_step(g, y, x, h, weight, bias=None):
    own, n = g.node("MatMul", [g.name(h), g.name(weight)]), h.shape[-1]
    own = own if bias is None else g.node("Add", [own, g.name(bias)])
    (xr, xz, xn), (hr, hz, hn) = (g.node("Split", [name, g.ints(n, n, n)], 3, axis=-1) for name in (g.name(x), own))
    r, z = (g.node("Sigmoid", [g.node("Add", [a, b])]) for a, b in ((xr, hr), (xz, hz)))
    new = g.node("Tanh", [g.node("Add", [xn, g.node("Mul", [r, hn])])])
    return [g.node("Add", [new, g.node("Mul", [z, g.node("Sub", [g.name(h), new])])]), own][:len(y)]


# ---- losses


def _reduced(g, name, x, reduction):
    return name if reduction == "none" else _reduce(g, {"mean": "ReduceMean", "sum": "ReduceSum"}[reduction], name, x, None, False)


@rule("mse_loss")
def mse_loss(g, y, x, target, reduction="mean"):
    d = g.node("Sub", [g.cast(x, y.dtype), g.cast(target, y.dtype)])
    return _reduced(g, g.node("Mul", [d, d]), x, reduction)


@rule("l1_loss")
def l1_loss(g, y, x, target, reduction="mean"):
    return _reduced(g, g.node("Abs", [g.node("Sub", [g.cast(x, y.dtype), g.cast(target, y.dtype)])]), x, reduction) if x.shape == target.shape else None


@rule("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(g, y, x, target, weight=None, reduction="mean", pos_weight=None):
    if weight is not None or pos_weight is not None:
        return None
    return _reduced(g, g.node("Sub", [g.node("Softplus", [g.name(x)]), g.node("Mul", [g.name(x), g.cast(target, x.dtype)])]), x, reduction)


def _of_classes(op):
    def run(g, y, x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
        if label_smoothing or target.is_floating_point() or x.dim() < 2:
            return None
        return g.node(op, [g.name(x), g.cast(target, pf.int64)] + ([] if weight is None else [g.name(weight)]), ignore_index=ignore_index, reduction=reduction)

    return run


rule("cross_entropy")(_of_classes("SoftmaxCrossEntropyLoss"))
rule("nll_loss")(_of_classes("NegativeLogLikelihoodLoss"))
