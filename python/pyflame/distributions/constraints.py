"""Sets of values: what a parameter may be, and what a distribution can give. check(value) says which values are within."""
from .. import _C, linalg


def _check_count(op, count):
    """TypeError or ValueError unless it is a number of dims."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{op}: not a number of dims; got {count!r}; expected an int")
    if count < 0:
        raise ValueError(f"{op}: a negative number of dims; got {count}; expected 0 or more")


class Constraint:
    """A set. event_dim: how many of the last dims one value has. A subclass defines check(); that of this class is a NotImplementedError."""

    is_discrete, event_dim = False, 0

    def check(self, value):
        """Whether each value is in the set: a bool tensor with the shape of value without its last event_dim dims. Those of cat() and stack() have the
        answer for each part instead. ValueError for a set that depends on parameters."""
        raise NotImplementedError(f"{type(self).__name__}: check is not implemented; expected a subclass that defines it")

    def __repr__(self):
        return type(self).__name__.lstrip("_") + "()"


class _Dependent(Constraint):
    def check(self, value):
        raise ValueError("constraints: cannot check a constraint that depends on parameters; hint: ask an instance of the distribution")


class _Real(Constraint):
    def check(self, value):
        return value == value


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value):
        return _C.logical_or(value == 0, value == 1)


class _Interval(Constraint):
    def __init__(self, lower_bound=None, upper_bound=None, closed=True, discrete=False, half=False):
        self.lower_bound, self.upper_bound, self.closed, self.is_discrete, self.half = lower_bound, upper_bound, closed, discrete, half

    def check(self, value):
        good = value == value
        if self.lower_bound is not None:
            good = _C.logical_and(good, value >= self.lower_bound if self.closed or self.half else value > self.lower_bound)
        if self.upper_bound is not None:
            good = _C.logical_and(good, value <= self.upper_bound if self.closed else value < self.upper_bound)
        if self.is_discrete and value.is_floating_point():
            good = _C.logical_and(good, value - _C.floor(value) == 0)  # not infinities
        return good

    def __repr__(self):
        kind = "Integer" if self.is_discrete else ""
        if self.upper_bound is None:
            return f"{kind}GreaterThan{'Eq' if self.closed else ''}(lower_bound={self.lower_bound})"
        return f"{kind or ''}Interval(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value):
        return _C.logical_and((value >= 0).all(-1), _C.abs(value.sum(-1) - 1) < 1e-6 * max(1, value.shape[-1]))


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value):
        return _C.logical_and(_C.logical_or(value == 0, value == 1).all(-1), value.sum(-1) == 1)


class _Counts(Constraint):
    """Numbers of draws of each class whose sum is at most a total."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound

    def check(self, value):
        return _C.logical_and((value >= 0).all(-1), value.sum(-1) <= self.upper_bound)


class _LowerCholesky(Constraint):
    event_dim = 2

    def check(self, value):
        return _C.logical_and((_C.tril(value) == value).all(-1).all(-1), (value.diagonal(0, -2, -1) > 0).all(-1))


class _CorrelationCholesky(_LowerCholesky):
    def check(self, value):
        precision = 2.0**-52 if value.dtype == _C.float64 else 2.0**-23
        length = _C.sqrt((value * value).sum(-1))
        return _C.logical_and((_C.abs(length - 1) < 10 * value.shape[-1] * precision).all(-1), super().check(value))


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value):
        return (_C.tril(value) == value).all(-1).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value):
        return _C.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=_C.bool_, device=value.device)


class _Symmetric(_Square):
    def check(self, value):
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return (_C.abs(value - value.mT) <= 1e-6 + 1e-5 * _C.abs(value)).all(-1).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return _C.logical_and(symmetric, (linalg.eigvalsh(value) >= 0).all(-1)) if value.shape[-2] == value.shape[-1] else symmetric


class _PositiveDefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return _C.logical_and(symmetric, linalg.cholesky_ex(value).info == 0) if value.shape[-2] == value.shape[-1] else symmetric


class _Parts(Constraint):
    """Parts of a dim with constraints of their own."""

    def __init__(self, cseq, dim):
        if not all(isinstance(c, Constraint) for c in cseq):
            raise ValueError(f"{type(self).__name__.lstrip('_')}: not constraints; got {cseq!r}; expected a list of them")
        self.cseq, self.dim = list(cseq), dim

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))
    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))


def _check_places(op, value, dim, count, what):
    size = value.shape[dim]
    if size != count:
        raise ValueError(f"{op}: the value does not fit the constraints; got size {size} in dim {dim} of shape {tuple(value.shape)}; expected {count}, {what}")


