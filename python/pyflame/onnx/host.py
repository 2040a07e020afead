"""Operators with NumPy, for values on the host: shapes and what is computed from them."""
import numpy as np

from .table import on_host
from .values import numpy_dtype


def _same(function):
    return lambda node: function


for _names, _function in {
        ("Add",): np.add, ("Sub",): np.subtract, ("Mul",): np.multiply, ("Neg",): np.negative, ("Abs",): np.abs, ("Floor",): np.floor, ("Ceil",): np.ceil,
        ("Sqrt",): np.sqrt, ("Exp",): np.exp, ("Log",): np.log, ("Sign",): np.sign, ("Round",): np.rint, ("Reciprocal",): np.reciprocal,
        ("Not",): np.logical_not, ("And",): np.logical_and, ("Or",): np.logical_or, ("Xor",): np.logical_xor, ("Less",): np.less,
        ("LessOrEqual",): np.less_equal, ("Greater",): np.greater, ("GreaterOrEqual",): np.greater_equal, ("Equal",): np.equal,
        ("Where",): np.where, ("Identity",): lambda x: x, ("Size",): lambda x: np.asarray(np.size(x), np.int64),
        ("Range",): lambda *bounds: np.arange(*(np.asarray(b).reshape(-1)[0] for b in bounds), dtype=np.asarray(bounds[0]).dtype),
        ("Expand",): lambda x, shape: x * np.ones(shape, x.dtype) if x.dtype != bool else np.logical_and(x, np.ones(shape, bool)),
        ("Tile",): lambda x, repeats: np.tile(x, repeats), ("NonZero",): lambda x: np.array(np.nonzero(np.atleast_1d(x)), np.int64)}.items():
    on_host(*_names)(_same(_function))


@on_host("Div")
def div(node):
    def run(a, b):
        if np.asarray(a).dtype.kind in "iu":
            quotient = np.abs(a) // np.abs(b)
            return np.where((np.asarray(a) < 0) != (np.asarray(b) < 0), -quotient, quotient).astype(np.asarray(a).dtype)
        return a / b

    return run


@on_host("Mod")
def mod(node):
    return np.fmod if node.attr("fmod", 0) else np.mod


@on_host("Pow")
def power(node):
    return lambda a, b: np.power(a, b).astype(np.asarray(a).dtype)


@on_host("Min", "Max")
def extreme(node):
    import functools

    function = np.minimum if node.op == "Min" else np.maximum
    return lambda *xs: functools.reduce(function, xs)


@on_host("Cast")
def cast(node):
    dtype = numpy_dtype(node.attr("to"))
    return lambda x: np.asarray(x).astype(dtype)


@on_host("Shape")
def shape(node):
    start, end = node.attr("start", 0), node.attr("end")
    return lambda x: np.array(np.shape(x)[start:end], np.int64)


@on_host("Gather")
def gather(node):
    axis = node.attr("axis", 0)
    return lambda x, indices: np.take(x, indices, axis=axis)


@on_host("Concat")
def concat(node):
    axis = node.attr("axis", 0)
    return lambda *xs: np.concatenate(xs, axis)


def slices(rank, starts, ends, axes, steps):
    """The slices of the Slice operator for each dim."""
    result = [slice(None)] * rank
    axes = range(len(starts)) if axes is None else axes
    for k, axis in enumerate(axes):
        step = 1 if steps is None else int(steps[k])
        end = int(ends[k])
        if step < 0 and (end < -(1 << 31) or end == -(1 << 31)):
            end = None
        result[int(axis)] = slice(int(starts[k]), end, step)
    return tuple(result)


def clipped(rule, size):
    """A slice as range() takes it, with ONNX's rules for bounds."""
    step = 1 if rule.step is None else rule.step
    start, end = rule.start, rule.stop
    if start is None:
        return slice(None).indices(size)
    start = start + size if start < 0 else start
    start = min(max(start, 0), size if step > 0 else size - 1)
    if end is None:
        end = -1
    else:
        end = end + size if end < 0 else end
        end = min(max(end, 0 if step > 0 else -1), size)
    return start, end, step


