"""How samples become a batch."""
import copy
from collections.abc import Mapping, MutableMapping

from .. import _C
from .._C import Tensor


def _like(mapping, parts):
    """The parts in a mapping of the same type, where that can be copied and changed."""
    if type(mapping) is dict or not isinstance(mapping, MutableMapping):
        return parts
    out = copy.copy(mapping)
    out.update(parts)
    return out


def default_collate(batch):
    """One batch from a list of samples: tensors, arrays and numbers are stacked, tuples, lists and dicts by part.

    Python's floats become float64, as PyTorch has it. Strings stay as they are: a tuple of them for a part of a tuple or list, otherwise a list."""
    if not batch:
        raise ValueError("collate: the batch is empty")
    first = batch[0]
    if isinstance(first, Tensor):
        return _C.stack(list(batch))
    if isinstance(first, float) and type(first).__module__ != "numpy":
        return _C.tensor(list(batch), dtype=_C.float64, device="cpu")
    if isinstance(first, (bool, int)):
        return _C.tensor(list(batch), device="cpu")
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        parts = {k: default_collate([b[k] for b in batch]) for k in first}
        return _like(first, parts)
    if isinstance(first, (tuple, list)):
        if any(len(b) != len(first) for b in batch):
            raise ValueError(f"collate: samples have different lengths; got {sorted({len(b) for b in batch})}")
        parts = [default_collate(part) for part in zip(*batch)]
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*parts)
        return parts
    if type(first).__module__ == "numpy":
        return _C.stack([_C.tensor(b, device="cpu") for b in batch])
    raise TypeError(f"collate: cannot make a batch of {type(first).__name__}; expected tensors, arrays, numbers, strings, or tuples, lists and dicts of them")


def default_convert(sample):
    """A sample with its arrays as tensors; numbers and strings stay as they are."""
    if type(sample).__module__ == "numpy" and sample.dtype.kind in "biuf":
        return _C.tensor(sample, device="cpu")
    if isinstance(sample, Mapping):
        return _like(sample, {k: default_convert(v) for k, v in sample.items()})
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(default_convert(v) for v in sample))
    if isinstance(sample, (tuple, list)):
        return [default_convert(v) for v in sample]
    return sample
