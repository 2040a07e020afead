"""Distributions of matrices. Draws of the gamma function's kind are made on the host."""
import math

from .. import _C, linalg
from .._grad_mode import no_grad
from .._matrices import cholesky_inverse, cholesky_solve
from .._shapes import broadcast_shapes, diag_embed
from ..special import multigammaln
from . import constraints
from ._math import digamma, lgamma, normal, tiny
from .distribution import Distribution, ExponentialFamily, broadcast_all, check_tensors
from .gammas import Beta, Chi2
from .kl import register_kl
from .multivariate import factor_of


class Wishart(ExponentialFamily):
    """Sums x x^T of df normal vectors x with mean 0 and one of covariance_matrix, precision_matrix and scale_tril, its lower Cholesky factor, [.., D, D].
    df is a number or a tensor above D - 1, which need not be an integer. Where df < D, draws are almost singular. validate_args: as in Distribution.

    ValueError for no matrix or several, for what are no square matrices, for a smaller df, and, where arguments are checked, for a matrix that is not positive
    definite, or no lower triangle with a positive diagonal. RuntimeError where df and the batch dims do not broadcast; TypeError for a df that is no number."""

    arg_constraints = {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
                       "df": constraints.greater_than(0)}
    support = constraints.positive_definite
    has_rsample = True

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {k: v for k, v in given.items() if v is not None}
        if len(given) != 1:
            raise ValueError(f"Wishart: needs one of covariance_matrix, precision_matrix and scale_tril; got {sorted(given)}")
        check_tensors("Wishart", **given)
        ((name, matrix),) = given.items()
        if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
            raise ValueError(f"Wishart: {name} is not of square matrices; got shape {tuple(matrix.shape)}")
        n = matrix.shape[-1]
        df = df if isinstance(df, _C.Tensor) else _C.full((), df, dtype=matrix.dtype, device=matrix.device)
        if not bool((df.detach() > n - 1).all()):
            raise ValueError(f"Wishart: df is too small; got {df.tolist()} for matrices of size {n}; expected more than {n - 1}")
        batch = tuple(broadcast_shapes(tuple(matrix.shape[:-2]), tuple(df.shape)))
        self.df = df.expand(batch)
        self.__dict__[name] = matrix.expand(*batch, n, n)
        super().__init__(batch, (n, n), validate_args)
        self.scale_tril = factor_of(name, self.__dict__[name])

    def __getattr__(self, name):
        if name == "covariance_matrix" and "scale_tril" in self.__dict__:
            return _C.matmul(self.scale_tril, self.scale_tril.mT)
        if name == "precision_matrix" and "scale_tril" in self.__dict__:
            return cholesky_inverse(self.scale_tril)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _times_covariance(self, factor):
        return factor.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix

    mean = property(lambda self: self._times_covariance(self.df), doc="The mean, df covariance: a tensor of [*batch_shape, D, D] and of the parameters' dtype.")

    @property
    def mode(self):
        """The mode, (df - D - 1) covariance, NaN for a df of at most D + 1: a tensor of [*batch_shape, D, D] and of the parameters' dtype."""
        factor = self.df - self._event_shape[0] - 1
        return self._times_covariance(_C.where(factor > 0, factor, math.nan))

    @property
    def variance(self):
        """The variance, df (V_ij^2 + V_ii V_jj) for the covariance matrix V: a tensor of [*batch_shape, D, D] and of the parameters' dtype."""
        v = self.covariance_matrix
        diagonal = v.diagonal(0, -2, -1)
        return self.df.unsqueeze(-1).unsqueeze(-1) * (v * v + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape=()):
        n, shape = self._event_shape[0], self._extended_shape(sample_shape)
        freedom = self.df.unsqueeze(-1) - _C.arange(n, dtype=self.df.dtype, device=self.df.device)
        diagonal = _C.sqrt(_C.clamp(Chi2(freedom, validate_args=False).rsample(sample_shape), min=tiny(self.df)))
        factor = _C.matmul(self.scale_tril, _C.tril(normal(shape, self.scale_tril), -1) + diag_embed(diagonal))
        return _C.matmul(factor, factor.mT)

    def _half_log_det(self):
        return _C.log(self.scale_tril.diagonal(0, -2, -1)).sum(-1)

    def _mean_of_log_det(self):
        """Of draws, less that of the covariance matrix."""
        n = self._event_shape[0]
        halves = (self.df.unsqueeze(-1) - _C.arange(n, dtype=self.df.dtype, device=self.df.device)) / 2
        return digamma(halves).sum(-1) + n * math.log(2)

    def log_prob(self, value):
        self._validate_sample(value)
        n, df = self._event_shape[0], self.df
        shape = broadcast_shapes(tuple(value.shape), tuple(self.scale_tril.shape))
        ratio = cholesky_solve(value.expand(*shape), self.scale_tril.expand(*shape)).diagonal(0, -2, -1).sum(-1)
        norm = df * (n * math.log(2) / 2 + self._half_log_det()) + multigammaln(df / 2, n)
        return (df - n - 1) / 2 * linalg.slogdet(value).logabsdet - ratio / 2 - norm

    def entropy(self):
        n, df = self._event_shape[0], self.df
        norm = df * (n * math.log(2) / 2 + self._half_log_det()) + multigammaln(df / 2, n)
        return norm + df * n / 2 - (df - n - 1) / 2 * (self._mean_of_log_det() + 2 * self._half_log_det())


