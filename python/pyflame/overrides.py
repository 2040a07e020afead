"""Questions about __torch_function__, which ops do not call: no argument overrides a function."""
from . import _refused
from ._C import Tensor


def has_torch_function(relevant_args):
    """False: no argument overrides a function."""
    return False


def has_torch_function_unary(obj):
    """False: the argument overrides no function."""
    return False


def has_torch_function_variadic(*args):
    """False: no argument overrides a function."""
    return False


def is_tensor_like(inp):
    """Whether it is a tensor."""
    return isinstance(inp, Tensor)


__getattr__ = _refused.module("overrides", "__torch_function__ is not called: subclasses of Tensor are plain tensors to ops")
