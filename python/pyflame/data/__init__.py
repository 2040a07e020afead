"""Datasets and the loader that makes batches of them."""
from .. import _refused
from .collate import default_collate, default_convert  # noqa: F401
from .dataset import ChainDataset, ConcatDataset, Dataset, IterableDataset, StackDataset, Subset, TensorDataset, random_split  # noqa: F401
from .loader import DataLoader  # noqa: F401
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler  # noqa: F401
from .workers import WorkerInfo, get_worker_info  # noqa: F401

_refused.unknown(globals())
