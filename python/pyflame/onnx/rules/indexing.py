"""Rules of gathering and scattering. Negative indices count from the end."""
import math

import numpy as np

import pyflame as pf

from ..table import fixed, op, sized_by_values
from ..values import to_array, to_tensor


def _positive(indices, size):
    indices = indices.to(dtype=pf.int64)
    return pf.where(indices < 0, indices + size, indices)


@op("Gather", either=(1,))
def gather(node):
    axis, made = node.attr("axis", 0), {}

    def steps(result, x, indices):
        """A number selects; a range is a part."""
        k = axis % x.dim()
        if isinstance(indices, pf.Tensor) or indices.size != 1 and indices.ndim != 1:
            return None
        places = [i + x.shape[k] if i < 0 else i for i in np.asarray(indices).reshape(-1).tolist()]
        if indices.ndim == 0:
            return [("select", k, places[0])]
        if places and places == list(range(places[0], places[0] + len(places))):
            return [("narrow", k, places[0], len(places))] + [("unsqueeze", k)] * (indices.ndim - 1)
        return None

    def tensor_of(indices, size, device):
        """The indices of a constant as a tensor, made once."""
        key = (indices.tobytes(), size, str(device))
        if key not in made:
            made.clear()
            made[key] = pf.tensor(np.where(indices < 0, indices + size, indices).astype(np.int64).reshape(-1), device=device)
        return made[key]

    def run(x, indices):
        k, shape = axis % x.dim(), tuple(x.shape)
        simple = steps(None, x, indices)
        if simple is not None:
            for method, *arguments in simple:
                x = getattr(x, method)(*arguments)
            return x
        host = not isinstance(indices, pf.Tensor)
        flat = tensor_of(indices, shape[k], x.device) if host else _positive(indices, shape[k]).reshape(-1)
        return x.index_select(k, flat).reshape(shape[:k] + tuple(indices.shape) + shape[k + 1:])

    return fixed(run, steps)


@op("GatherElements")
def gather_elements(node):
    axis = node.attr("axis", 0)
    return lambda x, indices: pf.gather(x, axis, _positive(indices, x.shape[axis]))


def _flat_index(indices, shape):
    """One index for the tuples of indices in the last dim."""
    flat = None
    for k in range(indices.shape[-1]):
        each = _positive(indices.select(-1, k), shape[k])
        flat = each if flat is None else flat * shape[k] + each
    return flat


@op("GatherND")
def gather_nd(node):
    batch = node.attr("batch_dims", 0)

    def run(x, indices):
        depth, shape = indices.shape[-1], tuple(x.shape)
        lead, rest = shape[:batch], shape[batch + depth:]
        groups, inner = math.prod(lead), math.prod(shape[batch:batch + depth])
        flat = _flat_index(indices, shape[batch:batch + depth])
        if batch:
            first = pf.arange(groups, device=x.device).reshape(lead + (1,) * (flat.dim() - batch)) * inner
            flat = flat + first
        return x.reshape((groups * inner,) + rest).index_select(0, flat.reshape(-1)).reshape(tuple(indices.shape)[:-1] + rest)

    return run


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter(x, axis, index, source, reduction):
    if reduction == "none":
        return pf.scatter(x, axis, index, source)
    if reduction == "add":
        return pf.scatter_add(x, axis, index, source)
    return pf.scatter_reduce(x, axis, index, source, _REDUCE[reduction], include_self=True)


@op("ScatterElements", "Scatter")
def scatter_elements(node):
    axis, reduction = node.attr("axis", 0), node.attr("reduction", "none")
    return lambda x, indices, updates: _scatter(x, axis, _positive(indices, x.shape[axis]), updates, reduction)


@op("ScatterND")
def scatter_nd(node):
    reduction = node.attr("reduction", "none")

    def run(x, indices, updates):
        depth, shape = indices.shape[-1], tuple(x.shape)
        rest = shape[depth:]
        flat = _flat_index(indices, shape[:depth]).reshape(-1)
        rows = x.reshape(math.prod(shape[:depth]), math.prod(rest))
        source = updates.reshape(flat.shape[0], rows.shape[1])
        index = flat.unsqueeze(1).expand(flat.shape[0], rows.shape[1])
        return _scatter(rows, 0, index, source, reduction).reshape(shape)

    return run


