"""PyTorch's old name for a tensor with a gradient."""
from .._C import Tensor


class _Variable(type):
    def __instancecheck__(cls, obj):
        return isinstance(obj, Tensor)


class _Engine:
    @property
    def queue_callback(self):
        from .graph import queue_callback  # it needs modules that an import of pyflame should not load

        return queue_callback


class Variable(metaclass=_Variable):
    """Variable(data, requires_grad) is a further name for the tensor; every tensor is an instance.

    data: a tensor; None: an empty one. With requires_grad, the result is another tensor of the same elements. volatile is accepted for PyTorch's programs and
    changes nothing. TypeError for data that is no tensor; ValueError for requires_grad=True of integers or bools."""

    _execution_engine = _Engine()

    def __new__(cls, data=None, requires_grad=False, volatile=None):
        if data is None:
            data = Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable: data is not a tensor; got {type(data).__name__}; expected a tensor")
        if requires_grad and not data.requires_grad:
            return data.detach().requires_grad_()
        return data
