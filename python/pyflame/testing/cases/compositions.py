"""Functions of the package that Python composes of ops: of elements, products, views and their copies. They name no op: what they are composed of
may change, and each op has cases of its own."""

import collections
import math

import numpy as np

from . import Case, Spec, any_of, away_from_zero, distinct, integers, label, literal, normal, positive, smooth
from .elementwise import inside

F, H, B, D = ("float32",), ("float32", "float16"), ("float32", "bfloat16"), ("float32", "float64")
X = ("float32", "int64")  # what moves elements takes all dtypes alike
W = (3, 67)  # an odd number of elements beyond those of three waves
At = collections.namedtuple("At", "shape values")  # a shape with other values than normal ones
HOLES = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.5, -2.5, 1e-6, 6e4])
PAIRS = tuple(m.ravel() for m in np.meshgrid(HOLES, HOLES))


def absolutes(reference):
    return lambda *x: reference(*(np.abs(a) if a.dtype.kind == "f" else a for a in x))


def largest(*x):
    """Errors are relative to the largest of all inputs."""
    return np.asarray(1.0 + max((np.abs(a[np.isfinite(a)]).max(initial=0.0) for a in map(np.asarray, x)), default=0.0))


def largest_products(*x):
    return np.asarray(largest(*x) ** len(x))


def made(name, inputs, reference, call=None, dtypes=F, tag="", c=0.0, grad=None, function=None, **kw):
    """The cases of one function, one for each dtype. inputs: shapes, At(shape, values), and Spec for an input with a dtype of its own. call: the
    function itself unless given. grad: every input of these dtypes where they are floats, unless given."""
    for dtype in dtypes:
        specs = tuple(s if isinstance(s, Spec) else Spec(s.shape, dtype, s.values) if isinstance(s, At) else Spec(s, dtype) for s in inputs)
        with_gradient = tuple(i for i, s in enumerate(inputs) if not isinstance(s, Spec)) if "float" in dtype else ()
        yield Case(f"{name}-{tag + '-' if tag else ''}{dtype}", (function or name,), (), specs, call or (lambda pf, *x: getattr(pf, name)(*x)), reference,
                   grad=with_gradient if grad is None or not with_gradient else grad, c=c, composed=c > 0, **kw)  # fmt: skip


def literals(*arrays):
    return tuple(At(np.shape(a), literal(a)) for a in arrays)


# ---------------------------------------------------------------- of elements
def _lgamma_sum(x):
    return sum(np.vectorize(math.lgamma, otypes=[np.float64])(x - k / 2) for k in range(3)) + 1.5 * math.log(math.pi)


def _xlogy(x, y):
    with np.errstate(all="ignore"):
        return np.where(np.isnan(y), y, np.where(x == 0, 0.0, x * np.log(y)))


def _renormed(x, norm, most):
    """As PyTorch has it, with a small number in the divisor."""
    return np.where(norm > most, x * (most / (norm + 1e-7)), x)


def _heaviside(x, at_zero):
    """As PyTorch has it: 0 of NaN."""
    return np.where(np.isnan(x), 0.0, np.heaviside(x, at_zero))


def _in_float64(f):
    """NumPy would make an overflow of float32 infinite in its own dtype."""
    return lambda *x: f(*(np.asarray(a, np.float64) for a in x))


