"""Invertible functions with the logarithm of their slope, for TransformedDistribution."""
import copy
import math

from .. import _C
from .._shapes import broadcast_shapes, diag_embed
from ..linalg import cholesky
from . import constraints
from ._math import eps, tiny
from .distribution import Distribution, sum_rightmost
from .utils import tril_matrix_to_vec, vec_to_tril_matrix


def _same(a, b):
    if isinstance(a, _C.Tensor) or isinstance(b, _C.Tensor):
        x, y = (a, b) if isinstance(a, _C.Tensor) else (b, a)
        return bool(x.eq(y).all())
    return a == b


def _broadcast(shape, *values):
    return tuple(broadcast_shapes(tuple(shape), *(tuple(v.shape) for v in values if hasattr(v, "shape"))))


def _widened(constraint, event_dim):
    """The constraint of values of event_dim dims, at least as many as its own."""
    return constraint if event_dim == constraint.event_dim else constraints.independent(constraint, event_dim - constraint.event_dim)


class Transform:
    """y = t(x), x = t.inv(y), and log_abs_det_jacobian(x, y). A subclass defines _call, _inverse and log_abs_det_jacobian.

    cache_size: 1: the last x and y are kept, so that t.inv(t(x)) is x itself; 0: none; ValueError for another. What a subclass does not define is a
    NotImplementedError when it is needed."""

    bijective = True
    domain = codomain = constraints.real
    sign = 1

    _kept = (None, None)  # with cache_size=1, the last x and y

    def __init__(self, cache_size=0):
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size is not 0 or 1; got {cache_size!r}")
        self._cache_size = cache_size

    @property
    def event_dim(self):
        """How many of the last dims are one value, where domain and codomain have the same number of them; otherwise ValueError."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError(f"{type(self).__name__}: values and results have different numbers of dims; hint: domain.event_dim or codomain.event_dim")
        return self.domain.event_dim

    @property
    def inv(self):
        """The inverse x = t.inv(y), as a transform: its inv is this transform, its domain is this codomain."""
        return _Inverse(self)

    def with_cache(self, cache_size=1):
        """The same transform that keeps its last input and result (1) or none (0). With 1, t.inv(t(x)) is x itself."""
        new = copy.copy(self)
        Transform.__init__(new, cache_size)
        new._kept = (None, None)
        return new

    def __call__(self, x):
        if self._cache_size == 0:
            return self._call(x)
        if x is not self._kept[0]:
            self._kept = (x, self._call(x))
        return self._kept[1]

    def _inv_call(self, y):
        if self._cache_size == 0:
            return self._inverse(y)
        if y is not self._kept[1]:
            self._kept = (self._inverse(y), y)
        return self._kept[0]

    def __eq__(self, other):
        return type(self) is type(other) and all(_same(v, other.__dict__[k]) for k, v in self.__dict__.items() if k not in ("_cache_size", "_kept"))

    __hash__ = object.__hash__

    def forward_shape(self, shape):
        """The shape of t(x) for x of the given shape. It is the same shape, unless the transform says otherwise."""
        return shape

    def inverse_shape(self, shape):
        """The shape of t.inv(y) for y of the given shape. It is the same shape, unless the transform says otherwise."""
        return shape

    def _call(self, x):
        raise NotImplementedError(f"{type(self).__name__}: _call is not implemented; expected a subclass that defines it")

    def _inverse(self, y):
        raise NotImplementedError(f"{type(self).__name__}: _inverse is not implemented; expected a subclass that defines it")

    def log_abs_det_jacobian(self, x, y):
        """log |dy / dx| at x with y = self(x), summed over the dims of one value."""
        raise NotImplementedError(f"{type(self).__name__}: log_abs_det_jacobian is not available")

    def __repr__(self):
        return type(self).__name__ + "()"


class _Inverse(Transform):
    def __init__(self, of):
        super().__init__()
        self._of = of

    bijective = property(lambda self: self._of.bijective)
    domain = property(lambda self: self._of.codomain, doc="The numbers that the transform takes, as a constraint.")
    codomain = property(lambda self: self._of.domain, doc="The numbers that the transform gives, as a constraint.")
    sign = property(lambda self: self._of.sign)
    inv = property(lambda self: self._of)

    def _call(self, y):
        return self._of._inv_call(y)

    def _inverse(self, x):
        return self._of(x)

    def forward_shape(self, shape):
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._of.forward_shape(shape)

    def log_abs_det_jacobian(self, y, x):
        return -self._of.log_abs_det_jacobian(x, y)


class ComposeTransform(Transform):
    """Transforms one after the other: the first of parts transforms x, and each of the others the result before it. log_abs_det_jacobian is the sum of theirs.
    An empty list is the identity. cache_size: as in Transform, for all parts. ValueError for a part that is no Transform.
    """

    def __init__(self, parts, cache_size=0):
        super().__init__(cache_size)
        if not all(isinstance(p, Transform) for p in parts):
            raise ValueError(f"ComposeTransform: not transforms; got {parts!r}; expected a list of them")
        self.parts = [p.with_cache(cache_size) if cache_size else p for p in parts]

    def with_cache(self, cache_size=1):
        return ComposeTransform([p.with_cache(cache_size) for p in self.parts], cache_size)

    def _dims(self):
        """The number of dims of one value before each part and after the last one, which all parts need together."""
        dims, needed = [0], 0
        for p in self.parts:
            needed = max(needed, p.domain.event_dim - dims[-1])
            dims.append(dims[-1] + p.codomain.event_dim - p.domain.event_dim)
        return [needed + d for d in dims]

    @property
    def domain(self):
        """The values that the transform takes, as a constraint: the domain of the first part, with as many dims as the parts need together."""
        return _widened(self.parts[0].domain, self._dims()[0]) if self.parts else constraints.real

    @property
    def codomain(self):
        """The values that the transform gives, as a constraint: the codomain of the last part, with as many dims as the parts need together."""
        return _widened(self.parts[-1].codomain, self._dims()[-1]) if self.parts else constraints.real

    bijective = property(lambda self: all(p.bijective for p in self.parts))
    inv = property(lambda self: ComposeTransform([p.inv for p in reversed(self.parts)]))

    def forward_shape(self, shape):
        for p in self.parts:
            shape = p.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for p in reversed(self.parts):
            shape = p.inverse_shape(shape)
        return shape

    @property
    def sign(self):
        return math.prod(p.sign for p in self.parts)

    def _call(self, x):
        for p in self.parts:
            x = p(x)
        return x

    def log_abs_det_jacobian(self, x, y):
        total = 0 if self.parts else _C.zeros_like(x)
        for i, (p, dims) in enumerate(zip(self.parts, self._dims())):
            after = y if i == len(self.parts) - 1 else p(x)
            total = total + sum_rightmost(p.log_abs_det_jacobian(x, after), dims - p.domain.event_dim)
            x = after
        return total


class ExpTransform(Transform):
    """y = exp(x), for a tensor of real x; the inverse is log(y), and log_abs_det_jacobian is x. y has x's shape and floating dtype; for integers it has the
    default dtype. cache_size: as in Transform. A call is a TypeError for an x that is no tensor.
    """

    codomain = constraints.positive

    def _call(self, x):
        return _C.exp(x)

    def _inverse(self, y):
        return _C.log(y)

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """y = x^exponent, for positive x; the inverse is y^(1 / exponent). exponent: a number, not 0 (ValueError), or a tensor, whose values are not checked.
    cache_size: as in Transform. A call is a ValueError for an x that does not broadcast with exponent."""

    domain = codomain = constraints.positive

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size)
        if not isinstance(exponent, _C.Tensor) and exponent == 0:
            raise ValueError(f"PowerTransform: the exponent has no inverse; got {exponent!r}; expected a number other than 0")
        self.exponent = exponent

    @property
    def sign(self):
        return _C.sign(self.exponent) if isinstance(self.exponent, _C.Tensor) else (self.exponent > 0) - (self.exponent < 0)

    def forward_shape(self, shape):
        return _broadcast(shape, self.exponent)

    inverse_shape = forward_shape

    def _call(self, x):
        return x**self.exponent

    def _inverse(self, y):
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return _C.log(_C.abs(self.exponent * y / x))


class SigmoidTransform(Transform):
    """y = 1 / (1 + exp(-x)), for a tensor of real x, kept off 0 and 1; the inverse is log(y / (1 - y)). y has x's shape and floating dtype; for integers it
    has the default dtype. cache_size: as in Transform. A call is a TypeError for an x that is no tensor, or is complex."""

    codomain = constraints.unit_interval

    def _call(self, x):
        return _C.clamp(_C.sigmoid(x), min=tiny(x), max=1 - eps(x))

    def _inverse(self, y):
        y = _C.clamp(y, min=tiny(y), max=1 - eps(y))
        return _C.log(y) - _C.log1p(-y)

    def log_abs_det_jacobian(self, x, y):
        return -_C.softplus(-x) - _C.softplus(x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x)), for a tensor of real x; the inverse is log(exp(y) - 1), and log_abs_det_jacobian is log(sigmoid(x)). y has x's shape and floating
    dtype; for integers it has the default dtype. cache_size: as in Transform. A call is a TypeError for an x that is no tensor, or is complex."""

    codomain = constraints.positive

    def _call(self, x):
        return _C.softplus(x)

    def _inverse(self, y):
        return _C.log(-_C.expm1(-y)) + y

    def log_abs_det_jacobian(self, x, y):
        return -_C.softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x), for a tensor of real x; the inverse is atanh(y), and log_abs_det_jacobian is log(1 - y^2), computed from x. y has x's shape and floating
    dtype; for integers it has the default dtype. cache_size: as in Transform. A call is a TypeError for an x that is no tensor."""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x):
        return _C.tanh(x)

    def _inverse(self, y):
        return _C.atanh(y)

    def log_abs_det_jacobian(self, x, y):
        return 2 * (math.log(2) - x - _C.softplus(-2 * x))


class AbsTransform(Transform):
    """y = |x|, for real x. It is not bijective: its inverse gives the positive x. log_abs_det_jacobian is NotImplementedError. cache_size: as in Transform.
    """

    codomain = constraints.nonnegative
    bijective = False

    def _call(self, x):
        return _C.abs(x)

    def _inverse(self, y):
        return y

    def log_abs_det_jacobian(self, x, y):
        raise NotImplementedError("AbsTransform: two numbers have one absolute value, so there is no slope of the inverse")


class AffineTransform(Transform):
    """y = loc + scale * x. loc, scale: numbers or tensors. event_dim: how many of the last dims are one value; TypeError for what is no int, ValueError for a
    negative one. cache_size: as in Transform. A call is a ValueError where x does not broadcast with loc and scale."""

    event_dim = 0

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    @property
    def sign(self):
        return _C.sign(self.scale) if hasattr(self.scale, "shape") else (self.scale > 0) - (self.scale < 0)

    def forward_shape(self, shape):
        return _broadcast(shape, self.loc, self.scale)

    inverse_shape = forward_shape

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        size = _C.log(_C.abs(self.scale)) if hasattr(self.scale, "shape") else math.log(abs(self.scale)) if self.scale else -math.inf
        return sum_rightmost(_C.zeros_like(x) + size, self.event_dim)


class SoftmaxTransform(Transform):
    """y = exp(x) / sum(exp(x)) over the last dim, points of a simplex. It is not bijective: the inverse is log(y), and log_abs_det_jacobian is
    NotImplementedError. cache_size: as in Transform.
    """

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, False

    def _call(self, x):
        return _C.softmax(x, -1)

    def _inverse(self, y):
        return _C.log(y)


class StickBreakingTransform(Transform):
    """Vectors [.., D] as points of a simplex [.., D + 1]: each number says, through a sigmoid, how much of what the ones before it left it takes.
    cache_size: as in Transform. A call, or its inverse, is a ValueError for a tensor without dims."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _offsets(self, x, n):
        """Makes zeros the center of the simplex."""
        return _C.log(_C.arange(n, 0, -1, dtype=x.dtype, device=x.device))

    def _checked(self, x):
        if x.ndim < 1:
            raise ValueError("StickBreakingTransform: not vectors; got shape (); expected at least 1 dim")
        return x

    def _call(self, x):
        x = self._checked(x)
        taken = _C.clamp(_C.sigmoid(x - self._offsets(x, x.shape[-1])), min=tiny(x), max=1 - eps(x))
        return _C.pad(taken, (0, 1), value=1) * _C.pad(_C.cumprod(1 - taken, -1), (1, 0), value=1)

    def _inverse(self, y):
        y = self._checked(y)
        first = y.narrow(-1, 0, y.shape[-1] - 1)
        left = _C.clamp(1 - _C.cumsum(first, -1), min=tiny(y))
        return _C.log(first) - _C.log(left) + self._offsets(y, first.shape[-1])

    def log_abs_det_jacobian(self, x, y):
        n = x.shape[-1]
        return (_C.log(y.narrow(-1, 0, n)) - _C.softplus(x - self._offsets(x, n))).sum(-1)

    def forward_shape(self, shape):
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape):
        return (*shape[:-1], shape[-1] - 1)


