"""How samples become a batch."""
from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence

from .. import _C
from .._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _like(mapping, parts):
    """The parts in a mapping of the same type, where that can be copied and changed."""
    if type(mapping) is dict or not isinstance(mapping, MutableMapping):
        return parts
    out = copy.copy(mapping)
    out.update(parts)
    return out


def _in_sequence(sequence, parts):
    """The parts as a list, or in a copy of a sequence of another type that can be changed."""
    if type(sequence) is list or not isinstance(sequence, MutableSequence):
        return parts
    try:
        out = copy.copy(sequence)
        for i, part in enumerate(parts):
            out[i] = part
        return out
    except TypeError:  # one of numbers, say
        return parts


default_collate_fn_map = {}  # what default_collate does with further types: {type: function(batch, collate_fn_map=)}


def default_collate(batch: Sequence[Any]) -> Any:
    """One batch from a list of samples: tensors, arrays and numbers are stacked, sequences and dicts by part.

    Python's floats become float64, as PyTorch has it. Strings stay as they are: a tuple of them for a part of a tuple or list, otherwise a list.

    ValueError for an empty batch, for tensors of different shapes, and for tuples and lists of different lengths; KeyError for a dict without a key of the first
    one; TypeError for samples of other types, such as None, and for arrays of objects."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


def _function_for(sample, functions):
    """The function for a sample's type, or for one of its base classes; None without one."""
    if type(sample) in functions:
        return functions[type(sample)]
    return next((f for kind, f in functions.items() if isinstance(sample, kind)), None)


def collate(batch: Sequence[Any], *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """One batch from a list of samples, as default_collate makes it.

    collate_fn_map: {type, or tuple of types: function(batch, collate_fn_map=collate_fn_map)} for samples, and parts of samples, of further types; it comes
    before the rules of default_collate."""
    if not batch:
        raise ValueError("collate: the batch is empty")
    first = batch[0]
    own = _function_for(first, collate_fn_map) if collate_fn_map else None
    if own is not None:
        return own(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Tensor):
        return _C.stack(list(batch))
    if isinstance(first, float) and type(first).__module__ != "numpy":
        return _C.tensor(list(batch), dtype=_C.float64, device="cpu")
    if isinstance(first, (bool, int)):
        return _C.tensor(list(batch), device="cpu")
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        parts = {k: collate([b[k] for b in batch], collate_fn_map=collate_fn_map) for k in first}
        return _like(first, parts)
    if isinstance(first, Sequence):
        if any(len(b) != len(first) for b in batch):
            raise ValueError(f"collate: samples have different lengths; got {sorted({len(b) for b in batch})}")
        parts = [collate(part, collate_fn_map=collate_fn_map) for part in zip(*batch)]
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*parts)
        return _in_sequence(first, parts)
    if type(first).__module__ == "numpy":
        return _C.stack([_C.tensor(b, device="cpu") for b in batch])
    raise TypeError(f"collate: cannot make a batch of {type(first).__name__}; expected tensors, arrays, numbers, strings, or tuples, lists and dicts of them")


def default_convert(data: Any) -> Any:
    """data, a sample, with its NumPy arrays and numbers as tensors of the same dtype, in main memory. Dicts, named tuples and sequences that can be changed keep their type, other
    sequences become lists; their entries are converted in the same way. Everything else stays as it is: tensors, Python's numbers, strings, arrays of strings. TypeError for an
    array of numbers whose dtype no tensor has, such as uint16.
    """
    if type(data).__module__ == "numpy" and data.dtype.kind in "biufc":
        return _C.tensor(data, device="cpu")
    if isinstance(data, Mapping):
        return _like(data, {k: default_convert(v) for k, v in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(v) for v in data))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _in_sequence(data, [default_convert(v) for v in data])
    return data