def _of_one():
    for name, f, values in (("absolute", np.abs, away_from_zero), ("negative", np.negative, None), ("positive", np.positive, None), ("frac", lambda x: x - np.trunc(x), smooth),
                            ("fix", np.trunc, smooth), ("conj_physical", np.positive, None), ("resolve_conj", np.positive, None), ("resolve_neg", np.positive, None)):
        yield from made(name, (At(W, values),), f, dtypes=B if name in ("frac", "fix", "negative") else F)
    for name, f in (("absolute", np.abs), ("negative", np.negative), ("positive", np.positive), ("fix", np.positive)):
        yield from made(name, (W,), f, dtypes=("int64",))
    for name, f in (("signbit", np.signbit), ("isfinite", np.isfinite), ("isposinf", np.isposinf), ("isneginf", np.isneginf), ("isreal", np.isreal)):
        yield from made(name, literals(HOLES), f, dtypes=H, grad=(), out="bool", tag="special")
        yield from made(name, (W,), f, dtypes=("int64",), out="bool")
    yield from made("sgn", (W,), np.sign, dtypes=X, grad=(), tag="real")
    yield from made("round", (At(W, smooth),), lambda x: np.round(x, 1), lambda pf, x: pf.round(x, decimals=1), tag="decimals", grad=(), c=2)
    yield from made("fix", literals(HOLES), np.trunc, tag="special", grad=())
    yield from made("deg2rad", (W,), np.deg2rad, dtypes=D, c=2)
    yield from made("rad2deg", (W,), np.rad2deg, dtypes=H, c=2)
    yield from made("deg2rad", (Spec(W, "int64"),), lambda x: np.deg2rad(x.astype(np.float64)), tag="int64", c=2, out="float32")
    yield from made("sinc", (W,), np.sinc, dtypes=D, c=8, magnitude=np.ones_like)
    yield from made("sinc", literals([0.0, -0.0, 1.0, -2.0, 0.5, 1e-30, np.nan]), np.sinc, dtypes=H, tag="special", c=8, grad=(), magnitude=np.ones_like)
    yield from made("logit", (At(W, lambda rng, shape: rng.uniform(0.05, 0.95, shape)),), lambda x: np.log(x / (1 - x)), dtypes=D, c=8, magnitude=lambda x: 1 + np.abs(np.log(x / (1 - x))))
    yield from made("logit", (At(W, lambda rng, shape: rng.uniform(0.2, 0.8, shape)),), lambda x: np.log(np.clip(x, 0.3, 0.7) / (1 - np.clip(x, 0.3, 0.7))), lambda pf, x: pf.logit(x, 0.3), tag="eps",
                    c=8, magnitude=lambda x: 1 + np.abs(x))
    yield from made("mvlgamma", (At(W, lambda rng, shape: 1.5 + positive(rng, shape)),), _lgamma_sum, lambda pf, x: pf.mvlgamma(x, 3), dtypes=D, c=16, magnitude=lambda x: 4 + x * np.log(x + 1) * 3)
    yield from made("nan_to_num", literals(HOLES), lambda x: np.nan_to_num(x, nan=7, posinf=8, neginf=-9), lambda pf, x: pf.nan_to_num(x, 7.0, 8.0, -9.0), dtypes=H, tag="numbers")
    yield from made("nan_to_num", literals(HOLES), np.nan_to_num, dtypes=("float64",), tag="special")
    yield from made("nan_to_num", literals(HOLES), lambda x: np.nan_to_num(x.astype(np.float32)), tag="special", grad=())
    yield from made("nan_to_num", (W,), np.nan_to_num, dtypes=X)
    for name, f in (("clamp_min", np.maximum), ("clamp_max", np.minimum)):
        yield from made(name, (W,), lambda x, f=f: f(x, 0.5), lambda pf, x, n=name: getattr(pf, n)(x, 0.5), dtypes=B, tag="number")
        yield from made(name, (W, (67,)), f, dtypes=X)
    yield from made("clip", (W,), lambda x: np.clip(x, -0.5, 1), lambda pf, x: pf.clip(x, -0.5, 1.0))
    yield from made("clip", (W, (67,)), np.minimum, lambda pf, x, high: pf.clip(x, max=high), dtypes=("int64",), tag="max")
    yield from made("fill", (W,), lambda x: np.full(x.shape, 2.5), lambda pf, x: pf.fill(x, 2.5))
    yield from made("float_power", (At(W, positive),), lambda x: x.astype(np.float64) ** 2.5, lambda pf, x: pf.float_power(x, 2.5), dtypes=D, c=8, out="float64", magnitude=lambda x: x**2.5 * (1 + 2.5 * np.abs(np.log(x))))
    yield from made("float_power", (Spec(W, "int64", integers(1, 5)), Spec(W, "int64", integers(-2, 3))), np.float_power, tag="int64", c=4, out="float64")
    yield from made("renorm", (W,), lambda x: _renormed(x, np.sqrt((x * x).sum(0)), 2), lambda pf, x: pf.renorm(x, 2.0, 1, 2.0), dtypes=D, c=8)
    yield from made("renorm", ((4, 3, 5),), lambda x: _renormed(x, np.abs(x).sum((1, 2), keepdims=True), 3), lambda pf, x: pf.renorm(x, 1.0, 0, 3.0), tag="1-norm", c=8)


