"""The same as pyflame.data."""
from ...data import *  # noqa: F401,F403
from ... import _refused
from . import _utils, dataloader, dataset, sampler  # noqa: F401
from . import distributed  # noqa: F401
from .distributed import DistributedSampler  # noqa: F401

_PIPES = "use a Dataset or an IterableDataset with DataLoader"
IterDataPipe, MapDataPipe, DFIterDataPipe = (_refused.cls(f"utils.data.{name}", _PIPES) for name in ("IterDataPipe", "MapDataPipe", "DFIterDataPipe"))
functional_datapipe = _refused.identity
_refused.unknown(globals())
