"""The same as pyflame.data."""
from ...data import *  # noqa: F401,F403
from ... import _refused
from . import _utils as _utils, dataloader as dataloader, dataset as dataset, sampler as sampler
from . import distributed as distributed
from .distributed import DistributedSampler as DistributedSampler

_PIPES = "use a Dataset or an IterableDataset with DataLoader"
IterDataPipe, MapDataPipe, DFIterDataPipe = (_refused.cls(f"utils.data.{name}", _PIPES) for name in ("IterDataPipe", "MapDataPipe", "DFIterDataPipe"))
functional_datapipe = _refused.identity
_refused.unknown(globals())
