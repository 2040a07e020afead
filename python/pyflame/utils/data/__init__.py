"""The same as pyflame.data."""
from ...data import *  # noqa: F401,F403
from . import dataloader, dataset, sampler  # noqa: F401
