"""The normal distribution of vectors."""
import math

from .. import _C, linalg
from . import constraints
from ._math import normal
from .distribution import Distribution, broadcast_shapes
from .kl import register_kl


class MultivariateNormal(Distribution):
    """Normal vectors: loc [.., D] and one of covariance_matrix, precision_matrix and scale_tril, its lower Cholesky factor, [.., D, D]."""

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                       "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {k: v for k, v in given.items() if v is not None}
        if loc.ndim < 1 or len(given) != 1:
            raise ValueError(f"MultivariateNormal: needs a vector loc and one of covariance_matrix, precision_matrix and scale_tril; got shape {tuple(loc.shape)} and {sorted(given)}")
        ((name, matrix),) = given.items()
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] != loc.shape[-1]:
            raise ValueError(f"MultivariateNormal: {name} does not fit; got shape {tuple(matrix.shape)} for loc {tuple(loc.shape)}; expected square matrices of that size")
        batch = tuple(broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1])))
        self.loc = loc.expand(*batch, loc.shape[-1])
        self.__dict__[name] = matrix.expand(*batch, *matrix.shape[-2:])
        super().__init__(batch, loc.shape[-1:], validate_args)
        if name == "covariance_matrix":
            self.scale_tril = linalg.cholesky(self.covariance_matrix)
        elif name == "precision_matrix":  # the factor of the reversed matrix, inverted
            factor = linalg.cholesky(matrix.flip((-2, -1)))
            one = _C.eye(loc.shape[-1], dtype=matrix.dtype, device=matrix.device)
            self.scale_tril = linalg.solve_triangular(factor.flip((-2, -1)).transpose(-2, -1), one, upper=False).expand(*batch, *matrix.shape[-2:])

    def __getattr__(self, name):
        if name == "covariance_matrix" and "scale_tril" in self.__dict__:
            return _C.matmul(self.scale_tril, self.scale_tril.transpose(-2, -1))
        if name == "precision_matrix" and "scale_tril" in self.__dict__:
            return linalg.inv(self.covariance_matrix)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: (self.scale_tril * self.scale_tril).sum(-1))

    def rsample(self, sample_shape=()):
        noise = normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + _C.matmul(self.scale_tril, noise.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self):
        return _C.log(self.scale_tril.diagonal(0, -2, -1)).sum(-1)

    def log_prob(self, value):
        self._validate_sample(value)
        d = (value - self.loc).unsqueeze(-1)
        z = linalg.solve_triangular(self.scale_tril.expand(*d.shape[:-2], *self.scale_tril.shape[-2:]), d, upper=False).squeeze(-1)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + (z * z).sum(-1)) - self._half_log_det()

    def entropy(self):
        return 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self._half_log_det()


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normals(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: MultivariateNormals of different sizes; got {tuple(p.event_shape)} and {tuple(q.event_shape)}")
    n = p.event_shape[0]
    batch = tuple(broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape)))
    right = q.scale_tril.expand(*batch, n, n)
    ratio = linalg.solve_triangular(right, p.scale_tril.expand(*batch, n, n), upper=False)
    distance = linalg.solve_triangular(right, (q.loc - p.loc).expand(*batch, n).unsqueeze(-1), upper=False)
    squares = (ratio * ratio).sum(-1).sum(-1) + (distance * distance).sum(-1).sum(-1)
    return q._half_log_det() - p._half_log_det() + 0.5 * (squares - n)
