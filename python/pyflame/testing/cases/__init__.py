"""The case tables: one Case per (function, dtype, shape) that is worth telling apart.

A case names the public functions and the primitives that it covers, how its inputs are made, how PyFlame is called, and what NumPy
says in float64. The same tables serve correctness on every device, gradients, fusion, layouts and performance.
"""

import dataclasses
import importlib
import zlib

import numpy as np

from ..tolerance import is_float, round_to

FAMILIES = ("elementwise", "special", "reduce", "matmul", "quantized", "linalg", "conv", "volumes", "grids", "norm", "attention", "paged", "index", "loss", "creation", "view", "join", "random", "optim", "complex", "float8", "recurrent", "compositions", "statistics", "layers", "layer_losses", "layer_pools", "transforms", "factorizations")
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int64", "int32", "int16", "int8", "uint8")
# An op without a case: what it computes is in the program (tests/python/test_kernels.py, test_cpp_extension.py).
OF_PROGRAMS = "user_kernel"
# 0-d and empty, one, the edges of a wave, two dims beside a power of two, a prime, an empty inner dim.
SHAPES = ((), (0,), (1,), (63,), (64,), (65,), (31, 33), (101,), (2, 0, 3))


# ---- values: (generator, shape) -> array. Some elements are far from the others, so that a wrong element shows.
def normal(rng, shape):
    x = rng.standard_normal(shape)
    return np.where(rng.random(shape) < 0.05, x * 10, x)


def smooth(rng, shape):
    """Away from kinks at integers and halves, for gradients."""
    x = normal(rng, shape)
    return np.where(np.abs(2 * x - np.round(2 * x)) < 0.1, x + 0.07, x)


def positive(rng, shape):
    return np.exp(rng.standard_normal(shape))


def unit(rng, shape):
    return rng.random(shape)


def away_from_zero(rng, shape):
    x = rng.standard_normal(shape)
    return np.sign(x) * (np.abs(x) + 0.3)


def distinct(rng, shape):
    """No two elements alike, also after rounding to a half type."""
    n = int(np.prod(shape))
    return ((rng.permutation(n) - n // 2) * 0.25).reshape(shape)


def integers(low, high):
    return lambda rng, shape: rng.integers(low, high, shape)


def booleans(rng, shape):
    return rng.random(shape) < 0.5


def literal(values):
    array = np.asarray(values)
    return lambda rng, shape: array


def any_of(values):
    array = np.asarray(values)
    return lambda rng, shape: rng.choice(array, shape)


@dataclasses.dataclass(frozen=True)
class Spec:
    shape: tuple
    dtype: str = "float32"
    values: object = None
    layout: str = "contiguous"  # or transposed, strided, offset

    def make(self, rng):
        """An array of the dtype's values: float64 for floats, the dtype itself otherwise."""
        values = self.values or (normal if is_float(self.dtype) else booleans if self.dtype == "bool" else integers(0, 100) if self.dtype == "uint8" else integers(-100, 100))
        return np.asarray(round_to(np.asarray(values(rng, self.shape)), self.dtype)).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    functions: tuple  # public functions, by their Python names
    ops: tuple  # primitives of ops.def; none of a function that Python composes
    inputs: tuple  # Spec
    call: object  # (pf, *tensors) -> tensor or tuple of tensors
    reference: object  # (*arrays) -> array or tuple of arrays
    grad: tuple = ()  # inputs with a gradient
    c: float = 0.0  # tolerance factor; 0: exact
    length: int = 1  # terms of the reduction
    magnitude: object = None  # (*arrays) -> sum of absolute terms
    composed: bool = False  # intermediates are rounded to the dtype
    out: object = None  # dtype or tuple of dtypes; the first input's unless given
    fused_exact: bool = True  # the same bits in any window
    flops: object = None  # (*shapes) -> number
    bytes: object = None
    layouts: bool = True  # makes sense with strided inputs
    twice: bool = True  # its gradient has a gradient
    reshaped: object = None  # shape -> the same case of that shape, where the call itself knows it
    own_values: bool = False  # the reference answers for the case's own values only: matrices of full rank, places that differ
    cpu_only: bool = False  # other devices refuse it, except the reference
    check: object = None  # (pf, outputs, arrays) -> None, beside or instead of the reference

    def arrays(self):
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [s.make(rng) for s in self.inputs]

    def out_dtypes(self, n):
        if self.out is None:
            return (self.inputs[0].dtype if self.inputs else "float32",) * n
        return (self.out,) * n if isinstance(self.out, str) else self.out

    def with_inputs(self, suffix, **changes):
        """The same case with every input changed alike (dtype or layout)."""
        return dataclasses.replace(self, name=f"{self.name}[{suffix}]", inputs=tuple(dataclasses.replace(s, **changes) if is_float(s.dtype) or "layout" in changes else s for s in self.inputs))


def label(shape):
    return "x".join(map(str, shape)) if shape else "scalar"


def all_cases():
    cases = []
    for family in FAMILIES:
        cases += importlib.import_module(f"{__name__}.{family}").cases()
    names = [c.name for c in cases]
    twice = {n for n in names if names.count(n) > 1} if len(set(names)) != len(names) else set()
    assert not twice, f"cases of the same name: {sorted(twice)}"
    return cases
