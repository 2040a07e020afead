"""Helpers of PyTorch's that programs import from torch._utils: lists of tensors as one tensor."""
from . import _C


def _flatten_dense_tensors(tensors):
    """The elements of all tensors, one tensor after the other, in one dim."""
    return _C.cat([t.reshape(-1) for t in tensors])


def _unflatten_dense_tensors(flat, tensors):
    """Views of flat, one with the shape of each tensor."""
    views, begin = [], 0
    for t in tensors:
        views.append(flat.narrow(0, begin, t.numel()).view(tuple(t.shape)))
        begin += t.numel()
    return tuple(views)


def _take_tensors(tensors, size_limit):
    """Lists of tensors of one dtype, in their order, of at most size_limit bytes; a tensor that is larger has a list of its own."""
    lists = {}
    for t in tensors:
        bytes_, taken = lists.setdefault(t.dtype, [0, []])
        if taken and bytes_ + t.nbytes > size_limit:
            yield taken
            bytes_, taken = 0, []
        lists[t.dtype] = [bytes_ + t.nbytes, [*taken, t]]
    for _, taken in lists.values():
        yield taken
