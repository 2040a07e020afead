"""Parametrizations of weights: weight norm, spectral norm, orthogonal matrices."""
from __future__ import annotations

from ... import _C, linalg
from ... import _matrices
from ..module import Module
from . import _norms, parametrize

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from .._annotations import ModuleT


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / _norms.norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight):
        return _norms.norm_except_dim(weight, self.dim), weight


def weight_norm(module: ModuleT, name: str = "weight", dim: int | None = 0) -> ModuleT:
    """The weight as a direction and a magnitude: w = g v / |v| (Salimans and Kingma, 2016). The norm is over all dims but one, or all with dim=None.
    original0 is g, original1 is v. State dicts of the old nn.utils.weight_norm load, too. Returns the module.

    Raises ValueError for a name of no parameter, and IndexError for a dim out of range.
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def of_old_names(module, state_dict, prefix, *rest):
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(k in state_dict for k in old):
            for i, k in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(k)

    module.register_load_state_dict_pre_hook(of_old_names)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        if dim >= weight.ndim or dim < -weight.ndim:
            raise IndexError(f"spectral_norm: dim out of range; got {dim} for {weight.ndim} dimensions")
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: n_power_iterations must be positive; got {n_power_iterations}")
        self.dim, self.eps, self.n_power_iterations = dim if dim >= 0 else dim + weight.ndim, eps, n_power_iterations
        if weight.ndim > 1:
            matrix = _norms.as_matrix(weight.detach(), self.dim)
            for name, size in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
                start = _C.randn(size, dtype=weight.dtype, device=weight.device)
                self.register_buffer(name, _norms.normalized(start, eps))
            _norms.power_iterations(matrix, self._u, self._v, 15, eps)

    def forward(self, weight):
        if weight.ndim == 1:
            return _norms.normalized(weight, self.eps)
        matrix = _norms.as_matrix(weight, self.dim)
        if self.training:
            _norms.power_iterations(matrix.detach(), self._u, self._v, self.n_power_iterations, self.eps)
        return weight / _norms.largest_singular_value(matrix, self._u.clone(), self._v.clone())

    def right_inverse(self, value):
        return value


def spectral_norm(module: ModuleT, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> ModuleT:
    """The weight divided by its largest singular value (Miyato et al., 2018), which power iterations follow while training. Returns the module.

    module.name is the weight. n_power_iterations: how many at each use, at least 1 (ValueError). eps: the least length that a vector is divided by. dim: the dim of the
    weight that becomes the rows of the matrix, that of the outputs; None: 1 for transposed convolutions, otherwise 0.
    """
    weight = getattr(module, name)
    dim = _norms.default_dim(module) if dim is None else dim
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


class _Orthogonal(Module):
    """Matrices with orthogonal columns (or rows, where there are fewer), by a map from all matrices; with a base, relative to that (Lezcano-Casado, 2019)."""

    def __init__(self, orthogonal_map, use_trivialization):
        super().__init__()
        self.orthogonal_map, self.use_trivialization = orthogonal_map, use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def _square(self, x, n, k):
        """The orthogonal matrix of the skew-symmetric one whose lower triangle is x."""
        x = _C.tril(x)
        if n != k:
            x = _C.cat([x, _C.zeros(*x.shape[:-1], n - k, dtype=x.dtype, device=x.device)], -1)
        a = x - x.transpose(-2, -1)
        if self.orthogonal_map == "matrix_exp":
            q = linalg.matrix_exp(a)
        else:
            one = _C.eye(n, dtype=x.dtype, device=x.device)
            q = linalg.solve(one - 0.5 * a, one + 0.5 * a)
        return q if n == k else q.narrow(-1, 0, k)

    def forward(self, x):
        n, k = x.shape[-2:]
        wide = n < k
        if wide:
            x, n, k = x.transpose(-2, -1), k, n
        if self.orthogonal_map == "householder":
            a = _C.tril(x, -1)
            q = linalg.householder_product(a, 2 / (1 + (a * a).sum(-2)))
            q = q * _C.trunc(x.detach().diagonal(0, -2, -1)).unsqueeze(-2)
        else:
            q = self._square(x, n, k)
        q = q if not self.use_trivialization or self.base is None else _C.matmul(self.base, q)
        return q.transpose(-2, -1) if wide else q

    def right_inverse(self, value):
        n, k = value.shape[-2:]
        tall = value.transpose(-2, -1) if n < k else value
        if not self.use_trivialization:
            start = self._reflectors(tall.detach())
            return start.transpose(-2, -1) if n < k else start
        q, r = linalg.qr(tall.detach())
        signs = _C.sign(r.diagonal(0, -2, -1)).unsqueeze(-2)
        self.base = self._completed(q * signs)
        start = -_C.eye(*tall.shape[-2:], dtype=value.dtype, device=value.device).expand(tall.shape).clone()
        return start.transpose(-2, -1) if n < k else start

    def _reflectors(self, tall):
        """What 'householder' maps to the orthogonal matrix of the QR decomposition whose R has a positive diagonal."""
        if self.orthogonal_map != "householder":
            raise NotImplementedError(f"orthogonal: use_trivialization=False with '{self.orthogonal_map}' cannot be assigned; expected use_trivialization=True")
        a, tau = _matrices.geqrf(tall)
        signs = _C.sign(a.diagonal(0, -2, -1))
        signs = _C.where(tau == 0, -signs, signs)  # forward() computes tau = 2 for a reflector of zeros, which turns the sign
        return _C.tril(a, -1) + _C.triu(a, 1) + signs.unsqueeze(-2) * _C.eye(*a.shape[-2:], dtype=a.dtype, device=a.device)

    def _completed(self, q):
        """A square orthogonal matrix that begins with these columns."""
        n, k = q.shape[-2:]
        if n == k:
            return q
        random = _C.randn(*q.shape[:-1], n - k, dtype=q.dtype, device=q.device)
        whole, r = linalg.qr(_C.cat([q, random], -1))
        return whole * _C.sign(r.diagonal(0, -2, -1)).unsqueeze(-2)


def orthogonal(module: ModuleT, name: str = "weight", orthogonal_map: Literal["matrix_exp", "cayley", "householder"] | None = None, *,
               use_trivialization: bool = True) -> ModuleT:
    """The weight as a matrix with orthogonal columns, or rows: orthogonal_map is 'matrix_exp', 'cayley' or 'householder' (the default where the matrix is not
    square). The present weight is made orthogonal. ValueError for less than 2 dimensions. Returns the module.

    use_trivialization: the matrices are relative to the present one, with any map. False: 'householder' gives the orthogonal matrix of the weight's QR decomposition; the other maps
    are applied to the present weight, and assigning a weight later is a NotImplementedError.
    """
    weight = getattr(module, name)
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: needs a matrix or a batch of them; got shape {tuple(weight.shape)}")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f"orthogonal: unknown orthogonal_map; got '{orthogonal_map}'; expected 'matrix_exp', 'cayley' or 'householder'")
    return parametrize.register_parametrization(module, name, _Orthogonal(orthogonal_map, use_trivialization), unsafe=True)
