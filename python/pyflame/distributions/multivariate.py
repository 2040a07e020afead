"""Normal distributions of vectors."""
import math

from .. import _C, linalg
from .._matrices import cholesky_inverse
from .._shapes import diag_embed
from . import constraints
from ._math import normal
from .distribution import Distribution, broadcast_shapes, check_tensors
from .kl import register_kl


def factor_of(name, matrix):
    """The lower Cholesky factor of the covariance matrix, of what is given."""
    if name == "scale_tril":
        return matrix
    if name == "covariance_matrix":
        return linalg.cholesky(matrix)
    factor = linalg.cholesky(matrix.flip((-2, -1)))  # that of the reversed matrix, inverted
    one = _C.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand(*matrix.shape)
    return linalg.solve_triangular(factor.flip((-2, -1)).transpose(-2, -1), one, upper=False)


class MultivariateNormal(Distribution):
    """Normal vectors: loc [.., D] and one of covariance_matrix, precision_matrix and scale_tril, its lower Cholesky factor, [.., D, D]. validate_args: as in
    Distribution.

    ValueError for what is no tensor, for no matrix or several, for shapes that do not fit, and, where arguments are checked, for a matrix that is not positive
    definite, or no lower triangle with a positive diagonal. RuntimeError for batch dims that do not broadcast. Unchecked, a matrix that is not positive
    definite is a LinAlgError."""

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                       "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {k: v for k, v in given.items() if v is not None}
        check_tensors("MultivariateNormal", loc=loc, **given)
        if loc.ndim < 1 or len(given) != 1:
            raise ValueError(f"MultivariateNormal: needs a vector loc and one of covariance_matrix, precision_matrix and scale_tril; got shape {tuple(loc.shape)} and {sorted(given)}")
        ((name, matrix),) = given.items()
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] != loc.shape[-1]:
            raise ValueError(f"MultivariateNormal: {name} does not fit; got shape {tuple(matrix.shape)} for loc {tuple(loc.shape)}; expected square matrices of that size")
        batch = tuple(broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1])))
        self.loc = loc.expand(*batch, loc.shape[-1])
        self.__dict__[name] = matrix.expand(*batch, *matrix.shape[-2:])
        super().__init__(batch, loc.shape[-1:], validate_args)
        self.scale_tril = factor_of(name, self.__dict__[name])

    def __getattr__(self, name):
        if name == "covariance_matrix" and "scale_tril" in self.__dict__:
            return _C.matmul(self.scale_tril, self.scale_tril.transpose(-2, -1))
        if name == "precision_matrix" and "scale_tril" in self.__dict__:
            return cholesky_inverse(self.scale_tril)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    mean = mode = property(lambda self: self.loc, doc="The mean and the mode, loc: a tensor of [*batch_shape, D] and of the parameters' dtype.")
    variance = property(lambda self: (self.scale_tril * self.scale_tril).sum(-1),
                        doc="The variance, the diagonal of the covariance matrix: a tensor of [*batch_shape, D] and of the parameters' dtype.")

    def rsample(self, sample_shape=()):
        noise = normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + _C.matmul(self.scale_tril, noise.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self):
        return _C.log(self.scale_tril.diagonal(0, -2, -1)).sum(-1)

    def log_prob(self, value):
        """The logarithm of the density: -(D log(2 pi) + log(det(covariance)) + d^T covariance^-1 d) / 2 for d = value - loc. Shapes and errors are those of
        Distribution.log_prob.
        """
        self._validate_sample(value)
        d = (value - self.loc).unsqueeze(-1)
        z = linalg.solve_triangular(self.scale_tril.expand(*d.shape[:-2], *self.scale_tril.shape[-2:]), d, upper=False).squeeze(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + (z * z).sum(-1)) - self._half_log_det()

    def entropy(self):
        """The entropy in nats, D (1 + log(2 pi)) / 2 + log(det(covariance)) / 2: a tensor of batch_shape and of the parameters' dtype."""
        return 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance matrix cov_factor cov_factor^T + cov_diag: loc [.., D], cov_factor [.., D, R], cov_diag [.., D]. Densities and draws
    need matrices of size R only. validate_args: as in Distribution. ValueError for what is no tensor, for shapes that do not fit, and, where arguments are
    checked, for a cov_diag that is not above 0. RuntimeError for batch dims that do not broadcast."""

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2), "cov_diag": constraints.independent(constraints.positive, 1)}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        check_tensors("LowRankMultivariateNormal", loc=loc, cov_factor=cov_factor, cov_diag=cov_diag)
        n = loc.shape[-1] if loc.ndim else None
        if n is None or cov_factor.ndim < 2 or cov_factor.shape[-2] != n or cov_diag.ndim < 1 or cov_diag.shape[-1] != n:
            shapes = ", ".join(str(tuple(t.shape)) for t in (loc, cov_factor, cov_diag))
            raise ValueError(f"LowRankMultivariateNormal: the parameters do not fit; got shapes {shapes}; expected [.., D], [.., D, R] and [.., D]")
        batch = tuple(broadcast_shapes(tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1])))
        self.loc, self.cov_factor, self.cov_diag = loc.expand(*batch, n), cov_factor.expand(*batch, *cov_factor.shape[-2:]), cov_diag.expand(*batch, n)
        super().__init__(batch, (n,), validate_args)
        small = _C.matmul(self._scaled_factor(), self.cov_factor)
        self._inner = linalg.cholesky(small + _C.eye(small.shape[-1], dtype=small.dtype, device=small.device))  # [.., R, R]

    def _scaled_factor(self):
        return self.cov_factor.mT / self.cov_diag.unsqueeze(-2)

    mean = mode = property(lambda self: self.loc, doc="The mean and the mode, loc: a tensor of [*batch_shape, D] and of the parameters' dtype.")
    variance = property(lambda self: (self.cov_factor * self.cov_factor).sum(-1) + self.cov_diag,
                        doc="The variance, the diagonal of the covariance matrix: a tensor of [*batch_shape, D] and of the parameters' dtype.")
    covariance_matrix = property(lambda self: _C.matmul(self.cov_factor, self.cov_factor.mT) + diag_embed(self.cov_diag),
                                 doc="The covariance matrix, cov_factor cov_factor^T + diag(cov_diag): [*batch_shape, n, n], of the dtype of loc.")
    scale_tril = property(lambda self: linalg.cholesky(self.covariance_matrix),
                          doc="The lower triangular L with L L^T = covariance_matrix (Cholesky): [*batch_shape, n, n], of the dtype of loc.")

    @property
    def precision_matrix(self):
        """The inverse of covariance_matrix, [*batch_shape, n, n], by Woodbury's identity: only a matrix of size R is factored."""
        part = linalg.solve_triangular(self._inner, self._scaled_factor(), upper=False)
        return diag_embed(1 / self.cov_diag) - _C.matmul(part.mT, part)

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(sample_shape)
        few = normal((*shape[:-1], self.cov_factor.shape[-1], 1), self.loc)
        return self.loc + _C.matmul(self.cov_factor, few).squeeze(-1) + _C.sqrt(self.cov_diag) * normal(shape, self.loc)

    def _half_log_det(self):
        return _C.log(self._inner.diagonal(0, -2, -1)).sum(-1) + 0.5 * _C.log(self.cov_diag).sum(-1)

    def _square(self, d):
        """d^T precision_matrix d, of [.., D]."""
        within = _C.matmul(self._scaled_factor(), d.unsqueeze(-1))
        z = linalg.solve_triangular(self._inner.expand(*within.shape[:-2], *self._inner.shape[-2:]), within, upper=False).squeeze(-1)
        return (d * d / self.cov_diag).sum(-1) - (z * z).sum(-1)

    def log_prob(self, value):
        """The logarithm of the density: -(D log(2 pi) + log(det(covariance)) + d^T covariance^-1 d) / 2 for d = value - loc. Shapes and errors are those of
        Distribution.log_prob.
        """
        self._validate_sample(value)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._square(value - self.loc)) - self._half_log_det()

    def entropy(self):
        """The entropy in nats, D (1 + log(2 pi)) / 2 + log(det(covariance)) / 2: a tensor of batch_shape and of the parameters' dtype."""
        return 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()