class _Cat(_Parts):
    def __init__(self, cseq, dim=0, lengths=None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ValueError(f"Cat: lengths and constraints differ in number; got {len(self.lengths)} and {len(self.cseq)}")

    def check(self, value):
        _check_places("cat", value, self.dim, sum(self.lengths), "the sum of lengths")
        starts = [sum(self.lengths[:i]) for i in range(len(self.lengths))]
        return _C.cat([c.check(value.narrow(self.dim, start, n)) for c, start, n in zip(self.cseq, starts, self.lengths)], self.dim)


class _Stack(_Parts):
    @property
    def event_dim(self):
        dims = max(c.event_dim for c in self.cseq)
        return dims + 1 if self.dim + dims < 0 else dims

    def check(self, value):
        _check_places("stack", value, self.dim, len(self.cseq), "the number of constraints")
        return _C.stack([c.check(value.select(self.dim, i)) for i, c in enumerate(self.cseq)], self.dim)


class _Independent(Constraint):
    """A constraint that holds for all elements of the last reinterpreted_batch_ndims dims together. ValueError for a base that is no Constraint, and for a
    negative number; TypeError for a number that is no int."""

    def __init__(self, base, reinterpreted_batch_ndims):
        if not isinstance(base, Constraint):
            raise ValueError(f"independent: not a constraint; got {base!r}; expected a Constraint")
        _check_count("independent", reinterpreted_batch_ndims)
        self.base_constraint, self.reinterpreted_batch_ndims = base, reinterpreted_batch_ndims
        self.is_discrete, self.event_dim = base.is_discrete, base.event_dim + reinterpreted_batch_ndims

    def check(self, value):
        good = self.base_constraint.check(value)
        for _ in range(self.reinterpreted_batch_ndims):
            good = good.all(-1)
        return good


dependent = _Dependent()
real = _Real()
real_vector = _Independent(real, 1)
boolean = _Boolean()
one_hot = _OneHot()
simplex = _Simplex()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrelationCholesky()
positive_definite = _PositiveDefinite()
positive_semidefinite = _PositiveSemidefinite()
lower_triangular = _LowerTriangular()
square = _Square()
symmetric = _Symmetric()
positive = _Interval(0.0, closed=False)
nonnegative = _Interval(0.0)
unit_interval = _Interval(0.0, 1.0)
nonnegative_integer = _Interval(0, discrete=True)
positive_integer = _Interval(1, discrete=True)
independent = _Independent


def cat(cseq, dim=0, lengths=None):
    """The tensors whose neighbouring parts along dim are in the sets of cseq, a list of constraints. lengths: the size of each part, 1 by default.
    ValueError for what is no constraint, or for another number of lengths. check() looks at the parts only: what comes after the last one is not in its result."""
    return _Cat(cseq, dim, lengths)


def stack(cseq, dim=0):
    """The tensors whose place i along dim is in the set cseq[i]. cseq: a list of constraints of one event_dim; ValueError for what is no constraint.
    check() is an IndexError where dim has fewer places than cseq; places after those of cseq are not looked at."""
    return _Stack(cseq, dim)


def greater_than(lower_bound):
    """The numbers x with x > lower_bound; NaN is not one. lower_bound: a number, or a tensor that broadcasts with what is checked; if it does not, check() is
    a ValueError. check() of complex numbers is a TypeError."""
    return _Interval(lower_bound, closed=False)


def greater_than_eq(lower_bound):
    """The numbers x with x >= lower_bound; NaN is not one. lower_bound: a number, or a tensor that broadcasts with what is checked; if it does not, check() is
    a ValueError. check() of complex numbers is a TypeError."""
    return _Interval(lower_bound)


def less_than(upper_bound):
    """The numbers x with x < upper_bound; NaN is not one. upper_bound: a number, or a tensor that broadcasts with what is checked; if it does not, check() is
    a ValueError. check() of complex numbers is a TypeError."""
    return _Interval(None, upper_bound, closed=False)


def interval(lower_bound, upper_bound):
    """The numbers x with lower_bound <= x <= upper_bound; NaN is not one. The bounds: numbers, or tensors that broadcast with what is checked; if they do
    not, check() is a ValueError. check() of complex numbers is a TypeError. No number is in an interval whose upper bound is the smaller one."""
    return _Interval(lower_bound, upper_bound)


def half_open_interval(lower_bound, upper_bound):
    """The numbers x with lower_bound <= x < upper_bound; NaN is not one. The bounds: numbers, or tensors that broadcast with what is checked; if they do
    not, check() is a ValueError. check() of complex numbers is a TypeError. No number is in an interval whose upper bound is the smaller one."""
    return _Interval(lower_bound, upper_bound, closed=False, half=True)


def integer_interval(lower_bound, upper_bound):
    """The whole numbers x with lower_bound <= x <= upper_bound, in an integer or a floating dtype. The bounds: numbers, or tensors that broadcast with what is
    checked; if they do not, check() is a ValueError. check() of complex numbers is a TypeError."""
    return _Interval(lower_bound, upper_bound, discrete=True)


def multinomial(upper_bound):
    """Counts of draws: numbers of at least 0 whose sum over the last dim is at most upper_bound. check() does not ask whether they are whole. upper_bound: a
    number, or a tensor that broadcasts with the sums; if it does not, check() is a ValueError."""
    return _Counts(upper_bound)
