"""Samplers: objects that give the indices of an epoch, one by one or in lists. None holds a list of all indices unless it must."""
from __future__ import annotations

import itertools
from typing import Generic

from .. import _C
from .._C import Tensor
from .._generator import Generator, draw_seed, drawing_from
from .dataset import T_co

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence, Sized
    from typing import Any

_LISTED = 1 << 24  # more indices than this are permuted by a function instead of in a list
_CHUNK = 1 << 12


def _count(owner, name, value):
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{owner}: {name} must be a positive integer; got {value!r}")
    return value


class Sampler(Generic[T_co]):
    """Base class of samplers. Define __iter__, and __len__ where the number of indices is known. Without __iter__, iterating is a NotImplementedError; without
    __len__, len() is a TypeError. data_source is accepted for PyTorch's programs and not used."""

    def __init__(self, data_source: Sized | None = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__}: __iter__ is not implemented")

    def __class_getitem__(cls, item: Any) -> type:
        return cls


class SequentialSampler(Sampler[int]):
    """0, 1, ... below the size of the data, as int. data_source: what has a length; iterating raises TypeError for others."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def _size(data):
    try:
        return len(data)
    except OverflowError:  # len() refuses what does not fit in an index of C
        return data.__len__()


class _Permutation:
    """The numbers below n in random order, each computed when it is asked for: a Feistel network over the next even number of bits,
    repeated until the number is below n."""

    def __init__(self, n, seed):
        self.n, self.half = n, max(1, ((n - 1).bit_length() + 1) // 2)
        self.mask = (1 << self.half) - 1
        self.keys = [(seed * 0x9E3779B97F4A7C15 + (r + 1) * 0xD1B54A32D192ED03) % 2**64 for r in range(6)]

    def _mixed(self, x, key):
        x = ((x ^ key) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        return (x ^ (x >> 31)) & self.mask

    def __getitem__(self, i):
        while True:
            left, right = i >> self.half, i & self.mask
            for key in self.keys:
                left, right = right, left ^ self._mixed(right, key)
            i = left << self.half | right
            if i < self.n:
                return i


def _drawn(make, generator):
    """The numbers of a tensor that make() draws, from this generator."""
    with drawing_from(generator):
        return make().tolist()


class RandomSampler(Sampler[int]):
    """The indices of the data in a random order that is new in each epoch; with replacement, random indices. num_samples of them, by default as
    many as there are data. data_source: what has a length. generator: a Generator, or None for the global one. Data of any size need no list of all indices.

    ValueError for a num_samples that is no integer of 1 or more, and, when it is iterated, for num_samples of no data. TypeError for a replacement that is no
    bool, and, when it is iterated, for data without a length and for another generator."""

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Generator | None = None) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"RandomSampler: replacement is not a bool; got {replacement!r}")
        if num_samples is not None:
            _count("RandomSampler", "num_samples", num_samples)
        self.data_source, self.replacement, self._num_samples, self.generator = data_source, replacement, num_samples, generator

    @property
    def num_samples(self) -> int:
        """The number of indices of an epoch, an int: the argument num_samples, or the length of data_source."""
        return _size(self.data_source) if self._num_samples is None else self._num_samples

    def _order(self, n, generator):
        if n > _LISTED:
            return map(_Permutation(n, draw_seed(generator)).__getitem__, range(n))
        return _drawn(lambda: _C.randperm(n, device="cpu"), generator)

    def __iter__(self) -> Iterator[int]:
        n, left, generator = _size(self.data_source), self.num_samples, self.generator
        if generator is None:  # the global one gives a seed alone: what the program draws between two batches does not depend on how many are prepared ahead
            generator = Generator().manual_seed(draw_seed(None))
        while left > 0:
            some = min(left, _CHUNK if self.replacement else n)
            if n == 0:
                raise ValueError("RandomSampler: there are no data to draw from; expected at least one sample")
            yield from _drawn(lambda: _C.randint(0, n, (some,), device="cpu"), generator) if self.replacement else itertools.islice(self._order(n, generator), some)
            left -= some

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """These indices in a random order that is new in each epoch. indices: a sequence, whose entries are not checked. generator: a Generator, or None for the
    global one. Iterating is a TypeError for indices without a length, and for another generator."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        with drawing_from(self.generator):
            order = _C.randperm(len(self.indices), device="cpu").tolist()
        for i in order:
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """num_samples indices, each drawn with a probability in proportion to its weight; without replacement, each at most once.

    weights: a vector, a tensor or a sequence; finite, not negative, and not all zero (ValueError). They need not sum to 1."""

    def __init__(self, weights: Sequence[float] | Tensor, num_samples: int, replacement: bool = True, generator: Generator | None = None) -> None:
        _count("WeightedRandomSampler", "num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"WeightedRandomSampler: replacement is not a bool; got {replacement!r}")
        self.weights = weights.detach().double() if isinstance(weights, Tensor) else _C.tensor(list(weights), dtype=_C.float64, device="cpu")
        if self.weights.ndim != 1:
            raise ValueError(f"WeightedRandomSampler: weights must have one dimension; got shape {tuple(self.weights.shape)}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        import numpy as np

        weights = np.asarray(self.weights.tolist())
        possible = np.count_nonzero(weights)
        if not np.isfinite(weights).all() or (weights < 0).any() or possible == 0:
            raise ValueError("WeightedRandomSampler: weights must be finite, not negative, and not all zero")
        if not self.replacement and possible < self.num_samples:
            raise ValueError(f"WeightedRandomSampler: too few weights above zero; got {possible}; expected at least {self.num_samples} without replacement")
        with drawing_from(self.generator):
            u = np.asarray(_C.rand(self.num_samples if self.replacement else len(weights), dtype=_C.float64, device="cpu").tolist())
        if self.replacement:
            sums = np.cumsum(weights)
            picked = np.searchsorted(sums, u * sums[-1], side="right")
        else:  # the first to come of exponential times, whose rates are the weights
            with np.errstate(divide="ignore"):
                picked = np.argsort(-np.log1p(-u) / weights, kind="stable")[: self.num_samples]
        return iter(np.minimum(picked, np.flatnonzero(weights)[-1]).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of batch_size indices of a sampler; a last one that is shorter is left out with drop_last.

    sampler: what can be iterated; TypeError, when the first batch is asked for, if it cannot. ValueError for a batch_size that is no integer of 1 or more, and
    for a drop_last that is no bool."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        _count("BatchSampler", "batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"BatchSampler: drop_last is not a bool; got {drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while part := list(itertools.islice(indices, self.batch_size)):
            if len(part) == self.batch_size or not self.drop_last:
                yield part

    def __len__(self) -> int:
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
