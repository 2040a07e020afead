"""Parameters as one vector, and back."""
from ... import _C
from ..._C import Tensor
from ..._grad_mode import no_grad


def parameters_to_vector(parameters):
    """All parameters as one vector."""
    return _C.cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec, parameters):
    """Copies the parts of a vector into the parameters."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"vector_to_parameters: not a tensor; got {type(vec).__name__}; expected a vector")
    at = 0
    with no_grad():
        for p in parameters:
            p.copy_(vec[at : at + p.numel()].view(p.shape))
            at += p.numel()