def _of_two():
    pairs = literals(*PAIRS)
    for name, f in (("multiply", np.multiply), ("subtract", np.subtract), ("divide", np.divide), ("true_divide", np.divide), ("fmax", np.fmax), ("fmin", np.fmin), ("fmod", np.fmod)):
        right = away_from_zero if name in ("divide", "true_divide", "fmod") else None
        yield from made(name, (At(W, smooth), At((67,), right)), f, dtypes=B if name in ("fmax", "fmod", "divide") else F, tag="broadcast")
        if name != "subtract":
            yield from made(name, pairs, _in_float64(f), tag="special", grad=())
    for name, f in (("multiply", np.multiply), ("subtract", np.subtract), ("fmax", np.fmax), ("fmin", np.fmin), ("fmod", np.fmod)):
        yield from made(name, (W, At(W, integers(1, 9))), f, dtypes=("int64", "int16") if name == "fmod" else ("int64",))
    yield from made("copysign", (At(W, away_from_zero), At((67,), away_from_zero)), np.copysign, dtypes=H)
    yield from made("copysign", pairs, np.copysign, tag="special", grad=())
    yield from made("heaviside", (At(W, any_of((-1.5, 0.0, 2.0))), W), _heaviside, dtypes=D, grad=())
    yield from made("heaviside", pairs, _heaviside, tag="special", grad=())
    for mode, f in (("trunc", lambda a, b: np.trunc(a / b)), ("floor", np.floor_divide)):
        yield from made("div", (At(W, smooth), At((67,), away_from_zero)), f, lambda pf, a, b, m=mode: pf.div(a, b, rounding_mode=m), tag=mode, grad=())
        yield from made("div", (W, At((67,), any_of((-4, 3, 7)))), lambda a, b, f=f: f(a, b).astype(np.int64), lambda pf, a, b, m=mode: pf.div(a, b, rounding_mode=m), dtypes=("int64",), tag=mode)
    yield from made("hypot", (At(W, away_from_zero), At((67,), away_from_zero)), np.hypot, dtypes=H, c=4)
    yield from made("hypot", (At(W, lambda rng, shape: 1e25 * normal(rng, shape)),) * 2, _in_float64(np.hypot), tag="large", c=4, grad=())
    yield from made("hypot", pairs, _in_float64(np.hypot), tag="special", c=4, grad=())
    yield from made("ldexp", (W, Spec((67,), "int64", integers(-5, 6))), lambda x, n: x * 2.0**n, dtypes=H, c=2)
    for name, f in (("logaddexp", np.logaddexp), ("logaddexp2", np.logaddexp2)):
        yield from made(name, (W, (67,)), f, dtypes=D, c=6, magnitude=lambda a, b: 1 + np.maximum(np.abs(a), np.abs(b)))
        yield from made(name, pairs, _in_float64(f), tag="special", c=6, grad=(), magnitude=lambda a, b: 1 + np.maximum(np.abs(a), np.abs(b)))
    yield from made("xlogy", (W, At((67,), positive)), _xlogy, dtypes=D, c=4)
    yield from made("xlogy", literals([0, 0, 0, 0, 2, np.nan, 0, -1], [0, np.inf, -1, np.nan, 3, 1, 2, 0]), _xlogy, tag="special", c=4, grad=())
    yield from made("rsub", (W, (67,)), lambda a, b: b - 2 * a, lambda pf, a, b: pf.rsub(a, b, alpha=2), dtypes=("float32", "bfloat16", "int64"), c=2, magnitude=lambda a, b: 2 * np.abs(a) + np.abs(b))
    sums = lambda *x: sum(np.abs(a) for a in x)  # noqa: E731
    yield from made("lerp", (W, (67,)), lambda a, b: a + 0.25 * (b - a), lambda pf, a, b: pf.lerp(a, b, 0.25), dtypes=B, tag="number", c=3, magnitude=sums)
    yield from made("lerp", (W, W, At((67,), lambda rng, shape: rng.random(shape))), lambda a, b, w: a + w * (b - a), dtypes=D, c=3, magnitude=lambda a, b, w: (1 + np.abs(w)) * sums(a, b))
    yield from made("addcmul", (W, W, (67,)), lambda a, b, d: a + 0.5 * b * d, lambda pf, a, b, d: pf.addcmul(a, b, d, value=0.5), dtypes=H, c=3, magnitude=lambda a, b, d: np.abs(a) + np.abs(b * d))
    yield from made("addcmul", (W, W, At((67,), integers(-5, 6))), lambda a, b, d: a + 3 * b * d, lambda pf, a, b, d: pf.addcmul(a, b, d, value=3), dtypes=("int64",))
    yield from made("addcdiv", (W, W, At((67,), away_from_zero)), lambda a, b, d: a - 2 * b / d, lambda pf, a, b, d: pf.addcdiv(a, b, d, value=-2), dtypes=D, c=3, magnitude=lambda a, b, d: np.abs(a) + 2 * np.abs(b / d))
    near = (At(W, integers(1, 4)), At((67,), any_of((1.0, 1.0 + 2.0**-19, 2.0, 2.5, 3.0 - 2.0**-18))))
    yield from made("isclose", near, np.isclose, dtypes=D, grad=(), out="bool")
    yield from made("isclose", pairs, lambda a, b: np.isclose(a, b, equal_nan=True), lambda pf, a, b: pf.isclose(a, b, equal_nan=True), tag="special", grad=(), out="bool")
    yield from made("polar", (At(W, positive), W), lambda r, t: np.stack([r * np.cos(t), r * np.sin(t)], -1), lambda pf, r, t: pf.view_as_real(pf.polar(r, t)), dtypes=D, c=4, magnitude=lambda r, t: np.stack([np.abs(r)] * 2, -1) + 0 * t[..., None])


