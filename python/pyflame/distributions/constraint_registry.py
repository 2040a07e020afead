"""Transforms from real numbers to the values that a constraint allows, as PyTorch's torch.distributions.constraint_registry: for real numbers,
intervals, half-lines, simplexes, triangular and positive definite matrices, and for parts of these. Others can be registered."""
from .._C import Tensor
from . import constraints
from .transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    identity_transform,
)


class ConstraintRegistry:
    """Finds the transform of a constraint: registry(constraint)."""

    def __init__(self, name):
        self._name, self._made = name, {}

    def register(self, constraint, factory=None):
        """factory(constraint) makes the transform of constraints of this class, or of this object's class. Without factory: a decorator."""
        if factory is None:
            return lambda given: self.register(constraint, given)
        kind = constraint if isinstance(constraint, type) else type(constraint)
        if not issubclass(kind, constraints.Constraint):
            raise TypeError(f"{self._name}.register: not a constraint; got {constraint!r}; expected a Constraint or a class of them")
        self._made[kind] = factory
        return factory

    def __call__(self, constraint):
        """The transform whose values the constraint allows. NotImplementedError if none is registered for its class."""
        factory = self._made.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"{self._name}: no transform to this constraint; got {type(constraint).__name__}; hint: {self._name}.register(constraint, factory)")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry("biject_to"), ConstraintRegistry("transform_to")


def _to_interval(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if constraint.is_discrete:
        raise NotImplementedError("biject_to, transform_to: no transform to whole numbers; got a discrete constraint")
    if high is None or low is None:
        bound, scale = (low, 1) if high is None else (high, -1)
        if scale == 1 and not isinstance(bound, Tensor) and bound == 0:
            return ExpTransform()
        return ComposeTransform([ExpTransform(), AffineTransform(bound, scale)])
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _register_for_both(registry):
    registry.register(constraints.real, lambda constraint: identity_transform)
    registry.register(constraints.positive, _to_interval)
    registry.register(constraints.corr_cholesky, lambda constraint: CorrCholeskyTransform())
    registry.register(constraints.real_vector, lambda c: IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims))
    registry.register(constraints.cat([]), lambda c: CatTransform([registry(part) for part in c.cseq], c.dim, c.lengths))
    registry.register(constraints.stack([]), lambda c: StackTransform([registry(part) for part in c.cseq], c.dim))


_register_for_both(biject_to)
_register_for_both(transform_to)
biject_to.register(constraints.simplex, lambda constraint: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: LowerCholeskyTransform())
transform_to.register(constraints.positive_definite, lambda constraint: PositiveDefiniteTransform())
transform_to.register(constraints.positive_semidefinite, lambda constraint: PositiveDefiniteTransform())
