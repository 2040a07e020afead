"""The same as pyflame.data."""
from ..data import *  # noqa: F401,F403
from ..data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate, get_worker_info, random_split  # noqa: F401
