"""The same as pyflame.data."""
from ..data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate, default_convert, get_worker_info, random_split  # noqa: F401