# ---------------------------------------------------------------- products
def _product(name, inputs, reference, call=None, **kw):
    terms = max([1, *(n for s in inputs for n in s)])
    kw.setdefault("magnitude", absolutes(reference))
    return made(name, inputs, reference, call, c=4, length=terms, fused_exact=False, **kw)


def _products():
    m, k, n = 5, 7, 4
    yield from _product("mv", ((m, k), (k,)), np.matmul, dtypes=H)
    yield from _product("dot", ((67,), (67,)), lambda a, b: np.asarray(a @ b), dtypes=B)
    yield from _product("vdot", ((67,), (67,)), lambda a, b: np.asarray(a @ b))
    yield from _product("mm", ((m, k), (k, n)), np.matmul, dtypes=D)
    yield from _product("mm", ((0, k), (k, n)), np.matmul, tag="empty")
    yield from _product("batch_matmul", ((2, m, k), (2, k, n)), np.matmul)
    yield from _product("inner", (W, (2, 67)), np.inner, dtypes=B)
    yield from _product("inner", ((67,), (67,)), lambda a, b: np.asarray(np.inner(a, b)), tag="vectors")
    yield from _product("outer", ((7,), (67,)), np.outer, dtypes=H)
    yield from _product("matrix_power", ((5, 5),), lambda x: x @ x @ x, lambda pf, x: pf.matrix_power(x, 3), tag="cube", dtypes=D)
    yield from _product("kron", ((3, 2), (4, 5)), np.kron, dtypes=D)
    yield from _product("kron", ((3,), (2, 5)), np.kron, tag="ranks")
    yield from _product("chain_matmul", ((m, k), (k, n), (n, 6)), lambda a, b, d: a @ b @ d, dtypes=D)
    yield from _product("tensordot", ((2, 3, 4), (3, 4, 5)), np.tensordot, lambda pf, a, b: pf.tensordot(a, b, 2))
    yield from _product("tensordot", ((2, 3, 4), (4, 5, 2)), lambda a, b: np.tensordot(a, b, ([0, 2], [2, 0])), lambda pf, a, b: pf.tensordot(a, b, ([0, 2], [2, 0])), dtypes=B, tag="dims")
    scaled = dict(beta=0.5, alpha=2.0)
    for name, shapes, f in (("addmm", ((m, n), (m, k), (k, n)), np.matmul), ("addmv", ((m,), (m, k), (k,)), np.matmul), ("addr", ((m, n), (m,), (n,)), np.outer), ("baddbmm", ((2, m, n), (2, m, k), (2, k, n)), np.matmul),
                            ("addbmm", ((m, n), (2, m, k), (2, k, n)), lambda a, b: (a @ b).sum(0))):
        yield from _product(name, shapes, lambda y, a, b, f=f: y + f(a, b), dtypes=B if name == "addmm" else F)
        yield from _product(name, ((1,), *shapes[1:]) if name != "addr" else shapes, lambda y, a, b, f=f: 0.5 * y + 2 * f(a, b), lambda pf, y, a, b, n=name: getattr(pf, n)(y, a, b, **scaled), dtypes=D if name == "baddbmm" else F, tag="scaled")
    bilinear = lambda x, y, w, b=0.0: np.einsum("ni,oij,nj->no", x, w, y) + b  # noqa: E731
    yield from _product("bilinear", ((5, 3), (5, 4), (2, 3, 4), (2,)), bilinear, dtypes=D)
    yield from _product("bilinear", ((5, 3), (5, 4), (2, 3, 4)), bilinear, tag="no-bias")
    yield from _product("cross", ((4, 3), (4, 3)), np.cross, lambda pf, a, b: pf.cross(a, b, dim=-1), dtypes=D, magnitude=largest_products)
    yield from _product("cross", ((3, 67), (3, 67)), lambda a, b: np.cross(a, b, axis=0), lambda pf, a, b: pf.cross(a, b, dim=0), tag="first", magnitude=largest_products)


