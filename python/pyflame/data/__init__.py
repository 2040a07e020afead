"""Datasets and the loader that makes batches of them."""
from .dataset import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split  # noqa: F401
from .loader import DataLoader, default_collate, default_convert  # noqa: F401
from .workers import get_worker_info  # noqa: F401
