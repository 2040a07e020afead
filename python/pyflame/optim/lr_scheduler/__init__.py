"""Learning-rate schedules."""
from ... import _refused
from .base import LRScheduler, _LRScheduler  # noqa: F401
from .combined import ChainedScheduler, ReduceLROnPlateau, SequentialLR  # noqa: F401
from .cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR  # noqa: F401
from .decay import (  # noqa: F401
    ConstantLR, CosineAnnealingLR, ExponentialLR, LambdaLR, LinearLR, MultiplicativeLR, MultiStepLR, PolynomialLR, StepLR)

_refused.unknown(globals())
