"""einsum: operands are combined from left to right. Each pair needs one batched matrix product (or one elementwise product if no dim is
summed), so einsum is not an op of its own."""
from __future__ import annotations

import math

from . import _C
from ._error_names import named

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ._C import Tensor

_SUBLIST = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _parse(equation, operands):
    """The labels of each operand and of the output, one per dim. The dims of an ellipsis have numbers as labels, counted from the right."""
    if not isinstance(equation, str):
        raise TypeError(f"einsum: the equation is not text; got {type(equation).__name__}")
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ValueError(f"einsum: the equation '{equation}' has {len(terms)} operands; got {len(operands)}")

    def labels(term, rank):
        head, dots, tail = term.partition("...")
        if any(c not in _LETTERS for c in head + tail):
            raise ValueError(f"einsum: not a label in '{term}' of '{equation}'; expected letters and at most one '...'")
        hidden = rank - len(head) - len(tail) if dots else 0
        if hidden < 0 or (rank is not None and not dots and rank != len(term)):
            raise ValueError(f"einsum: the subscripts do not fit the operand; got '{term}' for {rank} dimensions")
        return [*head, *range(hidden, 0, -1), *tail]

    inputs = [labels(t, x.ndim) for t, x in zip(terms, operands)]
    seen = [c for term in inputs for c in term]
    hidden = sorted({c for c in seen if isinstance(c, int)}, reverse=True)
    if arrow:
        head, dots, tail = right.partition("...")
        output = [*labels(head, len(head)), *(hidden if dots else []), *labels(tail, len(tail))]
    else:
        output = hidden + sorted(c for c in set(seen) - set(hidden) if seen.count(c) == 1)
    if len(set(output)) != len(output) or not set(output) <= set(seen):
        raise ValueError(f"einsum: the output of '{equation}' has a label twice, or one that no operand has")
    return inputs, output


def _from_sublists(arguments):
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) as an equation: labels are numbers below 52, Ellipsis stands for '...'."""
    operands, lists = list(arguments[0::2]), list(arguments[1::2])
    output = operands.pop() if len(arguments) % 2 else None

    def text(labels):
        for c in labels:
            if c is not Ellipsis and not (isinstance(c, int) and 0 <= c < len(_LETTERS)):
                raise ValueError(f"einsum: not a label in a sublist; got {c!r}; expected a number from 0 to {len(_LETTERS) - 1} or Ellipsis")
        return "".join("..." if c is Ellipsis else _SUBLIST[c] for c in labels)

    return ",".join(map(text, lists)) + ("" if output is None else "->" + text(output)), operands


def _without_repeats(x, labels):
    """The diagonal of dims with the same label."""
    for c in [c for i, c in enumerate(labels) if c in labels[:i]]:
        first, last = labels.index(c), len(labels) - 1 - labels[::-1].index(c)
        if x.shape[first] != x.shape[last]:
            raise ValueError(f"einsum: sizes of one label differ; got {x.shape[first]} and {x.shape[last]}")
        x = x.diagonal(0, first, last)
        labels = [k for i, k in enumerate(labels) if i not in (first, last)] + [c]
    return x, labels


def _summed(x, labels, kept):
    """Sums over the dims that neither a later operand nor the output has."""
    gone = [i for i, c in enumerate(labels) if c not in kept]
    return (_C.sum(x, gone) if gone else x), [c for c in labels if c in kept]


def _arranged(x, labels, order):
    """Permutes the dims to this order; a missing label becomes a dim of size 1."""
    x = _C.permute(x, [labels.index(c) for c in order if c in labels]) if labels else x
    sizes = iter(x.shape)
    return x.reshape([next(sizes) if c in labels else 1 for c in order])


def _pair(a, la, b, lb, needed):
    both = [c for c in la if c in lb]
    a, la = _summed(a, la, needed | set(both))
    b, lb = _summed(b, lb, needed | set(both))
    inner = [c for c in both if c not in needed]
    order = [c for c in la if c in needed and c in lb] + [c for c in la if c not in lb] + [c for c in lb if c not in la]
    if not inner:
        return _arranged(a, la, order) * _arranged(b, lb, order), order
    size = {**dict(zip(la, a.shape)), **{c: n for c, n in zip(lb, b.shape) if c not in la or n != 1}}
    batch = [c for c in both if c in needed]

    def expanded(x, labels):
        return x.expand(*[size[c] for c in labels]) if tuple(size[c] for c in labels) != tuple(x.shape) else x

    def count(labels):
        return math.prod(size[c] for c in labels)

    rows, columns = [c for c in la if c not in lb], [c for c in lb if c not in la]
    x = _arranged(expanded(a, la), la, batch + rows + inner).reshape(count(batch), count(rows), count(inner))
    y = _arranged(expanded(b, lb), lb, batch + inner + columns).reshape(count(batch), count(inner), count(columns))
    with named("einsum", "bmm"):
        product = _C.bmm(x, y)
    return product.reshape([size[c] for c in batch + rows + columns]), batch + rows + columns


def einsum(equation: str | Tensor, *operands: Tensor | Sequence[Any]) -> Tensor:
    """Sums of products by labels: einsum('bij,bjk->bik', a, b) is a batch of matrix products. '...' stands for any number of dims. Without '->', the output
    has the labels that occur once, in alphabetical order. A label twice in one operand takes its diagonal. Labels may also be lists of numbers behind
    each operand: einsum(a, [0, 1], b, [1, 2], [0, 2]).

    operands: of one number dtype where dims are summed, TypeError otherwise; the result has it. ValueError for labels that do not fit, and for sizes of one label that differ;
    a size of 1 fits all.
    """
    if isinstance(equation, _C.Tensor):
        equation, operands = _from_sublists((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = tuple(operands[0])
    for x in operands:
        if not isinstance(x, _C.Tensor):
            raise TypeError(f"einsum: not a tensor; got {type(x).__name__}")
    inputs, output = _parse(equation, operands)
    pairs = [_without_repeats(x, labels) for x, labels in zip(operands, inputs)]
    operands, inputs = [x for x, _ in pairs], [labels for _, labels in pairs]
    sizes = {}
    for x, labels in zip(operands, inputs):
        for c, n in zip(labels, x.shape):
            if n != 1 and sizes.setdefault(c, n) != n:
                raise ValueError(f"einsum: sizes of one label differ in '{equation}'; got {sizes[c]} and {n}")
    x, labels = operands[0], inputs[0]
    for k in range(1, len(operands)):
        needed = set(output).union(*inputs[k + 1 :])
        x, labels = _pair(x, labels, operands[k], inputs[k], needed)
    x, labels = _summed(x, labels, set(output))
    return _C.permute(x, [labels.index(c) for c in output]) if output else x