# ---------------------------------------------------------------- views, and what arranges elements
def _tuples(f):
    return lambda *x: tuple(f(*x))


def _scattered(x, at, y):
    z = np.array(x)
    z[at] = y
    return z


def _diagonal_scattered(x, y):
    z = np.array(x)
    rows = np.arange(min(z.shape[0], z.shape[1] - 1))
    z[rows, rows + 1] = y
    return z


def _diag_embedded(x):
    """The last dim on the diagonal above the main one."""
    z = np.zeros((*x.shape[:-1], x.shape[-1] + 1, x.shape[-1] + 1), x.dtype)
    rows = np.arange(x.shape[-1])
    z[..., rows, rows + 1] = x
    return z


def _block_diag(*matrices):
    matrices = [np.atleast_2d(m) for m in matrices]
    z = np.zeros(np.sum([m.shape for m in matrices], axis=0), matrices[0].dtype)
    at = np.zeros(2, int)
    for m in matrices:
        z[at[0]:at[0] + m.shape[0], at[1]:at[1] + m.shape[1]] = m
        at += m.shape
    return z


def _windows(x):
    """Slices of 3 along the last dim, one for every 2 steps."""
    return np.lib.stride_tricks.sliding_window_view(x, 3, -1)[..., ::2, :].copy()


def _vander(x):
    return np.stack([x**2, x, np.ones_like(x)], -1)


