"""The gradients of convolutions as functions, by PyTorch's names."""
from __future__ import annotations

from .. import _C
from .._grad_mode import enable_grad
from ..autograd import grad
from . import functional as F

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from .._annotations import Shape
    from ._annotations import Padding, Size


def _gradient(n, of_input, given, size, grad_output, settings):
    """The gradient of conv{n}d to the operand of this size, which has no influence on it beyond its shape; given is the other one."""
    wanted = _C.zeros(tuple(size), dtype=given.dtype, device=given.device, requires_grad=True)
    with enable_grad():
        operands = (wanted, given) if of_input else (given, wanted)
        y = getattr(F, f"conv{n}d")(*operands, None, *settings)
    return grad(y, wanted, grad_output, create_graph=_C.is_grad_enabled() and (given.requires_grad or grad_output.requires_grad))[0]


def conv1d_input(input_size: Shape, weight: Tensor, grad_output: Tensor, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1) -> Tensor:
    """The gradient of conv1d to its input [N, C, L], whose shape is input_size."""
    return _gradient(1, True, weight, input_size, grad_output, (stride, padding, dilation, groups))


def conv1d_weight(input: Tensor, weight_size: Shape, grad_output: Tensor, stride: Size = 1, padding: Padding = 0, dilation: Size = 1,
                  groups: int = 1) -> Tensor:
    """The gradient of conv1d to its weight, whose shape is weight_size."""
    return _gradient(1, False, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv2d_input(input_size: Shape, weight: Tensor, grad_output: Tensor, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1) -> Tensor:
    """The gradient of conv2d to its input [N, C, H, W], whose shape is input_size."""
    return _gradient(2, True, weight, input_size, grad_output, (stride, padding, dilation, groups))


def conv2d_weight(input: Tensor, weight_size: Shape, grad_output: Tensor, stride: Size = 1, padding: Padding = 0, dilation: Size = 1,
                  groups: int = 1) -> Tensor:
    """The gradient of conv2d to its weight, whose shape is weight_size."""
    return _gradient(2, False, input, weight_size, grad_output, (stride, padding, dilation, groups))


def conv3d_input(input_size: Shape, weight: Tensor, grad_output: Tensor, stride: Size = 1, padding: Padding = 0, dilation: Size = 1, groups: int = 1) -> Tensor:
    """The gradient of conv3d to its input [N, C, D, H, W], whose shape is input_size."""
    return _gradient(3, True, weight, input_size, grad_output, (stride, padding, dilation, groups))


def conv3d_weight(input: Tensor, weight_size: Shape, grad_output: Tensor, stride: Size = 1, padding: Padding = 0, dilation: Size = 1,
                  groups: int = 1) -> Tensor:
    """The gradient of conv3d to its weight, whose shape is weight_size."""
    return _gradient(3, False, input, weight_size, grad_output, (stride, padding, dilation, groups))
