"""Layers that rearrange channels and pixels."""
from __future__ import annotations

from . import functional as F
from .functional_maps import _check_window
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor


class PixelShuffle(Module):
    """Channels as pixels: [.., C r^2, H, W] -> [.., C, H r, W r], r being upscale_factor (Shi et al., 2016).

    forward takes any dtype. It raises RuntimeError for fewer than 3 dims and for channels that r^2 does not divide.
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Pixels as channels: [.., C, H r, W r] -> [.., C r^2, H, W], r being downscale_factor. The inverse of PixelShuffle.

    forward takes any dtype. It raises RuntimeError for fewer than 3 dims and for a height or width that r does not divide.
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """The channels of [N, C, ...] taken in turn from each of the groups: channel g C / groups + i becomes i groups + g (Zhang et al., 2017).

    forward takes 3 dims or more and any dtype. It raises RuntimeError for fewer dims, and where groups do not divide C.
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class LocalResponseNorm(Module):
    """input / (k + alpha * the mean of squares of `size` neighbouring channels)^beta: [N, C, ...] -> [N, C, ...] (Krizhevsky et al., 2012).

    Raises ValueError for a size below 1 and TypeError for one that is no integer. forward raises ValueError for fewer than 3 dims. Integers become
    float32.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        _check_window(type(self).__name__, size)
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """The older name of LocalResponseNorm for images [N, C, H, W]. size, alpha, beta, k: as there.

    Raises ValueError for a size below 1. A call raises ValueError for an input of fewer than three dims.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
