"""Parameter: a tensor that a Module registers automatically."""
from .. import _C
from .._C import Tensor


def _rebuild(data, requires_grad):
    return Parameter(data, requires_grad)


class Parameter(Tensor):
    """A leaf tensor that becomes a parameter of the Module it is assigned to. Shares data's memory."""

    def __init__(self, data=None, requires_grad=True):
        if data is None:
            data = _C.empty(0)
        super().__init__(data.detach() if isinstance(data, Tensor) else _C.tensor(data))
        if requires_grad:
            self.requires_grad_(True)

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        with _no_grad():
            copy = type(self)(self.detach().clone(), self.requires_grad)
        if self.grad is not None:
            copy.grad = self.grad.detach().clone()
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol):
        return (_rebuild, (self.detach(), self.requires_grad))


def _no_grad():
    from .._grad_mode import no_grad

    return no_grad()
