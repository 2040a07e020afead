"""Running a program on the null device: it is recorded, fused and planned as on another one, and its memory is counted, but nothing is computed
and no memory is taken."""
import contextlib
import copy
import gc

from .. import _C, _tree
from .._C import Tensor
from ..nn import Module
from ..nn.parameter import Buffer, Parameter

DEVICE = "null"


@contextlib.contextmanager
def planning(like=None):
    """Inside, new tensors are made on the null device, and mixed precision is on as it is for the device `like` (default: the current one). Random
    numbers continue afterwards as if none had been drawn. Values that a step reads inside, such as a loss, are zeros; elsewhere such a read is an error."""
    device, state, own = _C.get_device(), _C.get_rng_state(), _C._autocast(DEVICE)
    reads = _C._set_reads_of_null(True)
    _C._set_autocast(DEVICE, *_C._autocast(like or device))
    empty()
    _C.set_device(DEVICE)
    try:
        yield
    finally:
        _C._set_reads_of_null(reads)
        _C.set_device(device)
        _C._set_autocast(DEVICE, *own)
        _C.set_rng_state(state)
        gc.collect()  # what a plan made may refer to itself
        empty()


def empty():
    """Completes what is pending, and gives back what nothing uses."""
    _C.synchronize()
    _C.empty_cache()


def live():
    """Bytes of live tensors on the null device, without what programs compute in between."""
    _C.synchronize()
    s = _C.memory_stats(DEVICE)
    return s["allocated"] - s["arena"]


def _twin(t):
    """A tensor of the same shape and dtype on the null device. Nothing is copied."""
    made = _C.empty(tuple(t.shape), dtype=t.dtype, device=DEVICE)
    if isinstance(t, Parameter):
        return Parameter(made, requires_grad=t.requires_grad)
    if isinstance(t, Buffer):
        return Buffer(made, persistent=t.persistent)
    return made.requires_grad_(True) if t.requires_grad else made


def module(model):
    """A copy of a module with its tensors on the null device. The original is not changed, and its values are not read. Parameters that are tied
    stay tied."""
    memo = {}
    for t in list(model.parameters()) + list(model.buffers()):
        memo[id(t)] = _twin(t)
    return copy.deepcopy(model, memo)


def made(model):
    """The model on the null device: a copy of a Module, or what a function returns when it is called there."""
    if isinstance(model, Module):
        return module(model)
    if not callable(model):
        raise TypeError(f"estimate: not a model; got {type(model).__name__}; expected a Module, or a function that returns one")
    found = model()
    if not isinstance(found, Module):
        raise TypeError(f"estimate: the function returned no Module; got {type(found).__name__}; expected a Module")
    return found


def tensors(values):
    """The same structure with twins of its tensors on the null device; of a function, of what it returns. Other values stay as they are."""
    values = values() if callable(values) and not isinstance(values, Tensor) else values
    return _tree.map(lambda v: _twin(v) if isinstance(v, Tensor) else v, values)


def tensors_in(values):
    return [v for v in _tree.flatten(values)[0] if isinstance(v, Tensor)]


def nbytes(several):
    """The bytes of tensors. What is shared counts once."""
    seen = {id(t): t for t in several if t is not None}
    return sum(t.numel() * t.element_size() for t in seen.values())


def device_of(model):
    """The type of the device on which a module's tensors are; None for a function, and for a module without tensors."""
    if not isinstance(model, Module):
        return None
    t = next((t for group in (model.parameters(), model.buffers()) for t in group), None)
    return None if t is None else t.device.type
