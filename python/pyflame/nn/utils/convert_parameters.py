"""Parameters as one vector, and back."""
from __future__ import annotations

from ... import _C
from ..._C import Tensor
from ..._grad_mode import no_grad

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters as one vector: tensors of any shapes, row by row and one behind the other, [the sum of their elements].

    parameters: an iterable of tensors, such as model.parameters(). ArgumentError for none. Gradients flow back to the parameters.
    """
    return _C.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies the parts of a vector into the parameters, in their order, without a gradient: the inverse of parameters_to_vector. Returns None.

    vec: [the sum of their elements]; TypeError for no tensor, ArgumentError where it ends early, after which the parameters before have new values.
    Elements behind the last part are not used.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: not a tensor; got {type(vec).__name__}; expected a vector")
    at = 0
    with no_grad():
        for p in parameters:
            p.copy_(vec[at : at + p.numel()].view(p.shape))
            at += p.numel()