@op("TensorScatter")
def tensor_scatter(node):
    axis, mode = node.attr("axis", -2), node.attr("mode", "linear")

    def run(past, update, places=None):
        k = axis % past.dim()
        count, size = update.shape[k], past.shape[k]
        steps = pf.arange(count, device=past.device)
        first = pf.zeros(past.shape[0], dtype=pf.int64, device=past.device) if places is None else places
        index = first.unsqueeze(1) + steps
        if mode == "circular":
            index = pf.remainder(index, size)
        shape = [1] * past.dim()
        shape[0], shape[k] = past.shape[0], count
        return pf.scatter(past, k, index.reshape(shape).expand(tuple(update.shape)), update)

    return run


@op("NonZero")
def non_zero(node):
    return sized_by_values(lambda x: pf.nonzero(x.reshape(1) if x.dim() == 0 else x).permute(1, 0))


@op("Compress")
def compress(node):
    axis = node.attr("axis")

    def run(x, condition):
        place = pf.nonzero(condition).reshape(-1)
        return x.reshape(-1).index_select(0, place) if axis is None else x.index_select(axis, place)

    return sized_by_values(run)


@op("OneHot", host=(1, 2))
def one_hot(node):
    axis = node.attr("axis", -1)

    def run(indices, depth, values):
        depth = int(np.asarray(depth).reshape(-1)[0])
        index = indices.to(dtype=pf.int64) if not indices.is_floating_point() else pf.floor(indices).to(dtype=pf.int64)
        index = pf.where(index < 0, index + depth, index)
        k = axis % (index.dim() + 1)
        shape = [1] * (index.dim() + 1)
        shape[k] = depth
        hot = index.unsqueeze(k) == pf.arange(depth, device=index.device).reshape(shape)
        on = to_tensor(np.asarray(values), index.device)
        return pf.where(hot, on[1], on[0])

    return run


@op("Trilu", host=(1,))
def trilu(node):
    upper = node.attr("upper", 1)

    def run(x, k=0):
        k = int(np.asarray(k).reshape(-1)[0])
        rows, columns = x.shape[-2:]
        i, j = pf.arange(rows, device=x.device).unsqueeze(1), pf.arange(columns, device=x.device)
        keep = j - i >= k if upper else j - i <= k
        return pf.where(keep, x, pf.zeros((), dtype=x.dtype, device=x.device))

    return run


@op("ReverseSequence")
def reverse_sequence(node):
    batch, steps = node.attr("batch_axis", 1), node.attr("time_axis", 0)

    def run(x, lengths):
        count = x.shape[steps]
        place = pf.arange(count, device=x.device)
        index = pf.where(place < lengths.unsqueeze(1), lengths.unsqueeze(1) - 1 - place, place)  # [batch, time]
        index = index if batch < steps else index.permute(1, 0)
        shape = [1] * x.dim()
        shape[batch], shape[steps] = x.shape[batch], count
        return pf.gather(x, steps, index.reshape(shape).expand(tuple(x.shape)))

    return run


@op("Unique")
def unique(node):
    axis, ordered = node.attr("axis"), node.attr("sorted", 1)

    def run(x):
        array = to_array(x)
        found, first, inverse, counts = np.unique(array, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        inverse = inverse.reshape(-1)
        if not ordered:
            order = np.argsort(first)
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            found = np.take(found, order, 0 if axis is None else axis)
            first, counts, inverse = first[order], counts[order], place[inverse]
        places = (to_tensor(v.astype(np.int64), x.device) for v in (first, inverse, counts))
        return (to_tensor(found, x.device).to(dtype=x.dtype), *places)

    return sized_by_values(run if len(node.outputs) > 1 else lambda x: run(x)[0])

