"""The types of results with names, for annotations. Type checkers and editors read this module; nothing imports it when a program runs."""
from typing import NamedTuple

from .._C import Tensor


class CholeskyEx(NamedTuple):
    L: Tensor
    info: Tensor


class Qr(NamedTuple):
    Q: Tensor
    R: Tensor


class Lu(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


class LuFactor(NamedTuple):
    LU: Tensor
    pivots: Tensor


class LuFactorEx(NamedTuple):
    LU: Tensor
    pivots: Tensor
    info: Tensor


class LdlFactor(NamedTuple):
    LD: Tensor
    pivots: Tensor


class LdlFactorEx(NamedTuple):
    LD: Tensor
    pivots: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    result: Tensor
    info: Tensor


class InvEx(NamedTuple):
    inverse: Tensor
    info: Tensor


class Slogdet(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class Lstsq(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class Eig(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class Eigh(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class Svd(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class Polar(NamedTuple):
    U: Tensor
    H: Tensor
