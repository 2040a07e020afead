"""Rules of sequences (lists of tensors) and optionals (None where there is no value)."""
import numpy as np

import pyflame as pf

from ..table import op
from .shapes import split_sizes


def _number(place):
    return int(np.asarray(place).reshape(-1)[0])


@op("SequenceConstruct", kind="any")
def construct(node):
    return lambda *xs: list(xs)


@op("SequenceEmpty", kind="any")
def empty(node):
    return lambda: []


@op("SequenceInsert", kind="any", host=(2,))
def insert(node):
    def run(sequence, x, place=None):
        k = len(sequence) if place is None else _number(place)
        return sequence[:k] + [x] + sequence[k:] if k >= 0 else sequence[:k + len(sequence)] + [x] + sequence[k + len(sequence):]

    return run


@op("SequenceErase", kind="any", host=(1,))
def erase(node):
    def run(sequence, place=-1):
        sequence = list(sequence)
        del sequence[_number(place)]
        return sequence

    return run


@op("SequenceAt", host=(1,))
def at(node):
    return lambda sequence, place: sequence[_number(place)]


@op("SequenceLength", kind="host")
def length(node):
    return lambda sequence: np.asarray(len(sequence), np.int64)


@op("SplitToSequence", kind="any", host=(1,))
def split_to_sequence(node):
    axis, keep = node.attr("axis", 0), node.attr("keepdims", 1)

    def run(x, sizes=None):
        if sizes is None:
            parts = pf.split(x, 1, axis)
            return list(parts) if keep else [p.squeeze(axis) for p in parts]
        if np.ndim(sizes) == 0:
            return list(pf.split(x, int(sizes), axis))
        return list(pf.split(x, split_sizes(x.shape[axis], sizes, 0), axis))

    return run


@op("ConcatFromSequence")
def concat_from_sequence(node):
    axis, new = node.attr("axis"), node.attr("new_axis", 0)
    return lambda sequence: pf.stack(sequence, axis) if new else pf.cat(sequence, axis)


@op("Optional", kind="any")
def optional(node):
    return lambda x=None: x


@op("OptionalGetElement", kind="any")
def get_element(node):
    def run(x):
        if x is None:
            raise ValueError("OptionalGetElement: there is no value; got an empty optional; expected one with an element")
        return x

    return run


@op("OptionalHasElement", kind="host")
def has_element(node):
    return lambda x=None: np.asarray(x is not None)
