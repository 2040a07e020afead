"""Tensors from nothing."""

import numpy as np

from . import FLOATS, INTS, SHAPES, Case, Spec, integers, label
from ..tolerance import is_float


def _as(array, dtype):
    return np.asarray(array, np.float64) if is_float(dtype) else np.asarray(array).astype(dtype)


def _filled(name, dtype, shape):
    value = {"zeros": 0, "ones": 1, "full": 3}[name]
    call = {"zeros": lambda pf: pf.zeros(shape, dtype=dtype), "ones": lambda pf: pf.ones(shape, dtype=dtype), "full": lambda pf: pf.full(shape, 3, dtype=dtype)}[name]
    return _made(name, dtype, label(shape), (name,), ("full",), call, np.full(shape, value), reshaped=lambda s: _filled(name, dtype, s))


def _made(name, dtype, tag, functions, ops, call, array, **more):
    return Case(f"{name}-{dtype}-{tag}", functions, ops, (), call, lambda: _as(array, dtype), out=dtype, layouts=False, **more)


def cases():
    out = []
    for dtype in (*FLOATS, *INTS, "bool"):
        for shape in SHAPES:
            out += [_filled(name, dtype, shape) for name in ("zeros", "ones", "full")]
        out.append(Case(f"empty-{dtype}", ("empty",), (), (), lambda pf, d=dtype: pf.empty((3, 5), dtype=d).fill_(1), lambda d=dtype: _as(np.ones((3, 5)), d), out=dtype, layouts=False))
        x = Spec((3, 5), dtype)
        out.append(Case(f"empty_like-{dtype}", ("empty_like",), (), (x,), lambda pf, x: pf.empty_like(x).fill_(1), lambda x, d=dtype: _as(np.ones(x.shape), d)))
        out.append(Case(f"zeros_like-{dtype}", ("zeros_like",), ("full",), (x,), lambda pf, x: pf.zeros_like(x), np.zeros_like))
        out.append(Case(f"ones_like-{dtype}", ("ones_like",), ("full",), (x,), lambda pf, x: pf.ones_like(x), np.ones_like))
        out.append(Case(f"full_like-{dtype}", ("full_like",), ("full",), (x,), lambda pf, x: pf.full_like(x, 1, dtype="float32"), lambda x: np.ones(x.shape), out="float32"))
        out.append(_made("eye", dtype, "square", ("eye",), ("eq",), lambda pf, d=dtype: pf.eye(5, dtype=d), np.eye(5)))
        out.append(_made("eye", dtype, "wide", ("eye",), ("eq",), lambda pf, d=dtype: pf.eye(3, 5, dtype=d), np.eye(3, 5)))
        if dtype != "bool":
            for args in ((0, 65, 1), (3, 40, 7), (10, 0, -3), (5, 5, 1)):
                out.append(_made("arange", dtype, "-".join(map(str, args)), ("arange",), ("arange",), lambda pf, a=args, d=dtype: pf.arange(*a, dtype=d), np.arange(*args) if dtype != "uint8" or args[2] > 0 else np.arange(*args)))
    for dtype in ("float32", "float64"):
        out.append(_made("arange", dtype, "fractions", ("arange",), ("arange",), lambda pf, d=dtype: pf.arange(0.5, 9.0, 0.25, dtype=d), np.arange(0.5, 9.0, 0.25), c=1))
        for n in (0, 1, 2, 65):
            out.append(_made("linspace", dtype, str(n), ("linspace",), ("arange",), lambda pf, n=n, d=dtype: pf.linspace(-1.0, 3.0, n, dtype=d), np.linspace(-1, 3, n), c=2, magnitude=lambda: 3.0))
    out.append(Case("arange-infers-int", ("arange",), ("arange",), (), lambda pf: pf.arange(5), lambda: np.arange(5), out="int64", layouts=False))
    out.append(Case("arange-infers-float", ("arange",), ("arange",), (), lambda pf: pf.arange(0.0, 5.0), lambda: np.arange(5.0), out="float32", layouts=False))
    out.append(Case("full-infers-int", ("full",), ("full",), (), lambda pf: pf.full((3,), 7), lambda: np.full(3, 7), out="int64", layouts=False))
    out.append(Case("full-infers-bool", ("full",), ("full",), (), lambda pf: pf.full((3,), True), lambda: np.full(3, True), out="bool", layouts=False))
    for dtype in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"):
        out.append(Case(f"from_host-{dtype}", ("from_host",), (), (Spec((31, 33), dtype),), lambda pf, x: x, lambda x: x))
    return out
