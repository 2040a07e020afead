"""Normalisation layers."""
from __future__ import annotations

import warnings

from .. import _C
from .._grad_mode import no_grad
from . import functional as F
from . import init
from ._arguments import _integers, _sequence
from .module import Module
from .parameter import Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from .._annotations import DType, Device
    from ..distributed._group import ProcessGroup
    from ._annotations import ModuleT, Size


def _reset_affine(module):
    """The weight of a module becomes 1 and its bias 0, where it has them."""
    for name, value in (("weight", 1), ("bias", 0)):
        if module._parameters.get(name) is not None:
            init.constant_(module._parameters[name], value)


class _BatchNorm(Module):
    _version = 2  # 1 did not save num_batches_tracked

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
                 device: Device | None = None, dtype: DType | None = None, *, bias: bool = True) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", Parameter(_C.ones(num_features, dtype=dtype, device=device)) if affine else None)
        self.register_parameter("bias", Parameter(_C.zeros(num_features, dtype=dtype, device=device)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", _C.zeros(num_features, dtype=dtype, device=device) if tracked else None)
        self.register_buffer("running_var", _C.ones(num_features, dtype=dtype, device=device) if tracked else None)
        self.register_buffer("num_batches_tracked", _C.zeros((), dtype=_C.int64, device=device) if tracked else None)

    def reset_running_stats(self) -> None:
        """The running statistics as they are before the first batch."""
        if self.track_running_stats:
            with no_grad():
                self.running_mean.zero_()
                self.running_var.fill_(1)
                self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Weight 1 and bias 0, and the running statistics as they are before the first batch."""
        self.reset_running_stats()
        _reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in self._ranks:
            raise ValueError(f"{type(self).__name__}: the input has {input.ndim} dimensions; expected {self._shapes}")
        momentum = self.momentum
        if self.training and self.track_running_stats:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / self.num_batches_tracked.item()
        use_batch = self.training or not self.track_running_stats
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, use_batch, momentum if momentum is not None else 0.0, self.eps)

    def _complete_state(self, state_dict, prefix, local_metadata):
        if self.num_batches_tracked is not None and (local_metadata.get("version") or 1) < 2:
            state_dict.setdefault(prefix + "num_batches_tracked", self.num_batches_tracked)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, bias={self.bias is not None}, track_running_stats={self.track_running_stats}"


class BatchNorm1d(_BatchNorm):
    """Normalises every channel of [N, C] or [N, C, L]: (x - mean) / sqrt(var + eps) * weight + bias, with the statistics of the batch in training and with
    running statistics in evaluation (Ioffe and Szegedy, 2015).

    forward takes [N, C] or [N, C, L] of a floating dtype and returns the same shape and dtype. num_features, eps, momentum, affine, track_running_stats,
    device, dtype and bias are those of BatchNorm2d. ValueError for other dims or, with parameters or running statistics, another C, and while training
    for one value per channel; TypeError for integers.
    """

    _ranks, _shapes = (2, 3), "2 (N, C) or 3 (N, C, L)"


class BatchNorm2d(_BatchNorm):
    """Normalises every channel of [N, C, H, W]: (x - mean) / sqrt(var + eps) * weight + bias, with the statistics of the batch in training.

    - num_features: the number of channels C. eps: is added to the variance, against a division by 0.
    - momentum: the running statistics become (1 - momentum) running + momentum batch; None: the mean of all batches. The variance of a batch is divided by
      n to normalise, and by n - 1 in running_var.
    - affine: whether weight and bias are learned; bias=False: only the weight.
    - track_running_stats: whether running statistics are kept, which evaluation uses; without them it uses those of the batch.
    - device, dtype: of the parameters; the current ones unless given.

    forward takes [N, C, H, W] of a floating dtype and returns the same shape and dtype. ValueError for other dims or, with parameters or running
    statistics, another C, and while training for one value per channel; TypeError for integers. Source: Ioffe and Szegedy, 2015.
    """

    _ranks, _shapes = (4,), "4 (N, C, H, W)"


class BatchNorm3d(_BatchNorm):
    """Normalises every channel of [N, C, D, H, W]: (x - mean) / sqrt(var + eps) * weight + bias, with the statistics of the batch in training and with
    running statistics in evaluation (Ioffe and Szegedy, 2015).

    forward takes [N, C, D, H, W] of a floating dtype and returns the same shape and dtype. num_features, eps, momentum, affine, track_running_stats,
    device, dtype and bias are those of BatchNorm2d. ValueError for other dims or, with parameters or running statistics, another C, and while training
    for one value per channel; TypeError for integers.
    """

    _ranks, _shapes = (5,), "5 (N, C, D, H, W)"


class SyncBatchNorm(_BatchNorm):
    """BatchNorm of [N, C, ...] with the statistics of all processes. In one process, and with running statistics, it is the same as BatchNorm. Statistics
    over several processes are not available yet: NotImplementedError.

    process_group: is kept, and changes nothing. The other arguments are those of BatchNorm2d.
    """

    _ranks, _shapes = (2, 3, 4, 5), "2 to 5 (N, C, ...)"

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
                 process_group: ProcessGroup | None = None, device: Device | None = None, dtype: DType | None = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        from .. import distributed

        ranks = distributed.get_world_size(self.process_group)
        if ranks > 1 and (self.training or not self.track_running_stats):
            raise NotImplementedError(f"SyncBatchNorm: statistics over several processes are not available; got {ranks} processes; expected one; hint: BatchNorm, whose statistics are those of each process")
        return super().forward(input)

    @classmethod
    def convert_sync_batchnorm(cls, module: ModuleT, process_group: ProcessGroup | None = None) -> ModuleT:
        """The module with SyncBatchNorm in place of each BatchNorm, with the same parameters."""
        made = module
        if isinstance(module, _BatchNorm) and not isinstance(module, (_InstanceNorm, cls)):
            made = cls(module.num_features, module.eps, module.momentum, False, False, process_group)
            made.affine, made.track_running_stats, made.training = module.affine, module.track_running_stats, module.training
            made._parameters.update(module._parameters)
            made._buffers.update(module._buffers)
        for name, child in module.named_children():
            setattr(made, name, cls.convert_sync_batchnorm(child, process_group))
        return made


class _InstanceNorm(_BatchNorm):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False, track_running_stats: bool = False,
                 device: Device | None = None, dtype: DType | None = None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in self._ranks:
            raise ValueError(f"{type(self).__name__}: the input has {input.ndim} dimensions; expected {self._shapes}")
        one = input.ndim == min(self._ranks)  # without a batch
        x = input.unsqueeze(0) if one else input
        if x.shape[1] != self.num_features:
            if self.affine or self.track_running_stats:
                raise ValueError(f"{type(self).__name__}: wrong channels; got {x.shape[1]}; expected {self.num_features}")
            warnings.warn(f"{type(self).__name__}: the input has {x.shape[1]} channels, num_features is {self.num_features}; it is not used without affine", stacklevel=3)
        own = self.training or not self.track_running_stats
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own, self.momentum if self.momentum is not None else 0.0, self.eps)
        return y.squeeze(0) if one else y


class InstanceNorm1d(_InstanceNorm):
    """Normalises every channel of every sample of [N, C, L] or [C, L]: (x - mean) / sqrt(var + eps), and with affine times weight plus bias (Ulyanov et
    al., 2016).

    forward returns the same shape. affine and track_running_stats are False unless given. num_features, eps, momentum, device, dtype and bias are those
    of BatchNorm2d. ValueError for other dims, for L = 1 where its statistics are those of the input, and with affine or running statistics for another C;
    a warning without them.
    """

    _ranks, _shapes = (2, 3), "3 (N, C, L) or 2 (C, L)"


class InstanceNorm2d(_InstanceNorm):
    """Normalises every channel of every sample of [N, C, H, W] or [C, H, W]: (x - mean) / sqrt(var + eps), and with affine times weight plus bias (Ulyanov
    et al., 2016).

    forward returns the same shape. affine and track_running_stats are False unless given. num_features, eps, momentum, device, dtype and bias are those
    of BatchNorm2d. ValueError for other dims, for one pixel where its statistics are those of the input, and with affine or running statistics for
    another C; a warning without them.
    """

    _ranks, _shapes = (3, 4), "4 (N, C, H, W) or 3 (C, H, W)"


class InstanceNorm3d(_InstanceNorm):
    """Normalises every channel of every sample of [N, C, D, H, W] or [C, D, H, W]: (x - mean) / sqrt(var + eps), and with affine times weight plus bias
    (Ulyanov et al., 2016).

    forward returns the same shape. affine and track_running_stats are False unless given. num_features, eps, momentum, device, dtype and bias are those
    of BatchNorm2d. ValueError for other dims, for one voxel where its statistics are those of the input, and with affine or running statistics for
    another C; a warning without them.
    """

    _ranks, _shapes = (4, 5), "5 (N, C, D, H, W) or 4 (C, D, H, W)"


class GroupNorm(Module):
    """Normalises each sample's groups of channels of [N, C, ...]: (x - mean) / sqrt(var + eps) * weight + bias (Wu and He, 2018).

    num_channels C are divided into num_groups; ValueError where they cannot be. eps, affine, bias, device and dtype are those of BatchNorm2d. forward
    returns the same shape; ValueError for another C or fewer than 2 dims.
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Device | None = None, dtype: DType | None = None, *,
                 bias: bool = True) -> None:
        super().__init__()
        _integers("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_groups must divide num_channels; got {num_groups} and {num_channels}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", Parameter(_C.ones(num_channels, dtype=dtype, device=device)) if affine else None)
        self.register_parameter("bias", Parameter(_C.zeros(num_channels, dtype=dtype, device=device)) if affine and bias else None)

    def reset_parameters(self) -> None:
        """Sets all elements of weight to 1 and of bias to 0. Without them (affine=False) it does nothing."""
        _reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class LayerNorm(Module):
    """Normalises over the last dims, whose sizes are normalized_shape: (x - mean) / sqrt(var + eps) * weight + bias (Ba et al., 2016).

    normalized_shape: a number or several. elementwise_affine: whether weight and bias, of that shape, are learned; bias=False: only the weight. eps: is
    added to the variance. forward returns the input's shape and dtype. ArgumentError where normalized_shape is not the end of the input's shape;
    TypeError for integers and for another dtype than that of the parameters.
    """

    def __init__(self, normalized_shape: Size, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        self.normalized_shape = (int(normalized_shape),) if hasattr(normalized_shape, "__index__") else _sequence(normalized_shape, f"{type(self).__name__}: normalized_shape")
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", Parameter(_C.ones(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(_C.zeros(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine and bias else None)

    def reset_parameters(self) -> None:
        """Sets all elements of weight to 1 and of bias to 0. Without them (elementwise_affine=False) it does nothing."""
        _reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        return _C.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """x / sqrt(mean(x * x) + eps) * weight over the last dims (Zhang and Sennrich, 2019). eps defaults to the dtype's machine epsilon.

    normalized_shape: the sizes of the last dims, a number or several. elementwise_affine: whether weight is learned; False: there is none. forward
    returns the input's shape and dtype. ArgumentError where normalized_shape is not the end of the input's shape; TypeError for integers and for another
    dtype than that of the weight.
    """

    def __init__(self, normalized_shape: Size, eps: float | None = None, elementwise_affine: bool = True, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        self.normalized_shape = (int(normalized_shape),) if hasattr(normalized_shape, "__index__") else _sequence(normalized_shape, f"{type(self).__name__}: normalized_shape")
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", Parameter(_C.ones(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine else None)

    def reset_parameters(self) -> None:
        """Sets all elements of weight to 1. Without a weight (elementwise_affine=False) it does nothing."""
        _reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        return _C.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