class IndependentTransform(Transform):
    """base_transform, of which reinterpreted_batch_ndims more of the last dims are one value: log_abs_det_jacobian sums over them.

    reinterpreted_batch_ndims: an int of 0 or more. cache_size: as in Transform. ValueError for what is no Transform and for a negative number; TypeError for
    a number that is no int. A call is a ValueError for a tensor of fewer dims than one value has."""

    def __init__(self, base_transform, reinterpreted_batch_ndims, cache_size=0):
        super().__init__(cache_size)
        if not isinstance(base_transform, Transform):
            raise ValueError(f"IndependentTransform: not a transform; got {base_transform!r}; expected a Transform")
        constraints._check_count("IndependentTransform", reinterpreted_batch_ndims)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims

    domain = property(lambda self: constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims),
                      doc="The values that the transform takes, as a constraint: that of base_transform, with reinterpreted_batch_ndims more dims.")
    codomain = property(lambda self: constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims),
                        doc="The values that the transform gives, as a constraint: that of base_transform, with reinterpreted_batch_ndims more dims.")
    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)

    def _checked(self, x, dims):
        if x.ndim < dims:
            raise ValueError(f"IndependentTransform: too few dims; got shape {tuple(x.shape)}; expected at least {dims} dims")
        return x

    def _call(self, x):
        return self.base_transform(self._checked(x, self.domain.event_dim))

    def _inverse(self, y):
        return self.base_transform.inv(self._checked(y, self.codomain.event_dim))

    def log_abs_det_jacobian(self, x, y):
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape):
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape):
        return self.base_transform.inverse_shape(shape)

    def __repr__(self):
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """The last dims, in_shape, as out_shape. The logarithm of the slope is 0. cache_size: as in Transform. ValueError where the shapes have different numbers of
    elements; a call is a ValueError for a tensor whose last dims are not in_shape, and its inverse for one whose last dims are not out_shape."""

    def __init__(self, in_shape, out_shape, cache_size=0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = _C.Size(in_shape), _C.Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(f"ReshapeTransform: different numbers of elements; got in_shape {tuple(in_shape)} and out_shape {tuple(out_shape)}")

    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)),
                      doc="The values that the transform takes, as a constraint: real numbers, where one value has the dims of in_shape.")
    codomain = property(lambda self: constraints.independent(constraints.real, len(self.out_shape)),
                        doc="The values that the transform gives, as a constraint: real numbers, where one value has the dims of out_shape.")

    def _changed(self, shape, old, new):
        kept = len(shape) - len(old)
        if kept < 0 or tuple(shape[kept:]) != tuple(old):
            raise ValueError(f"ReshapeTransform: the last dims do not fit; got shape {tuple(shape)}; expected {tuple(old)} at its end")
        return (*shape[:kept], *new)

    def forward_shape(self, shape):
        return self._changed(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape):
        return self._changed(shape, self.out_shape, self.in_shape)

    def _call(self, x):
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y):
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x, y):
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])


