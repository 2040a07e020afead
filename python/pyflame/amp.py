"""Mixed precision, as torch.amp: autocast chooses each op's dtype, GradScaler keeps float16 gradients away from zero.

    scaler = pf.amp.GradScaler()                         # float16 only; bfloat16 has float32's range
    with pf.autocast("rocm", dtype=pf.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
from __future__ import annotations

import functools
import math
import sys
import threading
import warnings

from . import _C, _refused

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from ._C import dtype
    from ._annotations import Function

_thread = threading.local()  # .chosen: the types of devices whose autocast was entered or set in this thread
__path__ = []  # PyTorch has files below it, which are found as this module


def _kind_of(op, device_type):
    """The type of a device in its name: 'rocm' of 'rocm:0'."""
    if not isinstance(device_type, str):
        raise TypeError(f"{op}: device_type is not a string; got {type(device_type).__name__}; expected one such as 'cpu', 'rocm' or 'cuda'")
    return device_type.split(":")[0]


class autocast:
    """Inside this context, matmul, bmm, linear, conv2d, conv_transpose2d and scaled_dot_product_attention take float32 inputs in `dtype`; softmax, log_softmax,
    layer_norm, rms_norm, the losses, sum, prod, exponentials, logarithms, pow, rsqrt and reciprocal take half inputs in float32; every
    other op runs in its inputs' promoted dtype. Parameters and their gradients stay float32. Run the forward pass inside,
    and backward() outside. The mode belongs to the calling thread.

    device_type: 'rocm', 'cuda', 'cpu', or a device's name (its type counts). dtype: bfloat16 or float16; default get_autocast_dtype(): bfloat16 on the CPU,
    float16 on a GPU, or that of an outer autocast, as PyTorch's. With float32 or float64, which are no half types, autocast is off inside the context, and a
    warning says so. enabled=False: autocast is off inside the context. cache_enabled is accepted for PyTorch's programs and changes nothing. Also a decorator.

    ValueError for an unknown device_type; TypeError for one that is no str, and for another dtype."""

    def __init__(self, device_type: str | None = None, dtype: dtype | None = None, enabled: bool = True, cache_enabled: object = None) -> None:
        if device_type is not None and not isinstance(device_type, str):
            raise TypeError(f"autocast: device_type is no str; got {device_type!r}; expected such as 'cpu' or 'cuda'; hint: x.device.type")
        self.device_type = (device_type or _C.get_device()).split(":")[0]
        self.dtype = dtype or get_autocast_dtype(self.device_type)
        _C._autocast(self.device_type)  # an unknown name is an error here
        self.enabled = bool(enabled)
        if self.dtype in (_C.float32, _C.float64):
            if self.enabled:
                warnings.warn(f"autocast: it is off inside this context, because {self.dtype} is no half type; expected float16 or bfloat16, or enabled=False", stacklevel=2)
            self.enabled, self.dtype = False, get_autocast_dtype(self.device_type)
        _check_half("autocast", self.dtype)
        self._before = []

    def __enter__(self) -> autocast:
        # The null device stands for any device while a step is planned on it (pf.memory).
        kinds = {self.device_type, "null"} if _C.get_device().startswith("null") else {self.device_type}
        self._before.append({kind: (_C._autocast(kind)[0], get_autocast_dtype(kind)) for kind in kinds})
        for kind in kinds:
            _set(kind, self.enabled, self.dtype)
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        for kind, mode in self._before.pop().items():
            _C._set_autocast(kind, *mode)
        return False

    @property
    def fast_dtype(self) -> dtype:
        """The dtype to which autocast casts: the attribute `dtype`, under the name that PyTorch's class has for it."""
        return self.dtype

    def __call__(self, fn: Function) -> Function:
        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            with autocast(self.device_type, self.dtype, self.enabled):
                return fn(*args, **kwargs)

        return wrapped


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on in this thread for a device type (default: the current device's).

    Returns a bool. ValueError for a device type that does not exist, TypeError for what is no string.
    """
    return _C._autocast(_kind_of("is_autocast_enabled", device_type or _C.get_device()))[0]


def get_autocast_dtype(device_type: str) -> dtype:
    """The dtype that autocast uses in this thread unless one is given: that of set_autocast_dtype() or of an autocast around; otherwise bfloat16 on the CPU,
    float16 on a GPU.

    ValueError for a device type that does not exist, TypeError for what is no string.
    """
    kind = _kind_of("get_autocast_dtype", device_type)
    enabled, dtype = _C._autocast(kind)
    if enabled or kind in getattr(_thread, "chosen", ()):
        return dtype
    return _C.float16 if kind in ("rocm", "cuda") else _C.bfloat16


def _check_half(op, dtype):
    if dtype not in (_C.float16, _C.bfloat16):
        hint = "; hint: linear layers compute in 8-bit floats after pf.float8.convert_to_float8_training(model)" if "float8" in str(dtype) else ""
        raise TypeError(f"{op}: not a half type; got {dtype}; expected float16 or bfloat16{hint}")


def _set(kind, enabled, dtype):
    _C._set_autocast(kind, enabled, dtype)
    if not hasattr(_thread, "chosen"):
        _thread.chosen = set()
    _thread.chosen.add(kind)


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """set_autocast_enabled(device_type, enabled) turns autocast on or off in this thread, without a context; set_autocast_enabled(enabled) that of the
    current device's type. The dtype stays that of get_autocast_dtype(). TypeError if `enabled` is no bool."""
    if enabled is None:
        device_type, enabled = _C.get_device(), device_type
    if not isinstance(enabled, bool):
        raise TypeError(f"set_autocast_enabled: enabled is no bool; got {type(enabled).__name__}; expected True or False")
    kind = _kind_of("set_autocast_enabled", device_type)
    _set(kind, enabled, get_autocast_dtype(kind))


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Sets the dtype that autocast of a device type uses in this thread unless one is given: float16 or bfloat16. TypeError for another."""
    _check_half("set_autocast_dtype", dtype)
    kind = _kind_of("set_autocast_dtype", device_type)
    _set(kind, _C._autocast(kind)[0], dtype)


def autocast_increment_nesting() -> int:
    """Counts a context of autocast that a program makes by hand, in this thread; the count with it, an int. Never raises."""
    _thread.nesting = getattr(_thread, "nesting", 0) + 1
    return _thread.nesting


def autocast_decrement_nesting() -> int:
    """Counts the end of a context of autocast_increment_nesting(), in this thread; the count without it, an int. Never raises, also for a count below 0."""
    _thread.nesting = getattr(_thread, "nesting", 0) - 1
    return _thread.nesting


def clear_autocast_cache() -> None:
    """Does nothing: autocast keeps no cast copies of parameters between ops, so that there is no cache to clear."""


def set_autocast_cache_enabled(enabled: object) -> None:
    """Does nothing: autocast keeps no cast copies of parameters between ops, with either value of enabled. It raises nothing."""


def is_autocast_cache_enabled() -> bool:
    """Always False: autocast keeps no cast copies of parameters between ops. PyTorch's default is True."""
    return False


def is_autocast_available(device_type: object) -> bool:
    """Whether autocast can be used for a type of device: True for 'cpu', 'rocm' and 'cuda', with or without a GPU; False for everything else. Never raises."""
    return device_type in ("cpu", "rocm", "cuda")


def custom_fwd(fwd=None, *, device_type=None, cast_inputs=None):
    """A decorator of Function.forward. cast_inputs: where autocast is on, floating tensors come in this dtype, and forward runs without autocast.

    device_type: whose autocast counts; None: the current device's. TypeError for a cast_inputs that is no floating dtype; a call of forward is a ValueError for
    an unknown device_type."""
    if cast_inputs is not None and not (isinstance(cast_inputs, _C.dtype) and cast_inputs.is_floating_point):
        raise TypeError(f"custom_fwd: cast_inputs is no floating dtype; got {cast_inputs!r}; expected such as pyflame.float32, or None")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def wrapped(*args, **kwargs):
        kind = _kind_of("custom_fwd", device_type or _C.get_device())
        args[0]._autocast = (kind, _C._autocast(kind))
        if cast_inputs is None or not _C._autocast(kind)[0]:
            return fwd(*args, **kwargs)
        args[0]._autocast = (kind, (False, get_autocast_dtype(kind)))
        with autocast(kind, enabled=False):
            return fwd(*[a.to(cast_inputs) if isinstance(a, _C.Tensor) and a.is_floating_point() else a for a in args], **kwargs)

    return wrapped


def custom_bwd(bwd=None, *, device_type=None):
    """A decorator of Function.backward: it runs under the autocast that forward had, if custom_fwd decorates that, and otherwise without. device_type is accepted
    for PyTorch's programs and changes nothing. It raises nothing of its own; errors of backward come through."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def wrapped(*args, **kwargs):
        kind, (enabled, dtype) = getattr(args[0], "_autocast", ("cpu", (False, _C.bfloat16)))
        with autocast(kind, dtype=dtype, enabled=enabled):
            return bwd(*args, **kwargs)

    return wrapped


def _on_all_ranks(finite, grads):
    """Whether the gradients are finite on all ranks that have parts of them: they make the same step, or all leave it out."""
    groups = {id(g): g for t in grads if getattr(t, "_sharding", None) is not None for g in t._sharding.groups if g.size() > 1}
    for g in groups.values():
        from . import distributed

        flag = _C.tensor(float(finite), device="cpu")
        distributed.all_reduce(flag, op=distributed.ReduceOp.MIN, group=g)
        finite = flag.item() == 1.0
    return finite


def _check_scale(op, name, value):
    if not 0.0 < value < math.inf:
        raise ValueError(f"{op}: {name} is out of range; got {value}; expected a finite number above 0")


class GradScaler:
    """Scales a loss so that small float16 gradients survive, and skips the optimizer's step when a gradient is not finite.

    The factor starts at init_scale, is multiplied by backoff_factor after a skipped step and by growth_factor after growth_interval good
    ones. Each step reads one number from the device: whether all gradients are finite.

    growth_factor is above 1, backoff_factor between 0 and 1, init_scale above 0 and finite, and growth_interval at least 1 (ValueError). enabled=False: the factor is 1, and step() is the optimizer's. device is accepted
    for PyTorch's programs and changes nothing."""

    def __init__(self, device: object = None, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        if growth_factor <= 1.0:
            raise ValueError(f"GradScaler: growth_factor is out of range; got {growth_factor}; expected a number above 1")
        if not 0.0 < backoff_factor < 1.0:
            raise ValueError(f"GradScaler: backoff_factor is out of range; got {backoff_factor}; expected a number between 0 and 1")
        _check_scale("GradScaler", "init_scale", init_scale)
        if growth_interval < 1:
            raise ValueError(f"GradScaler: growth_interval is out of range; got {growth_interval}; expected 1 or more good steps")
        self._scale, self._growth, self._backoff, self._interval = float(init_scale), float(growth_factor), float(backoff_factor), int(growth_interval)
        self._good, self._enabled = 0, bool(enabled)
        self._unscaled = {}  # id of an optimizer -> whether its gradients are finite

    def is_enabled(self):
        """Whether the scaler scales losses: the argument enabled. If False, scale() returns its argument and step() is the optimizer's."""
        return self._enabled

    def get_scale(self):
        """The factor by which scale() multiplies a loss now, a float; 1.0 if the scaler is not enabled."""
        return self._scale if self._enabled else 1.0

    def scale(self, outputs):
        """outputs (a tensor, or a list or tuple of them) times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(x) for x in outputs)
        return outputs * self._scale

    def unscale_(self, optimizer):
        """Divides the optimizer's gradients by the factor, in place. Call it once per step, before you clip gradients."""
        if not self._enabled:
            return
        if id(optimizer) in self._unscaled:
            raise RuntimeError("unscale_: called twice for one step; expected once between update() calls")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not grads:
            raise ValueError("unscale_: no gradients; expected backward() on a scaled loss before")
        with_half = [g for g in grads if g.dtype == _C.float16]
        if with_half:
            raise ValueError("unscale_: a gradient is float16; expected float32 parameters under autocast")
        inverse = 1.0 / self._scale
        from . import no_grad

        with no_grad():
            for g in grads:
                g.mul_(inverse)
            # The squares of finite gradients may overflow: only then each is looked at.
            finite = math.isfinite(_C.total_norm(grads).item()) or all(_C.isfinite(g).all().item() for g in grads)
            self._unscaled[id(optimizer)] = _on_all_ranks(finite, grads)

    def step(self, optimizer, *args, **kwargs):
        """Calls optimizer.step() if its gradients are finite, and returns its result, otherwise None. Gradients are unscaled first, unless unscale_ was called."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise RuntimeError("GradScaler.step: closures are not supported; got one; expected optimizer.step() without arguments")
        if id(optimizer) not in self._unscaled:
            self.unscale_(optimizer)
        return optimizer.step() if self._unscaled[id(optimizer)] else None

    def update(self, new_scale=None):
        """Call it after the step. Sets the factor for the next step, or `new_scale` if given: a finite number above 0 (ValueError)."""
        if not self._enabled:
            return
        if new_scale is not None:
            new_scale = float(new_scale)
            _check_scale("GradScaler.update", "new_scale", new_scale)
            self._scale = new_scale
        elif not self._unscaled:
            raise RuntimeError("GradScaler.update: no step was taken; expected step() or unscale_() before")
        elif all(self._unscaled.values()):
            self._good += 1
            if self._good >= self._interval:
                self._scale, self._good = self._scale * self._growth, 0
        else:
            self._scale, self._good = self._scale * self._backoff, 0
        self._unscaled.clear()

    def state_dict(self):
        """The factor, its settings and the number of good steps, as a dict; empty where scaling is off."""
        if not self._enabled:
            return {}
        return {"scale": self._scale, "growth_factor": self._growth, "backoff_factor": self._backoff, "growth_interval": self._interval,
                "_growth_tracker": self._good}

    def load_state_dict(self, state):
        """Takes the factor and its settings from a state_dict. Nothing where scaling is off. ValueError where an entry is missing."""
        if not self._enabled:
            return
        missing = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"} - set(state)
        if missing:
            raise RuntimeError(f"GradScaler.load_state_dict: entries are missing; got none for {', '.join(sorted(missing))}; expected a state_dict()")
        self._scale, self._growth, self._backoff = float(state["scale"]), float(state["growth_factor"]), float(state["backoff_factor"])
        self._interval, self._good = int(state["growth_interval"]), int(state["_growth_tracker"])


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on in this thread for tensors on the CPU: is_autocast_enabled('cpu'). Returns a bool."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Turns autocast on or off in this thread for tensors on the CPU: set_autocast_enabled('cpu', enabled), a name of older programs.

    TypeError if enabled is no bool.
    """
    set_autocast_enabled("cpu", enabled)


def set_autocast_cpu_dtype(dtype: dtype) -> None:
    """Sets the dtype of autocast on the CPU in this thread: set_autocast_dtype('cpu', dtype). float16 or bfloat16; TypeError for another."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: dtype) -> None:
    """Sets the dtype of autocast for 'cuda' in this thread: set_autocast_dtype('cuda', dtype). float16 or bfloat16; TypeError for another."""
    set_autocast_dtype("cuda", dtype)


def get_autocast_cpu_dtype() -> dtype:
    """The dtype of autocast on the CPU: bfloat16 unless another was set."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> dtype:
    """The dtype of autocast on a GPU: float16 unless another was set."""
    return get_autocast_dtype("cuda")


grad_scaler = autocast_mode = sys.modules[__name__]  # PyTorch's files


def advise(device=None):
    """Says which dtype to train and to run models in on a device, and why; print the result.

    device: a device or its name ('cpu', 'rocm', 'cuda:1'; default the current one), or a GPU that need not be here, by its name, 'MI300X' or 'RX 7900 XTX', or by
    its architecture, 'gfx942' or 'sm_90', which stands for the first such GPU of the table. The result has training, inference, float8, rates (TFLOP/s of the data sheet, not measured) and reasons. ValueError for a GPU that is not in the table."""
    from ._precision_advice import advise as advice

    return advice(device)


_refused.unknown(globals())
