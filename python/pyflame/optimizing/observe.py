"""Records what a program computes, so that two runs can be compared: the values that it reads, gradients of the first steps, the first outputs, and the last parameters.

One line of JSON for each: kind, place (file and line), step, dtype, shape, digest of all values, and some of the values."""
import hashlib
import json
import os
import random
import sys

import numpy as np

import pyflame as pf

from .. import _C, _deferred
from ..nn import layout
from . import resources

MOST_READS = 4000
MOST_VALUES = 64  # of one tensor
STEPS = 2  # whose gradients are recorded
PARAMETERS = 64
_READS = ("item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__format__", "__array__", "__repr__", "__str__")


def _place(frame):
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _numbers(value):
    array = np.asarray(value)
    return array if array.dtype.kind in "fiub" else np.empty(0)


class Observer:
    """Starts at once; finish() writes the file. plan: whether it also plans what recomputation saves and costs, which takes about the time of a few steps."""

    def __init__(self, path, steps, plan=False):
        self._path, self._steps, self._records, self._within = path, steps, [], False
        self._optimizers, self._optimizer_steps, self.reads, self.doubles = {}, 0, {}, {}
        self._dtypes = set()  # of parameters, outputs and mixed precision
        self._plan, self._convolutions = plan, None
        self._call = None  # the first call of the program's module in training that has a call before it
        self._loaders = resources.Loaders()
        self._loaders.watch()
        pf.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        for name in _READS:
            if name in _C.Tensor.__dict__ or hasattr(_C.Tensor, name):
                setattr(_C.Tensor, name, self._watched(name, getattr(_C.Tensor, name)))
        self._accumulation = resources.Accumulation()
        _C.Tensor.backward = self._watched_backward(_C.Tensor.backward)
        for name in ("tensor", "from_numpy", "as_tensor"):
            setattr(pf, name, self._watched_input(getattr(pf, name)))
        pf.optim.optimizer.register_optimizer_step_pre_hook(self._before_step)
        pf.autocast.__enter__ = self._watched_autocast(pf.autocast.__enter__)

    def _watched_autocast(self, original):
        def enter(context):
            if context.enabled:
                self._dtypes.add(_name_of(context.dtype))
            return original(context)

        return enter

    def _watched_backward(self, original):
        def backward(tensor, *args, **kwargs):
            if not self._within:
                self._accumulation.backward(os.path.abspath(sys._getframe(1).f_code.co_filename))
            return original(tensor, *args, **kwargs)

        backward.__doc__ = original.__doc__
        return backward

    # ---- reads

    def _watched(self, name, original):
        def read(tensor, *args, **kwargs):
            value = original(tensor, *args, **kwargs)
            if self._within or self._loaders.make_here() or sys._getframe(1).f_globals.get("__name__", "").startswith("pyflame."):
                return value
            self._within = True
            try:
                self._read(name, tensor, value, sys._getframe(1))
            finally:
                self._within = False
            return value

        read.__name__, read.__doc__ = name, original.__doc__
        return read

    def _read(self, name, tensor, value, frame):
        place = _place(frame)
        at = (os.path.abspath(frame.f_code.co_filename), frame.f_lineno)
        self.reads[at] = self.reads.get(at, 0) + 1
        if len(self._records) >= MOST_READS:
            return
        if isinstance(value, _deferred.Deferred):
            self._records.append(("read", place, self._optimizer_steps, "float", (), value))  # its value is taken at the end
            return
        self._add("read", place, value if name in ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__") else _plain(tensor))

    def _add(self, kind, place, value):
        array = _numbers(value)
        self._records.append((kind, place, self._optimizer_steps, array.dtype.name, array.shape, _sample(array)))

    def _watched_input(self, original):
        def make(data, *args, **kwargs):
            if isinstance(data, np.ndarray) and data.dtype == np.float64 and data.size > 1:
                frame = sys._getframe(1)
                at = (os.path.abspath(frame.f_code.co_filename), frame.f_lineno)
                self.doubles[at] = self.doubles.get(at, 0) + 1
            return original(data, *args, **kwargs)

        return make

    # ---- gradients and parameters

    def _before_step(self, optimizer, *_):
        if id(optimizer) not in self._optimizers:
            self._dtypes.update(_name_of(p.dtype) for p in _parameters(optimizer))
        self._optimizers[id(optimizer)] = optimizer
        if self._optimizer_steps < STEPS:
            self._tensors("gradient", [p.grad for p in _parameters(optimizer)])
        self._optimizer_steps += 1
        self._accumulation.step()

    def _tensors(self, kind, tensors):
        self._within = True
        try:
            for number, tensor in enumerate(tensors[:PARAMETERS]):
                if tensor is not None:
                    self._add(kind, f"parameter {number}", _plain(tensor))
        finally:
            self._within = False

    def called(self, module, args, kwargs):
        """Before a call of the program's module, from the second one on. Says whether this was the one that it waits for."""
        if self._convolutions is None:
            self._convolutions = layout.convolutions(module)
        if not (module.training and _C.is_grad_enabled()):
            return False
        try:
            self._call = resources.Call(module, args, kwargs)
        except TypeError:  # the arguments do not fit; the call itself will say so
            return False
        return True

    def output(self, value):
        """Of one of the first calls of the program's module, where it has no optimizer."""
        tensors = [v for v in _leaves(value) if isinstance(v, _C.Tensor)]
        self._dtypes.update(_name_of(t.dtype) for t in tensors)
        self._within = True
        try:
            for number, tensor in enumerate(tensors[:PARAMETERS]):
                self._add("output", f"output {number}", _plain(tensor))
        finally:
            self._within = False

    def finish(self):
        """The program has ended well."""
        for optimizer in self._optimizers.values():
            self._tensors("parameter", list(_parameters(optimizer)))
        devices = sorted({str(p.device) for o in self._optimizers.values() for p in _parameters(o)} | {str(_C.get_device())})
        found = resources.memory_of(next((d for d in devices if d.startswith(("cuda", "rocm"))), "cpu"))
        fired, (waiting, busy) = pf.rewrites.fired(), self._loaders.found()  # before the plan
        self._within = True
        recomputation = resources.recomputation(self._call, found) if self._plan else {}
        self._within = False
        convolutions, chosen = self._convolutions or (0, False)
        with open(self._path, "w", encoding="utf-8") as file:
            head = {"kind": "program", "reads": [[*at, n] for at, n in self.reads.items()], "doubles": [[*at, n] for at, n in self.doubles.items()], "steps": self._optimizer_steps, "dtypes": sorted(self._dtypes), "fired": fired,
                    "waiting": waiting, "busy": busy, "memory": found, "recomputation": recomputation, "accumulation": self._accumulation.found(),
                    "convolutions": convolutions, "channels_last": chosen, "devices": devices}
            file.write(json.dumps(head) + "\n")
            for kind, place, step, dtype, shape, values in self._records:
                if isinstance(values, _deferred.Deferred):
                    array = np.asarray(float(values))
                    dtype, shape, values = array.dtype.name, array.shape, _sample(array)
                digest, norm, some = values
                file.write(json.dumps({"kind": kind, "place": place, "step": step, "dtype": dtype, "shape": list(shape), "digest": digest, "norm": norm, "values": some}) + "\n")


def _name_of(dtype):
    return str(dtype).rpartition(".")[2]


def _parameters(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def _leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value]


def _plain(tensor):
    """The values as a NumPy array; bfloat16 as float32."""
    tensor = tensor.detach()
    if tensor.dtype == _C.bfloat16:
        tensor = tensor.float()
    return np.array(tensor.cpu().numpy())


def _sample(array):
    """(digest of all values, root of the mean square, some of the values)."""
    flat = np.ascontiguousarray(array).reshape(-1)
    some = flat[:: max(1, -(-flat.size // MOST_VALUES))]
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(np.mean(np.square(flat.astype(np.float64))))) if flat.size else 0.0
    return hashlib.sha256(flat.tobytes()).hexdigest()[:16], norm, [float(v) for v in some]