# name: (shape, call, reference) of what takes one tensor and gives one
ONE = {
    "alias_copy": (W, lambda pf, x: pf.alias_copy(x), np.positive),
    "detach_copy": (W, lambda pf, x: pf.detach_copy(x), np.positive),
    "ravel": ((2, 3, 4), lambda pf, x: pf.ravel(x), np.ravel),
    "atleast_1d": ((), lambda pf, x: pf.atleast_1d(x), np.atleast_1d),
    "atleast_2d": ((67,), lambda pf, x: pf.atleast_2d(x), np.atleast_2d),
    "atleast_3d": (W, lambda pf, x: pf.atleast_3d(x), np.atleast_3d),
    "broadcast_to": ((3, 1), lambda pf, x: pf.broadcast_to(x, (2, 3, 5)), lambda x: np.broadcast_to(x, (2, 3, 5))),
    "constant_pad_nd": ((3, 5), lambda pf, x: pf.constant_pad_nd(x, (1, 2, -1, 3), 7), lambda x: np.pad(x[1:], ((0, 3), (1, 2)), constant_values=7)),
    "diag-vector": ((9,), lambda pf, x: pf.diag(x, -1), lambda x: np.diag(x, -1)),
    "diag-matrix": ((5, 7), lambda pf, x: pf.diag(x, 2), lambda x: np.diag(x, 2)),
    "diag_embed": (W, lambda pf, x: pf.diag_embed(x, 1), _diag_embedded),
    "diagflat": ((2, 3), lambda pf, x: pf.diagflat(x, 1), lambda x: np.diagflat(x, 1)),
    "diagonal": ((3, 4, 5), lambda pf, x: pf.diagonal(x, 1, 0, 2), lambda x: np.diagonal(x, 1, 0, 2)),
    "diagonal-below": (W, lambda pf, x: pf.diagonal(x, -1), lambda x: np.diagonal(x, -1)),
    "diagonal_copy": (W, lambda pf, x: pf.diagonal_copy(x, 5), lambda x: np.diagonal(x, 5)),
    "expand_copy": ((3, 1), lambda pf, x: pf.expand_copy(x, (2, -1, 5)), lambda x: np.broadcast_to(x, (2, x.shape[0], 5))),
    "flip": ((2, 3, 67), lambda pf, x: pf.flip(x, (0, 2)), lambda x: np.flip(x, (0, 2))),
    "fliplr": (W, lambda pf, x: pf.fliplr(x), np.fliplr),
    "flipud": (W, lambda pf, x: pf.flipud(x), np.flipud),
    "movedim": ((2, 3, 4), lambda pf, x: pf.movedim(x, (0, 1), (-1, 0)), lambda x: np.moveaxis(x, (0, 1), (-1, 0))),
    "moveaxis": ((2, 3, 4), lambda pf, x: pf.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    "narrow_copy": ((5, 9), lambda pf, x: pf.narrow_copy(x, 1, 2, 5), lambda x: x[:, 2:7]),
    "permute_copy": ((2, 3, 4), lambda pf, x: pf.permute_copy(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "repeat_interleave": (W, lambda pf, x: pf.repeat_interleave(x, 3, 1), lambda x: np.repeat(x, 3, 1)),
    "repeat_interleave-flat": ((3, 5), lambda pf, x: pf.repeat_interleave(x, 2), lambda x: np.repeat(x, 2)),
    "roll": (W, lambda pf, x: pf.roll(x, (1, -2), (0, 1)), lambda x: np.roll(x, (1, -2), (0, 1))),
    "roll-flat": (W, lambda pf, x: pf.roll(x, 70), lambda x: np.roll(x, 70)),
    "rot90": (W, lambda pf, x: pf.rot90(x), np.rot90),
    "rot90-twice": (W, lambda pf, x: pf.rot90(x, 2), lambda x: np.rot90(x, 2)),
    "rot90-thrice": ((2, 3, 4), lambda pf, x: pf.rot90(x, -1, (0, 2)), lambda x: np.rot90(x, -1, (0, 2))),
    "select_copy": ((5, 9), lambda pf, x: pf.select_copy(x, 0, -2), lambda x: x[-2]),
    "slice_copy": ((5, 9), lambda pf, x: pf.slice_copy(x, 1, 1, 8, 3), lambda x: x[:, 1:8:3]),
    "squeeze_copy": ((1, 3, 1), lambda pf, x: pf.squeeze_copy(x), np.squeeze),
    "swapaxes": ((2, 3, 4), lambda pf, x: pf.swapaxes(x, 0, 2), lambda x: np.swapaxes(x, 0, 2)),
    "swapdims": ((2, 3, 4), lambda pf, x: pf.swapdims(x, 1, -1), lambda x: np.swapaxes(x, 1, -1)),
    "t": (W, lambda pf, x: pf.t(x), np.transpose),
    "t_copy": (W, lambda pf, x: pf.t_copy(x), np.transpose),
    "tile": (W, lambda pf, x: pf.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    "transpose_copy": ((2, 3, 4), lambda pf, x: pf.transpose_copy(x, 0, -1), lambda x: np.swapaxes(x, 0, -1)),
    "unflatten": ((2, 12), lambda pf, x: pf.unflatten(x, 1, (3, -1)), lambda x: x.reshape(x.shape[0], 3, x.shape[1] // 3)),
    "unfold_copy": ((4, 9), lambda pf, x: pf.unfold_copy(x, 1, 3, 2), _windows),
    "unsqueeze_copy": (W, lambda pf, x: pf.unsqueeze_copy(x, 1), lambda x: x[:, None]),
    "view_copy": ((4, 6), lambda pf, x: pf.view_copy(x, (2, -1, 3)), lambda x: x.reshape(2, -1, 3)),
    "as_strided_copy": ((40,), lambda pf, x: pf.as_strided_copy(x, (3, 4), (7, 2), 5), lambda x: x[5 + 7 * np.arange(3)[:, None] + 2 * np.arange(4)]),
    "view_as_real_copy": ((5, 2), lambda pf, x: pf.view_as_real_copy(pf.view_as_complex(x)), np.positive),
    "view_as_complex_copy": ((5, 2), lambda pf, x: pf.view_as_real(pf.view_as_complex_copy(x)), np.positive),
}
# The same of what gives several.
PARTS = {
    "dsplit": ((2, 3, 4), lambda pf, x: pf.dsplit(x, 2), lambda x: np.dsplit(x, 2)),
    "hsplit": ((3, 6), lambda pf, x: pf.hsplit(x, (1, 3)), lambda x: np.hsplit(x, (1, 3))),
    "vsplit": ((4, 5), lambda pf, x: pf.vsplit(x, 2), lambda x: np.vsplit(x, 2)),
    "tensor_split": (W, lambda pf, x: pf.tensor_split(x, 5, 1), lambda x: np.array_split(x, 5, 1)),
    "tensor_split-places": ((7, 3), lambda pf, x: pf.tensor_split(x, (1, 4)), lambda x: np.split(x, (1, 4))),
    "split_copy": ((7, 3), lambda pf, x: pf.split_copy(x, 3), lambda x: [x[i:i + 3] for i in range(0, max(len(x), 1), 3)]),
    "split_with_sizes": ((7, 3), lambda pf, x: pf.split_with_sizes(x, [1, 2, 4]), lambda x: [x[:1], x[1:3], x[3:]]),
    "split_with_sizes_copy": ((3, 7), lambda pf, x: pf.split_with_sizes_copy(x, [3, 4], 1), lambda x: [x[:, :3], x[:, 3:]]),
    "unsafe_chunk": ((7, 3), lambda pf, x: pf.unsafe_chunk(x, 3), lambda x: [x[i:i + -(-len(x) // 3)] for i in range(0, len(x), -(-len(x) // 3))] or [x] * 3),
    "unsafe_split": ((7, 3), lambda pf, x: pf.unsafe_split(x, 3), lambda x: [x[i:i + 3] for i in range(0, max(len(x), 1), 3)]),
    "unbind": ((3, 5), lambda pf, x: pf.unbind(x), list),
    "unbind_copy": ((3, 5), lambda pf, x: pf.unbind_copy(x, 1), lambda x: list(x.T)),
}
# The same of what takes several and gives one: (shapes, call, reference).
SEVERAL = {
    "block_diag": (((4, 5), (67,), ()), lambda pf, *x: pf.block_diag(*x), _block_diag),
    "cartesian_prod": (((3,), (5,)), lambda pf, *x: pf.cartesian_prod(*x), lambda x, y: np.stack([np.repeat(x, len(y)), np.tile(y, len(x))], -1)),
    "column_stack": (((5,), (5, 3)), lambda pf, *x: pf.column_stack(x), lambda *x: np.column_stack(x)),
    "concat": ((W, (2, 67)), lambda pf, *x: pf.concat(x), lambda *x: np.concatenate(x)),
    "concatenate": (((3, 5), (3, 0), (3, 2)), lambda pf, *x: pf.concatenate(x, 1), lambda *x: np.concatenate(x, 1)),
    "dstack": ((W, W), lambda pf, *x: pf.dstack(x), lambda *x: np.dstack(x)),
    "hstack": (((5,), (7,)), lambda pf, *x: pf.hstack(x), lambda *x: np.hstack(x)),
    "hstack-matrices": (((3, 5), (3, 2)), lambda pf, *x: pf.hstack(x), lambda *x: np.hstack(x)),
    "vstack": (((67,), W), lambda pf, *x: pf.vstack(x), lambda *x: np.vstack(x)),
    "row_stack": (((5,), (5,)), lambda pf, *x: pf.row_stack(x), lambda *x: np.vstack(x)),
    "diagonal_scatter": (((4, 7), (4,)), lambda pf, x, y: pf.diagonal_scatter(x, y, 1), _diagonal_scattered),
    "select_scatter": ((W, (67,)), lambda pf, x, y: pf.select_scatter(x, y, 0, 1), lambda x, y: _scattered(x, 1, y)),
    "slice_scatter": (((4, 5), (4, 2)), lambda pf, x, y: pf.slice_scatter(x, y, 1, 1, 5, 2), lambda x, y: _scattered(x, (slice(None), slice(1, 5, 2)), y)),
    "as_strided_scatter": (((20,), (2, 3)), lambda pf, x, y: pf.as_strided_scatter(x, y, (2, 3), (7, 2), 1), lambda x, y: _scattered(x, 1 + 7 * np.arange(2)[:, None] + 2 * np.arange(3), y)),
}
MANY = {
    "broadcast_tensors": (((3, 1), (5,)), lambda pf, *x: pf.broadcast_tensors(*x), lambda *x: tuple(map(np.array, np.broadcast_arrays(*x)))),
    "meshgrid": (((3,), (5,), (2,)), lambda pf, *x: pf.meshgrid(*x, indexing="ij"), lambda *x: tuple(np.meshgrid(*x, indexing="ij"))),
    "meshgrid-xy": (((3,), (5,)), lambda pf, *x: pf.meshgrid(*x, indexing="xy"), lambda *x: tuple(np.meshgrid(*x, indexing="xy"))),
    "atleast_2d-several": (((), (5,)), lambda pf, *x: pf.atleast_2d(*x), lambda *x: tuple(map(np.atleast_2d, x))),
}
# These read memory as it lies, or want the parts of a complex number side by side.
OF_MEMORY = ("view_copy", "as_strided_copy", "as_strided_scatter", "view_as_real_copy", "view_as_complex_copy")


def _arranged():
    for table, several in ((ONE, False), (PARTS, True), (SEVERAL, False), (MANY, True)):
        for i, (name, (shapes, call, reference)) in enumerate(table.items()):
            shapes = (shapes,) if table in (ONE, PARTS) else shapes
            function, _, tag = name.partition("-")
            dtypes = F if "complex" in name or "real" in name else (X, F, B, ("float32", "bool"))[i % 4]
            yield from made(function, shapes, _tuples(reference) if several else reference, (lambda pf, *x, f=call: tuple(f(pf, *x))) if several else call, dtypes, tag,
                            grad=() if name == "detach_copy" else None, layouts=function not in OF_MEMORY)  # fmt: skip
    yield from made("flip", ((2, 0, 3),), lambda x: np.flip(x, 1), lambda pf, x: pf.flip(x, (1,)), tag="empty")
    yield from made("combinations", ((5,),), lambda x: np.stack([x[np.triu_indices(len(x), 1)[k]] for k in (0, 1)], -1), dtypes=X)
    yield from made("combinations", ((4,),), lambda x: np.stack([x[np.triu_indices(len(x))[k]] for k in (0, 1)], -1), lambda pf, x: pf.combinations(x, 2, with_replacement=True), tag="replaced")
    yield from made("vander", ((7,),), _vander, lambda pf, x: pf.vander(x, 3), c=2)
    yield from made("vander", (At((7,), integers(-5, 6)),), lambda x: np.vander(x, 4, increasing=True), lambda pf, x: pf.vander(x, 4, increasing=True), dtypes=("int64",), tag="increasing")
    yield from made("repeat_interleave", (W, Spec((3,), "int64", literal([2, 0, 3]))), lambda x, n: np.repeat(x, n, 0), lambda pf, x, n: pf.repeat_interleave(x, n, 0), tag="each", own_values=True)
    places = Spec((4,), "int64", literal([2, 0, 2, 4]))
    yield from made("index_fill", ((5, 3), places), lambda x, i: _scattered(x, i, 7), lambda pf, x, i: pf.index_fill(x, 0, i, 7), dtypes=X)
    yield from made("take", (W, Spec((2, 3), "int64", literal([[0, -1, 100], [5, 5, 66]]))), lambda x, i: x.ravel()[i], dtypes=X)
    put = Spec((2, 2), "int64", literal([[0, 7], [-1, 3]]))
    yield from made("put", ((3, 5), put, (2, 2)), lambda x, i, y: _scattered(x.ravel(), i.ravel(), y.ravel()).reshape(x.shape), dtypes=X, own_values=True)
    yield from made("put", ((3, 5), Spec((4,), "int64", literal([2, 2, -1, 0])), (4,)), _accumulated, lambda pf, x, i, y: pf.put(x, i, y, accumulate=True), dtypes=D, tag="accumulate", c=2, magnitude=largest)
    yield from made("masked_scatter", (W, Spec((67,), "bool"), (201,)), _masked_scattered, dtypes=X)
    yield from made("argwhere", (At(W, integers(0, 2)),), np.argwhere, dtypes=X, grad=(), out="int64")
    yield from made("scalar_tensor", (), lambda: np.asarray(2.5), lambda pf: pf.scalar_tensor(2.5))
    for name, f in (("tril_indices", np.tril_indices), ("triu_indices", np.triu_indices)):
        for row, col, offset in ((5, 3, 0), (3, 6, -1), (4, 4, 2), (0, 3, 0)):
            yield from made(name, (), lambda f=f, a=(row, offset, col): np.stack(f(*a)), lambda pf, n=name, a=(row, col, offset): getattr(pf, n)(*a), tag=f"{row}x{col}-{offset}", out="int64")


def _accumulated(x, i, y):
    z = np.array(x).ravel()
    np.add.at(z, i.ravel(), y.ravel())
    return z.reshape(x.shape)


def _masked_scattered(x, mask, source):
    mask = np.broadcast_to(mask, x.shape)
    z = np.array(x)
    z[mask] = source.ravel()[: mask.sum()]
    return z


def cases():
    return [*_of_one(), *_of_two(), *_products(), *_arranged()]
