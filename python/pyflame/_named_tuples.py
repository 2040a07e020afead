"""The named tuples that functions return, as type checkers see them: each has the fields of the real one, which is made where it is returned. Nothing
imports this module when a program runs. pyflame.return_types has the real ones."""
from typing import NamedTuple, Tuple

from ._C import Tensor


class ValuesIndices(NamedTuple):
    """Of max, min, median, nanmedian, mode and kthvalue along a dim, and of sort, topk, cummax and cummin."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """Of aminmax."""

    min: Tensor
    max: Tensor


class Frexp(NamedTuple):
    """Of frexp."""

    mantissa: Tensor
    exponent: Tensor


class Histogram(NamedTuple):
    """Of histogram."""

    hist: Tensor
    bin_edges: Tensor


class HistogramOfPoints(NamedTuple):
    """Of histogramdd."""

    hist: Tensor
    bin_edges: Tuple[Tensor, ...]


class SVD(NamedTuple):
    """Of svd."""

    U: Tensor
    S: Tensor
    V: Tensor


class QR(NamedTuple):
    """Of qr."""

    Q: Tensor
    R: Tensor


class Geqrf(NamedTuple):
    """Of geqrf."""

    a: Tensor
    tau: Tensor


class TriangularSolve(NamedTuple):
    """Of triangular_solve."""

    solution: Tensor
    cloned_coefficient: Tensor
