"""Sequences of different lengths as one tensor: padded, or packed so that step t has only the sequences that are longer than t."""
from __future__ import annotations

from collections import namedtuple

from ... import _C
from ..._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, NamedTuple

    from .._annotations import Lengths

if TYPE_CHECKING:

    class _Fields(NamedTuple):
        data: Tensor
        batch_sizes: Tensor
        sorted_indices: Tensor | None
        unsorted_indices: Tensor | None

else:
    _Fields = namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes this one, int64 [N]: inverse[permutation[i]] = i. None for None.

    permutation: a vector with each of 0 to N - 1 once, of an integer dtype; it is read, a sync point.

    Raises ValueError for what is no permutation, and TypeError for what is no tensor.
    """
    if permutation is None:
        return None
    import numpy as np

    if not isinstance(permutation, Tensor):
        raise TypeError(f"invert_permutation: not a tensor; got {type(permutation).__name__}; expected a vector of integers")
    values = permutation.cpu().numpy()
    inverse = np.argsort(values)
    if values.ndim != 1 or not np.array_equal(values[inverse], np.arange(values.size)):
        raise ValueError(f"invert_permutation: no permutation; got {values.tolist()}; expected each of 0 to N - 1 once, in one dim")
    return _C.tensor(inverse, device=permutation.device)


class PackedSequence(_Fields):
    """data [rows, ...]: the first elements of all sequences, then the second ones, and so on; batch_sizes (int64, on the CPU): how many sequences have each
    step. sorted_indices and unsorted_indices: the order by falling lengths, and back. Made by pack_padded_sequence and pack_sequence.

    Raises TypeError where batch_sizes is no tensor, and ValueError where it is not on the CPU. The numbers are not checked.
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | Sequence[Tensor], batch_sizes: Tensor | None = None, sorted_indices: Tensor | None = None,
                unsorted_indices: Tensor | None = None) -> PackedSequence:
        if batch_sizes is None and isinstance(data, (tuple, list)):
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if not isinstance(batch_sizes, Tensor):
            raise TypeError(f"PackedSequence: batch_sizes is not a tensor; got {type(batch_sizes).__name__}; expected int64 on the CPU")
        if batch_sizes.device.type != "cpu":
            raise ValueError(f"PackedSequence: batch_sizes is not on the CPU; got {batch_sizes.device}; expected cpu")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on another device or with another dtype of the data."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        move = lambda t: None if t is None else t.to(device=data.device)  # noqa: E731
        return type(self)(data, self.batch_sizes, move(self.sorted_indices), move(self.unsorted_indices))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequences with data and indices on a GPU, a PackedSequence. The arguments are those of Tensor.to; by default the device is 'cuda'."""
        return self.to(*(args or ("cuda",)), **kwargs)

    def cpu(self) -> PackedSequence:
        """The sequences with data and indices on the CPU, a PackedSequence. It is this one where they are there."""
        return self.to("cpu")

    def float(self) -> PackedSequence:
        """The sequences with data as float32, a PackedSequence. It is this one where data has that dtype."""
        return self.to(_C.float32)

    def double(self) -> PackedSequence:
        """The sequences with data as float64, a PackedSequence. It is this one where data has that dtype."""
        return self.to(_C.float64)

    def half(self) -> PackedSequence:
        """The sequences with data as float16, a PackedSequence. It is this one where data has that dtype."""
        return self.to(_C.float16)

    def long(self) -> PackedSequence:
        """The sequences with data as int64, a PackedSequence. It is this one where data has that dtype."""
        return self.to(_C.int64)

    def int(self) -> PackedSequence:
        """The sequences with data as int32, a PackedSequence. It is this one where data has that dtype."""
        return self.to(_C.int32)

    def pin_memory(self) -> PackedSequence:
        """This PackedSequence itself. Nothing is copied to page-locked memory, and is_pinned() stays False."""
        return self

    def is_pinned(self) -> bool:
        """Always False, as pin_memory() copies nothing: sequences are not put into page-locked memory."""
        return False

    @property
    def is_cuda(self) -> bool:
        """Whether data is on a GPU that PyFlame calls 'cuda', a bool. batch_sizes is always on the CPU."""
        return self.data.device.type == "cuda"


def _packed_rows(lengths):
    """For falling lengths: the sizes of the steps; and of each packed row its step and its sequence."""
    import numpy as np

    sequences = np.asarray(lengths)
    sizes = (sequences[None, :] > np.arange(sequences[0])[:, None]).sum(1)
    steps = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum(sizes) - sizes
    return sizes, steps, np.arange(len(steps)) - starts[steps]


def pack_padded_sequence(input: Tensor, lengths: Lengths, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """A PackedSequence of padded ones, input [T, N, ...] or [N, T, ...] with batch_first, of these lengths (a list or a tensor on the CPU).

    With enforce_sorted, the lengths must fall: RuntimeError otherwise. RuntimeError for lengths below 1 or above T."""
    import numpy as np

    lengths = np.asarray(lengths.tolist() if isinstance(lengths, Tensor) else lengths, np.int64)
    time, batch = (input.shape[1], input.shape[0]) if batch_first else (input.shape[0], input.shape[1])
    if lengths.shape != (batch,):
        raise RuntimeError(f"pack_padded_sequence: the lengths do not fit; got {lengths.size} for a batch of {batch}; expected one for each sequence")
    if batch == 0 or lengths.min() < 1 or lengths.max() > time:
        raise RuntimeError(f"pack_padded_sequence: a length is out of range; got {lengths.tolist()}; expected 1 to {time}")
    order = None
    if enforce_sorted:
        if (np.diff(lengths) > 0).any():
            raise RuntimeError("pack_padded_sequence: the lengths do not fall; expected falling lengths, or enforce_sorted=False")
    else:
        order = np.argsort(-lengths, kind="stable")
        lengths = lengths[order]
    sizes, steps, sequences = _packed_rows(lengths)
    sequences = sequences if order is None else order[sequences]
    flat = input.reshape(time * batch, *input.shape[2:])
    at = sequences * time + steps if batch_first else steps * batch + sequences
    data = flat.index_select(0, _C.tensor(at.astype(np.int64), device=input.device))
    sorted_indices = None if order is None else _C.tensor(order.astype(np.int64), device=input.device)
    return PackedSequence(data, _C.tensor(sizes.astype(np.int64), device="cpu"), sorted_indices)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: int | None = None) -> tuple[Tensor, Tensor]:
    """(padded sequences [T, N, ...], or [N, T, ...] with batch_first, their lengths). total_length: T, where it is to be longer than the longest sequence.

    sequence: a PackedSequence. padding_value: what stands behind the end of a sequence. ValueError for a total_length that is too small.
    """
    import numpy as np

    sizes = np.asarray(sequence.batch_sizes.tolist(), np.int64)
    time, batch = len(sizes), int(sizes[0])
    if total_length is not None:
        if total_length < time:
            raise ValueError(f"pad_packed_sequence: total_length is too small; got {total_length}; expected at least {time}, the longest sequence")
        time = total_length
    lengths = (sizes[:, None] > np.arange(batch)[None, :]).sum(0)
    starts = np.cumsum(sizes) - sizes
    order = np.arange(batch) if sequence.unsorted_indices is None else np.asarray(sequence.unsorted_indices.tolist(), np.int64)
    t, n = np.meshgrid(np.arange(time), order, indexing="ij")
    inside = t < lengths[n]
    at = np.where(inside, starts[np.minimum(t, len(sizes) - 1)] + n, 0)
    if batch_first:
        inside, at = inside.T, at.T
    data = sequence.data
    rows = data.index_select(0, _C.tensor(at.reshape(-1).astype(np.int64), device=data.device)).reshape(*at.shape, *data.shape[1:])
    if not inside.all():
        mask = _C.tensor(~inside, device=data.device).reshape(*at.shape, *(1,) * (data.ndim - 1))
        rows = rows.masked_fill(mask, padding_value)
    return rows, _C.tensor(lengths[order].astype(np.int64), device="cpu")


def pad_sequence(sequences: Tensor | Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: Literal["right", "left"] = "right") -> Tensor:
    """Sequences [T_i, ...] as one tensor [T, N, ...], or [N, T, ...] with batch_first, where T is the longest; padding_side: 'right' or 'left'.

    sequences: a list, or a tensor whose first dim they are. padding_value: what the places without an element get. RuntimeError for no sequences.
    """
    if padding_side not in ("right", "left"):
        raise ValueError(f"pad_sequence: unknown padding_side; got '{padding_side}'; expected 'right' or 'left'")
    sequences = list(sequences.unbind(0)) if isinstance(sequences, Tensor) else list(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: no sequences; expected at least one")
    time = max(s.shape[0] for s in sequences)
    padded = []
    for s in sequences:
        missing = time - s.shape[0]
        if missing:
            fill = _C.full((missing, *s.shape[1:]), padding_value, dtype=s.dtype, device=s.device)
            s = _C.cat([s, fill] if padding_side == "right" else [fill, s])
        padded.append(s)
    return _C.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Lengths, batch_first: bool = False) -> list[Tensor]:
    """The list of sequences that pad_sequence padded: padded_sequences [T, N, ...], or [N, T, ...] with batch_first. lengths: of each, numbers in a list or a tensor. The views begin at the first place.

    Sequences beyond the lengths are left out. Raises ValueError for a length below 0 or beyond T; TypeError for one that is not an int; IndexError for a
    tensor of one dim.
    """
    lengths = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    return [padded_sequences.select(0 if batch_first else 1, i).narrow(0, 0, n) for i, n in enumerate(lengths)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """A PackedSequence of sequences [T_i, ...]; with enforce_sorted, their lengths must fall.

    RuntimeError for no sequences, for an empty one, and for lengths that rise; ValueError where the further dims of the sequences differ."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The list of sequences that were packed, each [length, ...], in their order before packing.

    packed_sequences: a PackedSequence, as pack_sequence or pack_padded_sequence makes it.

    Raises AttributeError for anything else.
    """
    return unpad_sequence(*pad_packed_sequence(packed_sequences))
