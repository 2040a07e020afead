"""Losses that are compositions of others."""
from . import functional as F
from .layers import _Loss


class SmoothL1Loss(_Loss):
    """A parabola where |input - target| < beta, |input - target| - beta / 2 beyond."""

    def __init__(self, reduction="mean", beta=1.0):
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input, target):
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """SmoothL1Loss times its bound, which is called delta here."""

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input, target):
        return F.huber_loss(input, target, self.reduction, self.delta)


class KLDivLoss(_Loss):
    """target * (log(target) - input) for log-probabilities; with log_target, the targets are logarithms too."""

    def __init__(self, reduction="mean", log_target=False):
        super().__init__("sum" if reduction == "batchmean" else reduction)
        self.reduction, self.log_target = reduction, log_target

    def forward(self, input, target):
        return F.kl_div(input, target, self.reduction, self.log_target)