@register_kl(Wishart, Wishart)
def _wisharts(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError(f"kl_divergence: Wisharts of different sizes; got {tuple(p.event_shape)} and {tuple(q.event_shape)}")
    n = p.event_shape[0]
    shape = (*broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape)), n, n)
    ratio = linalg.solve_triangular(q.scale_tril.expand(*shape), p.scale_tril.expand(*shape), upper=False)
    norms = multigammaln(q.df / 2, n) - multigammaln(p.df / 2, n)
    trace = (ratio * ratio).sum(-1).sum(-1)
    return q.df * (q._half_log_det() - p._half_log_det()) + norms + p.df / 2 * (trace - n) + (p.df - q.df) / 2 * (p._mean_of_log_det() - n * math.log(2))


class LKJCholesky(Distribution):
    """Lower Cholesky factors of correlation matrices of size dim, whose density is proportional to det^(concentration - 1): 1 is uniform. Draws have no
    gradient; they are made row by row (the onion method of Lewandowski, Kurowicka and Joe, 2009).

    dim: an int of 2 or more; TypeError for what is no int, ValueError for a smaller one. concentration: a number or a tensor; ValueError, where arguments are
    checked, for one that is not above 0. validate_args: as in Distribution."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise TypeError(f"LKJCholesky: dim is not a size; got {dim!r}; expected an int of 2 or more")
        if dim < 2:
            raise ValueError(f"LKJCholesky: too small; got dim={dim}; expected 2 or more")
        self.dim, (self.concentration,) = dim, broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape=()):
        """For each row, the part of its length that is left of the diagonal, and a direction."""
        with no_grad():
            like = self.concentration
            before = _C.clamp(_C.arange(self.dim, dtype=like.dtype, device=like.device) - 1, min=0)
            length = Beta(before / 2 + 0.5, like.unsqueeze(-1) + (self.dim - 2) / 2 - before / 2, validate_args=False).sample(sample_shape)
            direction = _C.tril(normal(self._extended_shape(sample_shape), like), -1)
            squares = (direction * direction).sum(-1, keepdim=True)
            rows = direction * _C.sqrt(length.unsqueeze(-1) / _C.where(squares == 0, 1.0, squares))
            return rows + diag_embed(_C.sqrt(_C.clamp(1 - (rows * rows).sum(-1), min=tiny(like))))

    def log_prob(self, value):
        self._validate_sample(value)
        n = self.dim - 1
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - _C.arange(2, self.dim + 1, dtype=self.concentration.dtype, device=self.concentration.device)
        alpha = self.concentration + n / 2
        norm = n * math.log(math.pi) / 2 + multigammaln(alpha - 0.5, n) - n * lgamma(alpha)
        return (order * _C.log(value.diagonal(0, -2, -1).narrow(-1, 1, n))).sum(-1) - norm
