"""Dropout."""
from __future__ import annotations

from . import functional as F
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor


class _DropoutNd(Module):
    """What the layers share: a probability."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not isinstance(p, (int, float)):
            raise TypeError(f"Dropout: the probability is not a number; got {p!r}; expected 0 to 1")
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: the probability is out of range; got {p}; expected 0 to 1")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes elements with probability p while training and scales the rest by 1 / (1 - p). In evaluation (module.eval()), the input is returned.

    inplace: writes over the input. ValueError unless 0 <= p <= 1."""

    def forward(self, input: Tensor) -> Tensor:
        # p = 0 makes no random call, so that it costs nothing and moves no random state.
        return F.dropout(input, self.p, True, self.inplace) if self.training and self.p > 0 else input


class _Masked(_DropoutNd):
    """Dropout with a mask of its own; `_mask` is the function."""

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._mask(input, self.p, self.training, self.inplace)


class Dropout1d(_Masked):
    """Zeroes whole channels of [N, C, L] or [C, L] while training.

    p and inplace: as of Dropout; the other channels are scaled by 1 / (1 - p). The result has the shape and dtype of the input. ArgumentError for another rank."""

    _mask = staticmethod(F.dropout1d)


class Dropout2d(_Masked):
    """Zeroes whole channels of [N, C, H, W] or [C, H, W] while training.

    p and inplace: as of Dropout; the other channels are scaled by 1 / (1 - p). The result has the shape and dtype of the input. A warning for another rank.

    Raises ValueError for a p outside of 0 to 1 and an input of one dim; TypeError for a p that is no number and, while training, for an input of integers
    or bools.
    """

    _mask = staticmethod(F.dropout2d)


class Dropout3d(_Masked):
    """Zeroes whole channels of [N, C, D, H, W] or [C, D, H, W] while training.

    p and inplace: as of Dropout; the other channels are scaled by 1 / (1 - p). The result has the shape and dtype of the input. A warning for another rank.

    Raises ValueError for a p outside of 0 to 1 and an input of one dim; TypeError for a p that is no number and, while training, for an input of integers
    or bools.
    """

    _mask = staticmethod(F.dropout3d)


class AlphaDropout(_Masked):
    """Dropout for selu, which keeps mean and variance.

    Elements become selu's lower limit, about -1.758, with probability p, and a line through all keeps mean and variance (Klambauer et al., 2017). input: of any shape,
    which the result has. p and inplace: as of Dropout, ValueError unless 0 <= p <= 1. In evaluation the input is returned."""

    _mask = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Masked):
    """AlphaDropout of whole channels.

    input: [N, C, ...]; the result has its shape and dtype. p and inplace: as of Dropout. In evaluation the input is returned.

    Raises ValueError for a p outside of 0 to 1; TypeError for a p that is no number and, while training, for an input that is not floating.
    """

    _mask = staticmethod(F.feature_alpha_dropout)
