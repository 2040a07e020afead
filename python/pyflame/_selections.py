"""Functions whose results have as many elements as values say. They read that number, which is a sync point."""
from . import _C
from ._C import Tensor
from ._public import method

__all__ = ["argwhere", "bincount", "isin", "masked_select", "nonzero", "take", "unique_consecutive"]


def _positions(mask):
    """The flat positions of the true elements, in order, as int64."""
    flat = mask.reshape(-1)
    count = int(flat.sum().item())
    n = flat.shape[0]
    if n == 0:
        return flat.to(_C.int64)
    # Each true element goes to its rank among the true ones, all others behind them, as 0. The sums are of float64, in which positions are
    # exact, because the CPU has a fast kernel for it.
    rank = _C.cumsum(flat.to(_C.int64), 0) - 1
    at = _C.where(flat, rank, count)
    position = _C.where(flat, _C.arange(n, device=mask.device).double(), 0.0)
    places = _C.zeros(count + 1, dtype=_C.float64, device=mask.device).scatter_add(0, at, position)
    return places.narrow(0, 0, count).to(_C.int64)


def _true(input):
    return input if input.dtype == _C.bool_ else input != 0


def _coordinates(flat, shape):
    """The index along each dim of flat positions."""
    parts = []
    for n in reversed(shape):
        parts.append(flat % n if n else flat)
        flat = flat // n if n else flat
    return tuple(reversed(parts))


@method
def nonzero(input, *, as_tuple=False):
    """The indices of all elements that are not zero, in order: [number, dims] as int64, or with as_tuple one vector for each dim.

    The number of elements is read: a sync point.
    """
    if input.ndim == 0 and as_tuple:
        input = input.reshape(1)
    flat = _positions(_true(input))
    if input.ndim == 0:
        return _C.zeros((flat.shape[0], 0), dtype=_C.int64, device=input.device)
    parts = _coordinates(flat, input.shape)
    return parts if as_tuple else _C.stack(list(parts), 1)


@method
def argwhere(input):
    """The same as nonzero."""
    return nonzero(input)


@method
def masked_select(input, mask):
    """The elements of input where the bool mask is true, as a vector; both broadcast. Their number is read: a sync point."""
    if mask.dtype != _C.bool_:
        raise RuntimeError(f"masked_select: the mask is not bool; got {mask.dtype}; expected bool; hint: compare with 0")
    input, mask = _C.broadcast_tensors(input, mask)
    return input.reshape(-1).index_select(0, _positions(mask))


@method
def take(input, index):
    """The elements at flat positions, in the shape of index; negative ones count from the end. IndexError out of range, at the read."""
    n = input.numel()
    at = index.reshape(-1)
    at = _C.where(at < 0, at + n, at)
    return input.reshape(-1).index_select(0, at).reshape(index.shape)


@method
def bincount(input, weights=None, minlength=0):
    """How often each number occurs in a vector of integers that are not negative, or the sum of their weights. Its size is read: a sync point."""
    if input.ndim != 1 or input.is_floating_point():
        raise RuntimeError(f"bincount: not a vector of integers; got shape {tuple(input.shape)} and {input.dtype}")
    if input.shape[0] and input.min().item() < 0:
        raise RuntimeError(f"bincount: a negative number; got {input.min().item()}; expected 0 or more")
    size = max(int(input.max().item()) + 1 if input.shape[0] else 0, minlength)
    if weights is None:  # numbers of elements are exact in float64, for which the CPU has a fast kernel
        values = _C.ones(input.shape, dtype=_C.float64, device=input.device)
    else:
        values = weights if weights.dtype == _C.float32 else weights.double()
    counts = _C.zeros(size, dtype=values.dtype, device=input.device)
    counts = counts.scatter_add(0, input.to(_C.int64), values) if input.shape[0] else counts
    return counts.to(_C.int64) if weights is None else counts


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Whether each element is one of the test elements, as bool. Either may be a number. Memory: all pairs, as they are compared."""
    numbers = [x for x in (elements, test_elements) if isinstance(x, Tensor)]
    if not numbers:
        raise TypeError(f"isin: no tensor; got {type(elements).__name__} and {type(test_elements).__name__}")
    device = numbers[0].device
    a, b = (x if isinstance(x, Tensor) else _C.tensor(x, device=device) for x in (elements, test_elements))
    found = (a.unsqueeze(-1) == b.reshape(-1)).any(-1) if b.numel() else _C.zeros(a.shape, dtype=_C.bool_, device=device)
    return _C.logical_not(found) if invert else found


@method
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements of a tensor without those that equal the one before; with the group of each element, and the size of each group.

    Only over the flattened input (dim None, or a vector). The number of groups is read: a sync point.
    """
    if dim is not None and input.ndim != 1:
        raise NotImplementedError(f"unique_consecutive: only without dim; got dim={dim} for shape {tuple(input.shape)}")
    flat = input.reshape(-1)
    n = flat.shape[0]
    if n:
        first = _C.cat([_C.ones(1, dtype=_C.bool_, device=input.device), flat.narrow(0, 1, n - 1) != flat.narrow(0, 0, n - 1)], 0)
    else:
        first = flat.to(_C.bool_)
    starts = _positions(first)
    results = [flat.index_select(0, starts)]
    if return_inverse:
        results.append((_C.cumsum(first.to(_C.int64), 0) - 1).reshape(input.shape))
    if return_counts:
        ends = _C.cat([starts.narrow(0, 1, starts.shape[0] - 1), _C.full((1,), n, dtype=_C.int64, device=input.device)], 0) if n else starts
        results.append(ends - starts)
    return results[0] if len(results) == 1 else tuple(results)