@on_host("Slice", since=10)
def slice_(node):
    def run(x, starts, ends, axes=None, steps=None):
        rules = slices(np.ndim(x), starts, ends, axes, steps)
        for axis, rule in enumerate(rules):
            if rule.start is not None:
                x = np.take(x, np.arange(*clipped(rule, x.shape[axis])), axis=axis)
        return x

    return run


@on_host("Slice")
def slice_1(node):
    run = slice_(node)
    starts, ends, axes = node.attr("starts"), node.attr("ends"), node.attr("axes")
    return lambda x: run(x, starts, ends, axes)


@on_host("Unsqueeze")
def unsqueeze(node):
    axes = node.attr("axes")

    def run(x, given=None):
        wanted = [int(a) for a in np.atleast_1d(axes if given is None else given)]
        return np.expand_dims(x, tuple(wanted))

    return run


@on_host("Squeeze")
def squeeze(node):
    axes = node.attr("axes")

    def run(x, given=None):
        wanted = axes if given is None else given
        return np.squeeze(x, None if wanted is None else tuple(int(a) for a in np.atleast_1d(wanted)))

    return run


@on_host("Reshape")
def reshape(node):
    keep = node.attr("allowzero", 0)

    def run(x, shape):
        return np.reshape(x, [np.shape(x)[k] if n == 0 and not keep else int(n) for k, n in enumerate(shape)])

    return run


@on_host("Flatten")
def flatten(node):
    axis = node.attr("axis", 1)
    return lambda x: np.reshape(x, (int(np.prod(np.shape(x)[:axis])), -1))


@on_host("Transpose")
def transpose(node):
    perm = node.attr("perm")
    return lambda x: np.transpose(x, perm)


@on_host("ConstantOfShape")
def constant_of_shape(node):
    value = node.attr("value")
    value = np.zeros(1, np.float32) if value is None else value
    return lambda shape: np.full([int(n) for n in shape], value.reshape(-1)[0], value.dtype)


@on_host("Split")
def split(node):
    axis, parts, count = node.attr("axis", 0), node.attr("split"), len(node.outputs)

    def run(x, sizes=None):
        sizes = parts if sizes is None else sizes
        if sizes is None:
            each = -(-x.shape[axis] // count)
            sizes = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
        return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))

    return run


@on_host("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")
def reduce(node):
    function = {"ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min}[node.op]
    keep, fixed, no_op = bool(node.attr("keepdims", 1)), node.attr("axes"), node.attr("noop_with_empty_axes", 0)

    def run(x, axes=None):
        wanted = fixed if axes is None else [int(a) for a in axes]
        if not wanted and no_op:
            return x
        return np.asarray(function(x, axis=tuple(wanted) if wanted else None, keepdims=keep)).astype(np.asarray(x).dtype)

    return run


@on_host("CumSum")
def cumsum(node):
    if node.attr("exclusive", 0) or node.attr("reverse", 0):
        return None
    return lambda x, axis: np.cumsum(x, int(axis), dtype=x.dtype)


@on_host("ScatterND")
def scatter_nd(node):
    if node.attr("reduction", "none") != "none":
        return None

    def run(x, indices, updates):
        x = np.array(x)
        x[tuple(np.moveaxis(np.asarray(indices), -1, 0))] = updates
        return x

    return run


@on_host("Trilu")
def trilu(node):
    function = np.triu if node.attr("upper", 1) else np.tril
    return lambda x, k=0: function(x, int(k))


@on_host("Clip", since=11)
def clip(node):
    def run(x, low=None, high=None):
        x = x if low is None else np.maximum(x, low)
        return x if high is None else np.minimum(x, high)

    return run


@on_host("EyeLike")
def eye_like(node):
    k, to = node.attr("k", 0), node.attr("dtype")
    return lambda x: np.eye(*x.shape, k=k, dtype=x.dtype if to is None else numpy_dtype(to))
