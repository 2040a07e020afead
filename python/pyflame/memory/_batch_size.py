"""pf.memory.find_batch_size: the largest batch that fits, from plans, then verified by a trial."""
from __future__ import annotations

import contextlib
import gc

from .. import _C
from .._grad_mode import no_grad
from ..nn import Module
from . import _machine, _null, _text, stats, trim

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._annotations import Device


class BatchSize(int):
    """The number of samples, with how it was found.

    bytes_per_sample, fixed_bytes: a plan's straight line. budget: bytes that the step may take. planned: {samples: planned bytes at the peak}.
    trials: [(samples, bytes at the peak, or None if they did not fit)] on the device itself.

    Made by find_batch_size. Raises ValueError for samples that are no number; the other values are not checked.
    """

    def __new__(cls, samples, **found):
        self = super().__new__(cls, samples)
        self.__dict__.update(found)
        return self

    def __repr__(self):
        if not {"bytes_per_sample", "fixed_bytes", "budget", "trials"} <= vars(self).keys():
            return f"batch size {int(self)}"
        tried = ", ".join(f"{n}: {'did not fit' if p is None else _text.size(p)}" for n, p in self.trials) or "none"
        return (f"batch size {int(self)}: {_text.size(self.bytes_per_sample)} a sample and {_text.size(self.fixed_bytes)} besides, "
                f"in {_text.size(self.budget)}; trials: {tried}")  # fmt: skip

    __str__ = __repr__


def _planned_peak(step, model, samples):
    """The peak of a second step on the null device, whose memory then has what the first one left."""
    with _null.planning(_null.device_of(model)):
        start = _null.live()
        arguments = (_null.module(model), samples) if model is not None else (samples,)
        for _ in range(2):
            _null.empty()
            _C.reset_peak_memory(_null.DEVICE)
            step(*arguments)
            _C.synchronize()
        peak = _C.memory_stats(_null.DEVICE)["peak_allocated"] - start
        del arguments
    return peak


class _Planner:
    """Planned peaks, each computed once."""

    def __init__(self, step, model):
        self.step, self.model, self.known = step, model, {}

    def __call__(self, samples):
        if samples not in self.known:
            self.known[samples] = _planned_peak(self.step, self.model, samples)
        return self.known[samples]

    def line(self, first=None, second=None):
        """(bytes besides, bytes a sample) from two plans; otherwise from the smallest and the largest one."""
        both = sorted({first, second} & set(self.known))
        (a, at_a), (b, at_b) = [(n, self.known[n]) for n in both] if len(both) == 2 else (min(self.known.items()), max(self.known.items()))
        slope = (at_b - at_a) / (b - a) if b > a else at_a / a
        return max(0, at_a - slope * a), slope


