"""Datasets: objects with __len__ and __getitem__, or objects that can be iterated."""
from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import Generic, TypeVar

from .. import _C
from .._C import Tensor
from .._generator import drawing_from

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from .._generator import Generator
    from ._annotations import Samples, SampleT

T_co = TypeVar("T_co", covariant=True)  # the type of a sample


class Dataset(Generic[T_co]):
    """Base class of datasets with an index. Define __getitem__(index) and __len__. A DataLoader asks __getitems__(indices), where it is defined, for
    the list of all samples of a batch. Without __getitem__ an index is a NotImplementedError, and without __len__ len() is a TypeError."""

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__}: __getitem__ is not implemented")

    def __add__(self, other: Samples[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])

    def __class_getitem__(cls, item: Any) -> type:
        return cls


class IterableDataset(Dataset[T_co]):
    """Base class of streams. Define __iter__; samples keep its order and are not shuffled. Without __iter__, iterating is a NotImplementedError."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__}: __iter__ is not implemented")

    def __add__(self, other: Dataset[Any]) -> ChainDataset[Any]:
        return ChainDataset([self, other])


def cut_each(samples):
    """A list of the samples. The ops of each one run in a window of their own. Samples often have only a few shapes, so the programs of such windows repeat. A window with the samples of a whole
    batch, and with the model's ops behind them, would be new for each batch."""
    made = []
    for sample in samples:
        _C.cut()
        made.append(sample)
    return made


def samples_of(dataset, indices):
    """The samples at these indices: all at once if the dataset has __getitems__."""
    at_once = getattr(dataset, "__getitems__", None)
    return at_once(indices) if callable(at_once) else cut_each(dataset[i] for i in indices)


def quick_batch(dataset):
    """The function from indices to a batch, for a TensorDataset and subsets of one. None for others, and for classes that define their own samples."""
    source = next((c for c in type(dataset).__mro__ if "__getitem__" in vars(c) or "__getitems__" in vars(c)), None)
    if source is TensorDataset:
        return dataset._batch
    inner = quick_batch(dataset.dataset) if source is Subset else None
    return inner and (lambda indices: inner([dataset.indices[i] for i in indices]))


class ChainDataset(IterableDataset[T_co]):
    """Several streams, one after the other. datasets: an iterable of IterableDataset; iterating raises TypeError for others. len() is the sum of theirs,
    where all have one.
    """

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[T_co]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise TypeError(f"ChainDataset: not a stream; got {type(d).__name__}; expected IterableDataset")
            yield from d

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is the tuple of row i of each tensor. tensors: [N, ...] of any dtypes.

    ValueError for none, for a tensor without dims and for first sizes that differ; TypeError for what is no tensor; IndexError for an index out of range.
    """

    def __init__(self, *tensors: Tensor) -> None:
        if not tensors:
            raise ValueError("TensorDataset: no tensors; expected at least one")
        for t in tensors:
            if not isinstance(t, Tensor):
                raise TypeError(f"TensorDataset: not a tensor; got {type(t).__name__}")
            if t.ndim == 0 or t.shape[0] != tensors[0].shape[0]:
                raise ValueError(f"TensorDataset: first sizes differ; got shapes {[x.shape for x in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def _batch(self, indices):
        # One op per tensor instead of one per sample.
        n = len(self)
        rows = [i if i >= 0 else i + n for i in indices]
        index = {device: _C.tensor(rows, dtype=_C.int64, device=device) for device in {t.device for t in self.tensors}}
        return [_C.index_select(t, 0, index[t.device]) for t in self.tensors]


class Subset(Dataset[T_co]):
    """The samples of a dataset at these indices: sample i is dataset[indices[i]].

    dataset: what is read by index. indices: a list or an integer tensor, which is read. IndexError for an i out of range; an index that the dataset does
    not have raises what it raises.
    """

    def __init__(self, dataset: Samples[T_co], indices: Iterable[int] | Tensor) -> None:
        self.dataset = dataset
        self.indices = indices.tolist() if isinstance(indices, Tensor) else list(indices)

    def __getitem__(self, index: Any) -> T_co:
        return self.dataset[[self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        if type(self).__getitem__ is not Subset.__getitem__:
            return [self[i] for i in indices]
        return samples_of(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[T_co]):
    """The samples of several datasets, concatenated: those of the first, then those of the second, and so on.

    datasets: an iterable of what has a length and is read by index. ValueError for none; TypeError for an IterableDataset; IndexError for an index out of
    range.
    """

    def __init__(self, datasets: Iterable[Samples[T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("ConcatDataset: no datasets; expected at least one")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise TypeError("ConcatDataset: an IterableDataset has no index; hint: ChainDataset")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"ConcatDataset: index out of range; got {index}; expected within {n} samples")
        index %= n
        k = bisect_right(self.cumulative_sizes, index)
        return self.datasets[k][index - (self.cumulative_sizes[k - 1] if k else 0)]


class StackDataset(Dataset[T_co]):
    """Sample i is the tuple of sample i of each dataset, or the dict of them if they are given by name. ValueError for no dataset, for some by position and
    others by name, and for different sizes; TypeError for one without a length. An index out of range is the error of the datasets."""

    def __init__(self, *args: Samples[Any], **kwargs: Samples[Any]) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset: expected datasets, either all by position or all by name")
        self.datasets = kwargs or args
        if len({len(d) for d in self._all()}) > 1:
            raise ValueError(f"StackDataset: the sizes differ; got {[len(d) for d in self._all()]}")

    def _all(self):
        return list(self.datasets.values()) if isinstance(self.datasets, dict) else list(self.datasets)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if type(self).__getitem__ is not StackDataset.__getitem__:
            return [self[i] for i in indices]
        rows = zip(*(samples_of(d, indices) for d in self._all()))
        return [dict(zip(self.datasets, row)) for row in rows] if isinstance(self.datasets, dict) else list(rows)

    def __len__(self) -> int:
        return len(self._all()[0])


def _permutation(n, seed, stream):
    """The numbers below n in an order that is a function of (seed, stream). Does not change the global random state."""
    before = _C.get_rng_state()
    _C.set_rng_state((seed, stream))
    try:
        order = _C.randperm(n, device="cpu")
    finally:
        _C.set_rng_state(before)
    return order.tolist()


def _sizes(lengths, n):
    """Whole numbers for fractions that sum to 1; what rounding leaves goes to the first parts."""
    if lengths and all(0 <= v <= 1 for v in lengths) and abs(sum(lengths) - 1) < 1e-6:
        sizes = [int(v * n) for v in lengths]
        for i in range(n - sum(sizes)):
            sizes[i % len(sizes)] += 1
        return sizes
    return lengths


def random_split(dataset: Samples[SampleT], lengths: Iterable[float], generator: Generator | None = None, *, seed: int | None = None) -> list[Subset[SampleT]]:
    """Random disjoint subsets of these lengths (or fractions that sum to 1). The order follows `seed`, or a Generator, or else the global one.

    dataset: what has a length and is read by index. ValueError: the lengths do not sum to its size."""
    n = len(dataset)
    lengths = _sizes(list(lengths), n)
    if sum(lengths) != n:
        raise ValueError(f"random_split: the lengths do not sum to the size; got {sum(lengths)}; expected {n}")
    if seed is not None:
        order = _permutation(n, seed, 0)
    else:
        with drawing_from(generator):
            order = _C.randperm(n, device="cpu").tolist()
    out, at = [], 0
    for size in lengths:
        out.append(Subset(dataset, order[at : at + size]))
        at += size
    return out
