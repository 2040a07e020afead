"""Forward mode: tangents beside values. There is no forward pass of tangents: unpack_dual() composes the Jacobian times the tangents of two
backward passes, as func.jvp does, so the function's gradient must have a gradient, and gradients must be on."""
import contextlib
import typing

from .. import func as _func
from .._C import Tensor, is_grad_enabled

_levels = []


class UnpackedDualTensor(typing.NamedTuple):
    """What unpack_dual() returns: the value of a dual tensor (primal), and its tangent, of the same shape and dtype; None where it depends on no dual tensor. A
    named tuple, which checks and refuses nothing."""

    primal: Tensor
    tangent: typing.Optional[Tensor]


def enter_dual_level():
    """Begins a level and returns its number, 0. Levels are not nested: RuntimeError."""
    if _levels:
        raise RuntimeError("enter_dual_level: a level is open already; expected one level at a time; hint: nest func.jvp instead")
    _levels.append([])
    return 0


def exit_dual_level(*, level=None):
    """Ends the open level and forgets its tangents. level: None or 0. RuntimeError if no such level is open."""
    _duals("exit_dual_level", level)
    _levels.pop()


@contextlib.contextmanager
def dual_level():
    """A context in which make_dual() and unpack_dual() work: enter_dual_level() at its beginning, exit_dual_level() at its end. It gives the level's
    number, 0. RuntimeError inside of another one.
    """
    level = enter_dual_level()
    try:
        yield level
    finally:
        exit_dual_level(level=level)


def _duals(op, level):
    if not _levels or level not in (None, 0, -1):
        raise RuntimeError(f"{op}: no such level is open; got {'no open level' if not _levels else level}; expected a call inside of dual_level()")
    return _levels[-1]


def _need_gradients(op):
    if not is_grad_enabled():
        raise RuntimeError(f"{op}: gradients are off; got a call under no_grad(); expected gradients on, because tangents are composed of backward passes")


def make_dual(tensor, tangent, *, level=None):
    """The tensor with a tangent of its shape and dtype. Both are floating or complex: ValueError for other dtypes and for what is no tensor.

    level: None or 0. RuntimeError for a tangent of another shape or dtype, where no such level is open, and under no_grad()."""
    duals = _duals("make_dual", level)
    _need_gradients("make_dual")
    if not isinstance(tensor, Tensor) or not isinstance(tangent, Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
        got = [x.dtype if isinstance(x, Tensor) else type(x).__name__ for x in (tensor, tangent)]
        raise ValueError(f"make_dual: not two floating tensors; got {got[0]} and {got[1]}")
    if tensor.shape != tangent.shape or tensor.dtype != tangent.dtype:
        raise RuntimeError(f"make_dual: the tangent does not fit; got {tangent.dtype} {tuple(tangent.shape)}; expected {tensor.dtype} {tuple(tensor.shape)}")
    own = _func._own(tensor)
    duals.append((own, tangent))
    return own.clone()  # not the leaf itself, so that it may be written in place


def unpack_dual(tensor, *, level=None):
    """(primal, tangent) of a tensor; the tangent is None where the tensor depends on no dual tensor of this level.

    level: None or 0. RuntimeError where no such level is open, and under no_grad(); ValueError for what is no tensor."""
    duals = _duals("unpack_dual", level)
    _need_gradients("unpack_dual")
    if not isinstance(tensor, Tensor):
        raise ValueError(f"unpack_dual: not a tensor; got {type(tensor).__name__}; expected a tensor")
    own = [x for x, _ in duals]
    if not tensor.requires_grad or not duals or not _depends_on(tensor, own):
        return UnpackedDualTensor(tensor, None)
    tangents = [t for _, t in duals]
    tangent = _func._forward(tensor, own, tangents)
    if any(t.requires_grad for t in tangents) or any(x.grad_fn is not None for x in own) or _func._depends_on_others([tensor], own):
        return UnpackedDualTensor(tensor, tangent)
    return UnpackedDualTensor(tensor.detach(), tangent.detach())


def _depends_on(tensor, own):
    nodes = {x.grad_fn._id for x in own if x.grad_fn is not None}
    leaves = [x for x in own if x.grad_fn is None]
    seen, todo = set(), [tensor.grad_fn] if tensor.grad_fn is not None else []
    if tensor.grad_fn is None:
        return any(tensor.is_same(x) for x in leaves)
    while todo:
        node = todo.pop()
        if node._id in seen:
            continue
        seen.add(node._id)
        if node._id in nodes or any(leaf.is_same(x) for leaf in node._leaves for x in leaves):
            return True
        todo += [n for n, _ in node.next_functions if n is not None]
    return False
