"""Questions about __torch_function__, which ops do not call: no argument overrides a function."""
from . import _refused
from ._C import Tensor


def has_torch_function(relevant_args):
    """Always False: PyFlame does not ask arguments for __torch_function__, so none of relevant_args overrides a function. Raises nothing."""
    return False


def has_torch_function_unary(obj):
    """Always False: PyFlame does not ask arguments for __torch_function__, so obj overrides no function. Raises nothing."""
    return False


def has_torch_function_variadic(*args):
    """Always False: PyFlame does not ask arguments for __torch_function__, so none of args overrides a function. Raises nothing."""
    return False


def is_tensor_like(inp):
    """Whether inp is a Tensor or an object of a subclass of it, such as a Parameter. Returns a bool. Raises nothing."""
    return isinstance(inp, Tensor)


__getattr__ = _refused.module("overrides", "__torch_function__ is not called: subclasses of Tensor are plain tensors to ops")
