"""How a value lies over the processes along an axis of a mesh."""
from __future__ import annotations


class Placement:
    """How a value lies over the processes along an axis of a mesh: the base class of Shard, Replicate and Partial. It has no arguments (TypeError)."""

    def is_shard(self, dim: int | None = None) -> bool:
        """A bool: whether it is Shard(): the value is split along a dim. dim: ask for this dim; None for any."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """A bool: whether it is Replicate(): each process along the axis has the whole value."""
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        """A bool: whether it is Partial(): the value is the sum of what the processes along the axis have."""
        return isinstance(self, Partial)

    def __eq__(self, other):
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self):
        return hash((type(self).__name__, *self.__dict__.values()))


class Shard(Placement):
    """A value [.., N, ..] split along a dim, in parts of equal size [.., N / processes, ..]: a Placement, which is equal to another Shard of the same dim.

    dim: an int; TypeError otherwise.
    """

    def __init__(self, dim: int) -> None:
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise TypeError(f"Shard: dim is not a number; got {dim!r}; expected the dim that is split")
        self.dim = dim

    def __repr__(self):
        return f"Shard(dim={self.dim})"


class Replicate(Placement):
    """The whole value on each process, of its whole shape: a Placement without arguments (TypeError)."""

    def __repr__(self):
        return "Replicate()"


class Partial(Placement):
    """A value that is the sum of what the processes have, each of its whole shape: a Placement without arguments (TypeError): other reductions are not there."""

    def __repr__(self):
        return "Partial()"


__all__ = ["Partial", "Placement", "Replicate", "Shard"]