def _check_square(op, x):
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError(f"{op}: not square matrices; got shape {tuple(x.shape)}; expected (.., D, D)")


class LowerCholeskyTransform(Transform):
    """Square matrices [.., D, D] as lower triangular ones with a positive diagonal: the exponential of the diagonal, the numbers below it, 0 above it.
    cache_size: as in Transform. A call, or its inverse, is a ValueError for what are no square matrices; log_abs_det_jacobian is a NotImplementedError."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x):
        _check_square("LowerCholeskyTransform", x)
        return _C.tril(x, -1) + diag_embed(_C.exp(x.diagonal(0, -2, -1)))

    def _inverse(self, y):
        _check_square("LowerCholeskyTransform", y)
        return _C.tril(y, -1) + diag_embed(_C.log(y.diagonal(0, -2, -1)))


class PositiveDefiniteTransform(Transform):
    """Square matrices [.., D, D] as positive definite ones: L L^T for L of LowerCholeskyTransform. cache_size: as in Transform. A call, or its inverse, is a
    ValueError for what are no square matrices, and the inverse a LinAlgError where one is not positive definite; log_abs_det_jacobian is a
    NotImplementedError."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x):
        _check_square("PositiveDefiniteTransform", x)
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y):
        _check_square("PositiveDefiniteTransform", y)
        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(Transform):
    """Vectors of D (D - 1) / 2 numbers as Cholesky factors of D x D correlation matrices: lower triangular, rows of length 1, a positive diagonal.

    The vector, through tanh, has the numbers below the diagonal in order of rows. Each takes its share of the length that the ones before it in its row left,
    and the diagonal gets the rest. Stan Development Team, "Stan reference manual": Cholesky factors of correlation matrices.
    log_abs_det_jacobian is that of the numbers below the diagonal. cache_size: as in Transform. A call is a ValueError for vectors of another length, its
    inverse for what are no square matrices."""

    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _call(self, x):
        self.forward_shape(x.shape)  # checks it
        bound = 1 - eps(x)
        shares = vec_to_tril_matrix(_C.clamp(_C.tanh(x), min=-bound, max=bound), diag=-1)
        left = _C.cumprod(_C.sqrt(1 - shares * shares), -1)
        one = _C.eye(shares.shape[-1], dtype=x.dtype, device=x.device)
        return (shares + one) * _C.pad(left.narrow(-1, 0, left.shape[-1] - 1), (1, 0), value=1)

    def _inverse(self, y):
        self.inverse_shape(y.shape)  # checks it
        left = 1 - _C.cumsum(y * y, -1)
        before = _C.pad(left.narrow(-1, 0, left.shape[-1] - 1), (1, 0), value=1)
        return _C.atanh(tril_matrix_to_vec(y, diag=-1) / _C.sqrt(tril_matrix_to_vec(before, diag=-1)))

    def log_abs_det_jacobian(self, x, y):
        left = tril_matrix_to_vec(1 - _C.cumsum(y * y, -1), diag=-2)
        return 0.5 * _C.log(left).sum(-1) - 2 * (x + _C.softplus(-2 * x) - math.log(2)).sum(-1)

    def forward_shape(self, shape):
        n = shape[-1] if len(shape) else 0
        dim = round((0.25 + 2 * n) ** 0.5 + 0.5)
        if len(shape) < 1 or dim * (dim - 1) // 2 != n:
            raise ValueError(f"CorrCholeskyTransform: no matrix has so many numbers below its diagonal; got shape {tuple(shape)}; expected (.., D (D - 1) / 2)")
        return (*shape[:-1], dim, dim)

    def inverse_shape(self, shape):
        if len(shape) < 2 or shape[-2] != shape[-1]:
            raise ValueError(f"CorrCholeskyTransform: not square matrices; got shape {tuple(shape)}; expected (.., D, D)")
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


