"""A sampler that gives each of several processes its part."""
from __future__ import annotations

import math

from ...data.dataset import _permutation
from ...data.sampler import Sampler

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterator, Sized


class DistributedSampler(Sampler[int]):
    """The part of process `rank` of num_replicas (default: those of pf.distributed) of a dataset, which has a len(): every num_replicas-th index of an order that all processes share. The order is a function of seed and
    epoch. Unless set_epoch() is called, the epoch follows the DataLoader's, or grows by one with each iteration. Indices are repeated from the start, or with drop_last left out, so that all parts have one size.

    shuffle: False takes the indices in their order. ValueError for a rank that is not below num_replicas.
    """

    def __init__(self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False) -> None:
        from ... import distributed

        num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
        rank = distributed.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"DistributedSampler: rank is out of range; got {rank}; expected 0 to {num_replicas - 1}")
        self.dataset, self.num_replicas, self.rank, self.epoch, self.drop_last, self.shuffle, self.seed = dataset, num_replicas, rank, 0, drop_last, shuffle, seed
        self._told, self._begun = False, False
        n = len(dataset)
        self.num_samples = math.ceil((n - num_replicas) / num_replicas) if drop_last and n % num_replicas else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def _begin_epoch(self, epoch):
        """The DataLoader's epoch, before it asks for the indices."""
        if not self._told:
            self.epoch, self._begun = epoch, False

    def __iter__(self) -> Iterator[int]:
        if self._begun and not self._told:
            self.epoch += 1
        self._begun = True
        n = len(self.dataset)
        order = self._shuffled(n) if self.shuffle else list(range(n))
        order = order * math.ceil(self.total_size / n) if not self.drop_last else order
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def _shuffled(self, n):
        return _permutation(n, self.seed + self.epoch, 0)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, which is added to the seed of the order. Call it before each pass: from then on the sampler does not count passes itself."""
        self.epoch, self._told = epoch, True
