"""Collectives that have gradients, by the names of torch.distributed.nn."""
from . import functional
from .functional import *  # noqa: F401,F403

__all__ = ["functional", *functional.__all__]