class _Parts(Transform):
    """What CatTransform and StackTransform share: each part of a dim goes through a transform of its own."""

    def __init__(self, tseq, dim, cache_size):
        super().__init__(cache_size)
        if not all(isinstance(t, Transform) for t in tseq):
            raise ValueError(f"{type(self).__name__}: not transforms; got {tseq!r}; expected a list of them")
        self.transforms, self.dim = [t.with_cache(cache_size) if cache_size else t for t in tseq], dim

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _checked(self, x, length):
        if not -x.ndim <= self.dim < x.ndim or x.shape[self.dim] != length:
            raise ValueError(f"{type(self).__name__}: the tensor does not fit; got shape {tuple(x.shape)}; expected {length} as the size of dim {self.dim}")

    def _call(self, x):
        return self._joined([t(part) for t, part in zip(self.transforms, self._divided(x))])

    def _inverse(self, y):
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._divided(y))])

    def _slopes(self, x, y):
        return [t.log_abs_det_jacobian(a, b) for t, a, b in zip(self.transforms, self._divided(x), self._divided(y))]


class CatTransform(_Parts):
    """The transforms of tseq on neighbouring parts of dim, which have the sizes of lengths (1 each by default), joined as by cat. cache_size: as in Transform.
    ValueError for what is no Transform, and for another number of lengths; a call is a ValueError for a tensor whose dim is not of the size of all lengths."""

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ValueError(f"CatTransform: lengths and transforms differ in number; got {len(self.lengths)} and {len(self.transforms)}")

    length = property(lambda self: sum(self.lengths), doc="The size that dim of an input must have: the sum of lengths, a number.")
    event_dim = property(lambda self: max(t.event_dim for t in self.transforms), doc="How many of the last dims are one value, for the transform with the most.")
    domain = property(lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths),
                      doc="The values that the transform takes, as a constraint: the domains of the parts, joined along dim.")
    codomain = property(lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths),
                        doc="The values that the transform gives, as a constraint: the codomains of the parts, joined along dim.")

    def _divided(self, x):
        self._checked(x, self.length)
        starts = [sum(self.lengths[:i]) for i in range(len(self.lengths))]
        return [x.narrow(self.dim, start, length) for start, length in zip(starts, self.lengths)]

    def _joined(self, parts):
        return _C.cat(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        slopes = [sum_rightmost(s, self.event_dim - t.event_dim) for s, t in zip(self._slopes(x, y), self.transforms)]
        dim = (self.dim - x.ndim if self.dim >= 0 else self.dim) + self.event_dim
        return _C.cat(slopes, dim) if dim < 0 else sum(slopes)


class StackTransform(_Parts):
    """The transforms of tseq, one for each place of dim, joined as by stack. cache_size: as in Transform. ValueError for what is no Transform; a call is a
    ValueError for a tensor whose dim has another size than tseq has transforms."""

    def __init__(self, tseq, dim=0, cache_size=0):
        super().__init__(tseq, dim, cache_size)

    domain = property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim),
                      doc="The values that the transform takes, as a constraint: the domains of the parts, one for each place of dim.")
    codomain = property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim),
                        doc="The values that the transform gives, as a constraint: the codomains of the parts, one for each place of dim.")

    def _divided(self, x):
        self._checked(x, len(self.transforms))
        return [x.select(self.dim, i) for i in range(len(self.transforms))]

    def _joined(self, parts):
        return _C.stack(parts, self.dim)

    def log_abs_det_jacobian(self, x, y):
        return _C.stack(self._slopes(x, y), self.dim)


class CumulativeDistributionTransform(Transform):
    """y = distribution.cdf(x): draws of the distribution as numbers of U(0, 1). The slope is the density. cache_size: as in Transform. ValueError for what is no
    Distribution. A call is a NotImplementedError where the distribution has no cdf, its inverse where it has no icdf."""

    codomain = constraints.unit_interval

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size)
        if not isinstance(distribution, Distribution):
            raise ValueError(f"CumulativeDistributionTransform: not a distribution; got {distribution!r}; expected a Distribution")
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support, doc="The values that the transform takes, as a constraint: the support of the distribution.")

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)


identity_transform = ComposeTransform([])