def _same_size(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: normal vectors of different sizes; got {tuple(p.event_shape)} and {tuple(q.event_shape)}")


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _to_low_rank(p, q):
    _same_size(p, q)
    columns = p.scale_tril if isinstance(p, MultivariateNormal) else _C.cat([p.cov_factor, diag_embed(_C.sqrt(p.cov_diag))], -1)
    batch = broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))
    q = q if tuple(q.batch_shape) == tuple(batch) else q.expand(batch)
    within = _C.matmul(q._scaled_factor(), columns)
    z = linalg.solve_triangular(q._inner, within, upper=False)
    trace = (columns * columns / q.cov_diag.unsqueeze(-1)).sum(-1).sum(-1) - (z * z).sum(-1).sum(-1)
    return q._half_log_det() - p._half_log_det() + 0.5 * (trace + q._square(q.loc - p.loc) - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normals(p, q):
    _same_size(p, q)
    n = p.event_shape[0]
    batch = tuple(broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape)))
    right = q.scale_tril.expand(*batch, n, n)
    ratio = linalg.solve_triangular(right, p.scale_tril.expand(*batch, n, n), upper=False)
    distance = linalg.solve_triangular(right, (q.loc - p.loc).expand(*batch, n).unsqueeze(-1), upper=False)
    squares = (ratio * ratio).sum(-1).sum(-1) + (distance * distance).sum(-1).sum(-1)
    return q._half_log_det() - p._half_log_det() + 0.5 * (squares - n)
