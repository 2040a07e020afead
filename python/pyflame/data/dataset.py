"""Datasets: objects with __len__ and __getitem__, or objects that can be iterated."""
from .. import _C
from .._C import Tensor


class Dataset:
    """Base class of datasets with an index. Define __getitem__(index) and __len__."""

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__}: __getitem__ is not implemented")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Base class of streams. Define __iter__; samples keep its order and are not shuffled."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__}: __iter__ is not implemented")


class TensorDataset(Dataset):
    """Sample i is the tuple of row i of each tensor."""

    def __init__(self, *tensors):
        if not tensors:
            raise ValueError("TensorDataset: no tensors; expected at least one")
        for t in tensors:
            if not isinstance(t, Tensor):
                raise TypeError(f"TensorDataset: not a tensor; got {type(t).__name__}")
            if t.ndim == 0 or t.shape[0] != tensors[0].shape[0]:
                raise ValueError(f"TensorDataset: first sizes differ; got shapes {[x.shape for x in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)

    def __len__(self):
        return self.tensors[0].shape[0]

    def _batch(self, indices):
        # One op per tensor instead of one per sample.
        n = len(self)
        rows = [i if i >= 0 else i + n for i in indices]
        index = {device: _C.tensor(rows, dtype=_C.int64, device=device) for device in {t.device for t in self.tensors}}
        return [_C.index_select(t, 0, index[t.device]) for t in self.tensors]


class Subset(Dataset):
    """The samples of a dataset at these indices."""

    def __init__(self, dataset, indices):
        self.dataset = dataset
        self.indices = indices.tolist() if isinstance(indices, Tensor) else list(indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)

    @property
    def _batch(self):
        inner = self.dataset._batch  # AttributeError when the dataset has no fast way
        return lambda indices: inner([self.indices[i] for i in indices])


class ConcatDataset(Dataset):
    """The samples of several datasets, concatenated."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: no datasets; expected at least one")

    def __len__(self):
        return sum(len(d) for d in self.datasets)

    def __getitem__(self, index):
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"ConcatDataset: index out of range; got {index}; expected within {n} samples")
        index %= n
        for d in self.datasets:
            if index < len(d):
                return d[index]
            index -= len(d)


def _permutation(n, seed, stream):
    """The numbers below n in an order that is a function of (seed, stream). Does not change the global random state."""
    before = _C.get_rng_state()
    _C.set_rng_state((seed, stream))
    try:
        order = _C.randperm(n, device="cpu")
    finally:
        _C.set_rng_state(before)
    return order.tolist()


def random_split(dataset, lengths, seed=0):
    """Random disjoint subsets of these lengths (or fractions that sum to 1)."""
    n = len(dataset)
    lengths = list(lengths)
    if lengths and all(isinstance(v, float) for v in lengths) and abs(sum(lengths) - 1) < 1e-6:
        sizes = [int(v * n) for v in lengths]
        for i in range(n - sum(sizes)):
            sizes[i % len(sizes)] += 1
        lengths = sizes
    if sum(lengths) != n:
        raise ValueError(f"random_split: the lengths do not sum to the size; got {sum(lengths)}; expected {n}")
    order = _permutation(n, seed, 0)
    out, at = [], 0
    for size in lengths:
        out.append(Subset(dataset, order[at : at + size]))
        at += size
    return out
