"""einops for tensors of PyFlame. After `import pyflame.einops`, the functions of the package einops take them: rearrange, reduce, repeat, einsum, pack, unpack.

The functions are here, too, and so are the layers, as modules of PyFlame: Rearrange, Reduce and EinMix. `import pyflame.torch` imports this module by itself if
einops is installed. Where `import torch` means PyFlame, einops.layers.torch works as well. ModuleNotFoundError if einops is not installed."""
import einops as _einops
from einops import asnumpy as asnumpy, einsum as einsum, pack as pack, parse_shape as parse_shape, rearrange as rearrange, reduce as reduce, repeat as repeat, unpack as unpack
from einops._backends import AbstractBackend as _AbstractBackend
from einops.layers import RearrangeMixin as _RearrangeMixin
from einops.layers import ReduceMixin as _ReduceMixin
from einops.layers._einmix import _EinmixMixin

import pyflame as _pf
from pyflame import nn as _nn

EinopsError = _einops.EinopsError


class _Backend(_AbstractBackend):
    """What einops calls for a tensor of PyFlame. einops finds the class by itself, as a subclass of its own."""

    framework_name = "pyflame"

    def is_appropriate_type(self, tensor):
        return isinstance(tensor, _pf.Tensor)

    def from_numpy(self, x):
        tensor = _pf.from_numpy(x)
        return tensor.requires_grad_() if self.is_float_type(tensor) else tensor

    def to_numpy(self, x):
        return x.detach().cpu().numpy()

    def arange(self, start, stop):
        return _pf.arange(start, stop)

    def shape(self, x):
        return tuple(x.shape)

    def transpose(self, x, axes):
        return x.permute(*axes)

    def reduce(self, x, operation, axes):
        if operation in ("prod", "any", "all"):  # one dim at a time, the last one first
            for axis in sorted(axes, reverse=True):
                x = getattr(x, operation)(dim=axis)
            return x
        return getattr(x, {"min": "amin", "max": "amax"}.get(operation, operation))(dim=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors):
        return _pf.stack(tensors)

    def add_axis(self, x, new_position):
        return x.unsqueeze(new_position)

    def add_axes(self, x, n_axes, pos2len):
        for position in sorted(pos2len):
            x = x.unsqueeze(position)
        return x.expand(*(pos2len.get(axis, -1) for axis in range(n_axes)))

    def tile(self, x, repeats):
        return x.repeat(*repeats)

    def concat(self, tensors, axis):
        return _pf.cat(tensors, dim=axis)

    def is_float_type(self, x):
        return x.is_floating_point()

    def layers(self):
        from pyflame import einops

        return einops

    def einsum(self, pattern, *x):
        return _pf.einsum(pattern, *x)


class Rearrange(_RearrangeMixin, _nn.Module):
    """einops.rearrange as a layer: Rearrange('b c h w -> b (c h w)'). pattern and axes_lengths: as of the function. EinopsError for a wrong pattern, and for sizes that do not divide."""

    def forward(self, input):
        return self._apply_recipe(input)


class Reduce(_ReduceMixin, _nn.Module):
    """einops.reduce as a layer: Reduce('b c (h 2) (w 2) -> b c h w', 'max'). The arguments are those of the function, and so is EinopsError."""

    def forward(self, input):
        return self._apply_recipe(input)


class EinMix(_EinmixMixin, _nn.Module):
    """A linear layer whose input, weight and output have named axes: EinMix('b t i -> b t o', weight_shape='i o', bias_shape='o', i=8, o=4).

    pattern: the axes of the input and of the result. weight_shape and bias_shape: those of the parameters; without bias_shape there is none. axes_lengths: the sizes of the
    axes of the parameters. Both parameters begin with uniform numbers. EinopsError for a pattern that does not fit the shapes."""

    def _create_parameters(self, weight_shape, weight_bound, bias_shape, bias_bound):
        self.weight = _nn.Parameter(_pf.empty(*weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None if bias_shape is None else _nn.Parameter(_pf.empty(*bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(self, pre_reshape_pattern, pre_reshape_lengths, post_reshape_pattern, post_reshape_lengths):
        self.pre_rearrange = pre_reshape_pattern and Rearrange(pre_reshape_pattern, **pre_reshape_lengths)
        self.post_rearrange = post_reshape_pattern and Rearrange(post_reshape_pattern, **post_reshape_lengths)

    def forward(self, input):
        if self.pre_rearrange is not None:
            input = self.pre_rearrange(input)
        result = _pf.einsum(self.einsum_pattern, input, self.weight)
        if self.bias is not None:
            result = result + self.bias
        return result if self.post_rearrange is None else self.post_rearrange(result)
