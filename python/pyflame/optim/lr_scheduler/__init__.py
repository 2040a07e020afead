"""Learning-rate schedules."""
from ... import _refused
from .base import LRScheduler as LRScheduler, _LRScheduler as _LRScheduler
from .combined import ChainedScheduler as ChainedScheduler, ReduceLROnPlateau as ReduceLROnPlateau, SequentialLR as SequentialLR
from .cycles import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts, CyclicLR as CyclicLR, OneCycleLR as OneCycleLR
from .decay import (
    ConstantLR as ConstantLR,
    CosineAnnealingLR as CosineAnnealingLR,
    ExponentialLR as ExponentialLR,
    LambdaLR as LambdaLR,
    LinearLR as LinearLR,
    MultiplicativeLR as MultiplicativeLR,
    MultiStepLR as MultiStepLR,
    PolynomialLR as PolynomialLR,
    StepLR as StepLR,
)

_refused.unknown(globals())
