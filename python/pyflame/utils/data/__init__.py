"""The same as pyflame.data."""
from ...data import *  # noqa: F401,F403
from . import _utils, dataloader, dataset, sampler  # noqa: F401
from . import distributed  # noqa: F401
from .distributed import DistributedSampler  # noqa: F401
