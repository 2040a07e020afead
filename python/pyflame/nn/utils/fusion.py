"""A batch norm in evaluation mode folded into the layer before it."""
from __future__ import annotations

import copy

from ... import _C
from ..parameter import Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ..._C import Tensor
    from .._annotations import ModuleT
    from ..module import Module


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None,
                         transpose: bool = False) -> tuple[Parameter, Parameter]:
    """(weight, bias) of a convolution that does the batch norm, too. transpose: of a transposed convolution.

    conv_w, conv_b: the weight and the bias of the convolution; conv_b may be None. bn_rm, bn_rv: running_mean and running_var of the batch norm, [channels]. bn_eps: its
    eps. bn_w, bn_b: its weight and bias, [channels], or None.

    Raises ValueError where the numbers of channels differ, and TypeError where running statistics are missing.
    """
    shape = (1, -1) if transpose else (-1, 1)
    bias = _C.zeros_like(bn_rm) if conv_b is None else conv_b
    weight = _C.ones_like(bn_rm) if bn_w is None else bn_w
    shift = _C.zeros_like(bn_rm) if bn_b is None else bn_b
    scale = weight * _C.rsqrt(bn_rv + bn_eps)
    fused_w = (conv_w * scale.reshape(*shape, *(1,) * (conv_w.ndim - 2))).to(conv_w.dtype)
    fused_b = ((bias - bn_rm) * scale + shift).to(conv_w.dtype)
    return Parameter(fused_w, conv_w.requires_grad), Parameter(fused_b, True if conv_b is None else conv_b.requires_grad)


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor,
                           bn_b: Tensor) -> tuple[Parameter, Parameter]:
    """(weight, bias) of a linear layer that does the batch norm, too.

    linear_w, linear_b: the weight and the bias of the layer; linear_b may be None. bn_rm, bn_rv: running_mean and running_var of the batch norm, [out_features], or [1].
    bn_eps: its eps. bn_w, bn_b: its weight and bias, of the same shape.

    Raises ValueError where the sizes differ, and TypeError where statistics, bn_w or bn_b are missing.
    """
    bias = _C.zeros_like(bn_rm) if linear_b is None else linear_b
    scale = bn_w * _C.rsqrt(bn_rv + bn_eps)
    fused_w = (linear_w * scale.unsqueeze(-1)).to(linear_w.dtype)
    fused_b = ((bias - bn_rm) * scale + bn_b).to(linear_w.dtype)
    return Parameter(fused_w, linear_w.requires_grad), Parameter(fused_b, True if linear_b is None else linear_b.requires_grad)


def _check(op, layer, bn):
    if layer.training or bn.training:
        raise AssertionError(f"{op}: both modules must be in evaluation mode; hint: eval()")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError(f"{op}: the batch norm has no running statistics; expected track_running_stats=True")


def fuse_conv_bn_eval(conv: ModuleT, bn: Module, transpose: bool = False) -> ModuleT:
    """A copy of the convolution that does the batch norm, too. Both are in evaluation mode. conv, bn: the modules. transpose: conv is a transposed convolution.

    Raises AssertionError for a module in training and for a batch norm without running statistics; ValueError for another number of channels.
    """
    _check("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose)
    return fused


def fuse_linear_bn_eval(linear: ModuleT, bn: Module) -> ModuleT:
    """A copy of the linear layer that does the batch norm, too. Both are in evaluation mode.

    Raises AssertionError for a module in training and for features that do not fit.
    """
    _check("fuse_linear_bn_eval", linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(f"fuse_linear_bn_eval: the sizes do not fit; got {linear.out_features} outputs and {bn.num_features} features of the batch norm")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused
