"""Datasets and the loader that makes batches of them."""
from .. import _refused
from .collate import default_collate as default_collate, default_convert as default_convert
from .dataset import (
    ChainDataset as ChainDataset,
    ConcatDataset as ConcatDataset,
    Dataset as Dataset,
    IterableDataset as IterableDataset,
    StackDataset as StackDataset,
    Subset as Subset,
    TensorDataset as TensorDataset,
    random_split as random_split,
)
from .loader import DataLoader as DataLoader
from .sampler import (
    BatchSampler as BatchSampler,
    RandomSampler as RandomSampler,
    Sampler as Sampler,
    SequentialSampler as SequentialSampler,
    SubsetRandomSampler as SubsetRandomSampler,
    WeightedRandomSampler as WeightedRandomSampler,
)
from .workers import WorkerInfo as WorkerInfo, get_worker_info as get_worker_info

_refused.unknown(globals())