def _by_plan(planner, room, least, most):
    """The largest number of samples, within 2 %, whose planned peak is at most `room`. Guesses are where the straight line meets `room`, and halves
    where it does not get nearer."""
    if planner(least) > room:
        return least - 1
    low, high = least, most + 1  # low fits, high does not
    planner(min(most, least + 63))
    for turn in range(64):
        if high - low <= max(1, low // 50):
            break
        fixed, slope = planner.line(low, high)
        meets = int((room - fixed) / slope) if slope > 0 else most
        margin = max(1, (high - low) // 16 if high in planner.known else low // 50)
        guess = (low + high) // 2 if turn % 2 and high in planner.known else min(max(meets, low + margin), high - margin)
        if planner(guess) <= room:
            low = guess
        else:
            high = guess
    return low


@contextlib.contextmanager
def _unchanged(model):
    """Afterwards the model's tensors, its gradients and the random numbers are what they were. The copies are on the CPU."""
    tensors = list(model.parameters()) + list(model.buffers()) if model is not None else []
    saved = [(t, t.grad if t.requires_grad else None, t.detach().to("cpu").clone()) for t in tensors]
    state, training = _C.get_rng_state(), [(m, m.training) for m in (model.modules() if model is not None else ())]
    _C.synchronize()
    try:
        yield sum(c.numel() * c.element_size() for _, _, c in saved)
    finally:
        with no_grad():
            for t, gradient, copy in saved:
                t.copy_(copy)
                t.grad = gradient
        for module, mode in training:
            module.training = mode
        _C.set_rng_state(state)
        _C.synchronize()


def _forget_failures():
    """Further ops of a step that did not fit have failed, too; their errors would be raised later."""
    for _ in range(1000):
        try:
            return _C.synchronize()
        except _C.OutOfMemoryError:
            pass


def _trial(step, model, samples, device, limit):
    """The peak in bytes of two real steps under a limit; None if they do not fit. Nothing is left of them."""
    before = _C.memory_stats(device)
    _C.reset_peak_memory(device)
    _C._configure_memory(device, None, limit, None, None)
    try:
        for _ in range(2):
            step(*((model, samples) if model is not None else (samples,)))
            _C.synchronize()
        return _C.memory_stats(device)["peak_allocated"] - before["allocated"]
    except _C.OutOfMemoryError:
        _forget_failures()
        return None
    finally:
        _C._configure_memory(device, None, before["limit"], None, None)
        if model is not None:
            for p in model.parameters():
                p.grad = None


def _tried(step, model, samples, least, device, limit):
    """(the largest number of samples that ran, all trials). After a failure, the next one has an eighth less."""
    trials = []
    while samples >= least:
        peak = _trial(step, model, samples, device, limit)
        trim(device)
        trials.append((samples, peak))
        if peak is not None:
            break
        samples = max(least, samples - max(1, samples // 8)) if samples > least else least - 1
    return samples, trials


def _check(step, model, minimum, maximum, fraction):
    if not callable(step):
        raise TypeError(f"find_batch_size: step is not a function; got {type(step).__name__}")
    if model is not None and not isinstance(model, Module):
        raise TypeError(f"find_batch_size: not a Module; got {type(model).__name__}")
    if not 1 <= minimum <= maximum:
        raise ValueError(f"find_batch_size: minimum and maximum are not in order; got {minimum} and {maximum}; expected 1 <= minimum <= maximum")
    if not 0 < fraction <= 1:
        raise ValueError(f"find_batch_size: fraction is not a fraction; got {fraction}; expected more than 0 and at most 1")


def find_batch_size(step: Callable[..., object], model: Module | None = None, *, memory: float | str | None = None, fraction: float = 0.9, minimum: int = 1,
                    maximum: int = 65536, device: Device | None = None, verify: bool = True) -> BatchSize:
    """The largest batch whose training step fits, as a BatchSize, which is an int.

    step: step(model, samples) does all that a training step does: it makes a batch of so many samples on the model's device and the optimizer, calls the
        model, backward() and the optimizer's step(). Without `model`, step(samples) makes the model, too, on the current device.
    memory: bytes that the process may have, with tensors that are not the model's (or '24GiB'); None: this fraction of what the device has for this process, a limit of configure() included.
    minimum, maximum: the range of batch sizes that count.

    Bytes a sample come from plans of the step on the null device, which computes nothing. The result is then verified: two steps run on the device under
    the limit, with fewer samples if they do not fit; verify=False leaves this out. The model, its gradients and the random numbers are what they were
    afterwards, and memory that the trials took is given back. OutOfMemoryError if not even `minimum` samples fit."""
    _check(step, model, minimum, maximum, fraction)
    t = None if model is None else next(iter(model.parameters()), None)
    device = _machine.name_of(device if device is not None or t is None else t.device)
    gc.collect()  # a failed attempt before may be in a cycle, which keeps its memory until Python looks for cycles
    trim(device)
    s = stats(device)
    held = s["allocated"]
    budget = _text.bytes_of(memory) if memory is not None else int(fraction * min(s["free"] + s["reserved"], s["limit"] or s["total"]))
    own = _null.nbytes(list(model.parameters()) + list(model.buffers())) if model is not None else 0
    planner = _Planner(step, model)
    others = max(0, held - own)
    room = budget - others
    samples = _by_plan(planner, room, minimum, maximum)
    if model is None and max(planner.known.values()) == 0:
        raise ValueError("find_batch_size: the step made nothing on the current device; hint: give it the model, as find_batch_size(step, model) with step(model, samples)")
    trials = []
    if samples >= minimum and verify:
        with _unchanged(model) as copies:
            samples, trials = _tried(step, model, samples, minimum, device, budget + (copies if device in _machine.ON_HOST else 0))
        trim(device)
    if samples < minimum:
        raise _C.OutOfMemoryError(f"find_batch_size: the smallest batch does not fit; got {_text.size(budget)} for {minimum} samples, "
                                  f"which need {_text.size(planner(minimum) + others)}, {_text.size(others)} of it for tensors that are not the model's; "
                                  "hint: pf.checkpoint, a smaller model, float16, or del what else is held")  # fmt: skip
    fixed, slope = planner.line()
    return BatchSize(samples, bytes_per_sample=int(slope), fixed_bytes=int(fixed), budget=budget, planned=dict(sorted(planner.known.items())), trials=trials)
