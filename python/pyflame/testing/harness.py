"""Runs a Case on PyFlame: arrays to tensors of a layout, tensors back to arrays, gradients along a direction."""

import dataclasses
import zlib

import numpy as np

import pyflame as pf

from .tolerance import differences, is_float

LAYOUTS = ("transposed", "strided", "offset")


def dtype_name(tensor):
    return str(tensor.dtype).rsplit(".", 1)[-1]


def _plain(array, dtype, device):
    """A contiguous tensor of exactly these values."""
    if dtype == "bfloat16":  # NumPy has none; float32 holds its values
        return pf.tensor(array.astype(np.float32), device=device).to("bfloat16")
    return pf.tensor(np.ascontiguousarray(array.astype(dtype)).reshape(array.shape), device=device)


def _junk(shape, dtype):
    return np.full(shape, np.nan) if is_float(dtype) else np.ones(shape, dtype if dtype != "bool" else bool)


def to_tensor(array, dtype, device="cpu", layout="contiguous", bases=None):
    """bases collects (base tensor, its array): what lies around a view must not change."""
    if layout == "contiguous":
        return _plain(array, dtype, device)
    if layout == "transposed" and array.ndim >= 2:
        return pf.permute(_plain(array.transpose(), dtype, device), tuple(range(array.ndim))[::-1])
    if layout == "strided" and array.ndim >= 1:
        wide = _junk((*array.shape[:-1], 2 * array.shape[-1] + 1), dtype).astype(array.dtype)
        wide[..., 1::2] = array
        base = _plain(wide, dtype, device)
        view = base[..., 1::2]
    else:
        flat = np.concatenate([_junk((3,), dtype).astype(array.dtype), array.reshape(-1), _junk((2,), dtype).astype(array.dtype)])
        base, wide = _plain(flat, dtype, device), flat
        view = pf.narrow(base, 0, 3, array.size).view(*array.shape) if array.ndim else pf.select(base, 0, 3)
    if bases is not None:
        bases.append((base, wide))
    return view


def to_array(tensor):
    if dtype_name(tensor) == "bfloat16":
        tensor = tensor.to("float32")
    array = tensor.detach().cpu().numpy()
    return array.astype(np.float64) if array.dtype.kind == "f" else array.copy()


def as_tuple(outputs):
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def tensors(case, arrays, device="cpu", layout=None, bases=None):
    return [to_tensor(a, s.dtype, device, layout or s.layout, bases) for a, s in zip(arrays, case.inputs)]


def call(case, xs, device):
    """What the case makes of these tensors, with its device as the current one for what it creates itself."""
    before = pf.get_device()
    if before == device:  # set_device() ends the window, and nothing would be fused with what stands around the call
        return as_tuple(case.call(pf, *xs))
    pf.set_device(device)
    try:
        return as_tuple(case.call(pf, *xs))
    finally:
        pf.set_device(before)


def run(case, arrays, device="cpu", layout=None, bases=None):
    with pf.no_grad():
        return call(case, tensors(case, arrays, device, layout, bases), device)


def check_outputs(case, outputs, arrays):
    """Empty text when the outputs are what NumPy says."""
    expected = as_tuple(case.reference(*arrays))
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs instead of {len(expected)}"
    magnitude = case.magnitude(*arrays) if case.magnitude else None
    for i, (y, r, dtype) in enumerate(zip(outputs, expected, case.out_dtypes(len(outputs)))):
        if dtype_name(y) != dtype:
            return f"output {i}: dtype {dtype_name(y)} instead of {dtype}"
        wrong = differences(to_array(y), np.asarray(r), dtype, case.c, _fitting(magnitude, r), case.length, case.composed)
        if wrong:
            return f"output {i}: {wrong}"
    return ""


def _fitting(magnitude, reference):
    """A magnitude that does not broadcast to this output (statistics beside the result) counts as its largest value."""
    if magnitude is None:
        return None
    try:
        return np.broadcast_to(magnitude, np.shape(reference))
    except ValueError:
        return np.max(magnitude)


def in_float64(case):
    """The same case with float64 in the place of every float dtype."""
    return dataclasses.replace(case, inputs=tuple(dataclasses.replace(s, dtype="float64") if is_float(s.dtype) else s for s in case.inputs))


class Differentiated:
    """f(x) = sum of <w, output> over the float outputs of a case, its gradient and its gradient's gradient."""

    def __init__(self, case, arrays, device="cpu"):
        self.case, self.device = case, device
        self.arrays = [np.asarray(a) for a in arrays]
        self.rng = np.random.default_rng(zlib.crc32(case.name.encode()) + 1)
        xs = tensors(case, arrays, device)
        for i in case.grad:
            xs[i].requires_grad_()
        self.weights = [self.rng.standard_normal(y.shape) if y.requires_grad and not self._coarse(y) else None for y in call(case, xs, device)]

    def _coarse(self, output):
        """Cast to a smaller dtype: differences along a small step are only rounding."""
        return self.case.inputs[self.case.grad[0]].dtype == "float64" != dtype_name(output)

    def direction(self):
        return [self.rng.standard_normal(self.arrays[i].shape) for i in self.case.grad]

    def at(self, direction, step):
        moved = list(self.arrays)
        for i, v in zip(self.case.grad, direction):
            moved[i] = self.arrays[i] + step * v
        return moved

    def value(self, arrays):
        outputs = run(self.case, arrays, self.device)
        return sum(float((to_array(y) * w).sum()) for y, w in zip(outputs, self.weights) if w is not None)

    def gradients(self, arrays, create_graph=False):
        """(gradient tensors, inputs) at these arrays."""
        xs = tensors(self.case, arrays, self.device)
        for i in self.case.grad:
            xs[i].requires_grad_()
        outputs = call(self.case, xs, self.device)
        pairs = [(y, to_tensor(w, dtype_name(y), self.device)) for y, w in zip(outputs, self.weights) if w is not None and y.requires_grad]
        leaves = [xs[i] for i in self.case.grad]
        if not pairs:
            return [None] * len(leaves), leaves
        grads = pf.autograd.grad([y for y, _ in pairs], leaves, [w for _, w in pairs], create_graph=create_graph, allow_unused=True)
        return list(grads), leaves

    def gradient_arrays(self, arrays, create_graph=False):
        grads, _ = self.gradients(arrays, create_graph)
        return [np.zeros(np.shape(arrays[i])) if g is None else to_array(g) for g, i in zip(grads, self.case.grad)]

    def second(self, arrays, direction):
        """Gradient of <direction, gradient>."""
        grads, leaves = self.gradients(arrays, create_graph=True)
        pairs = [(g, to_tensor(u, dtype_name(g), self.device)) for g, u in zip(grads, direction) if g is not None and g.requires_grad]
        if not pairs:
            return [np.zeros(np.shape(arrays[i])) for i in self.case.grad]
        found = pf.autograd.grad([g for g, _ in pairs], leaves, [u for _, u in pairs], allow_unused=True)
        return [np.zeros(np.shape(arrays[i])) if g is None else to_array(g) for g, i in zip(found, self.case.grad)]


def dot(a, b):
    return sum(float((x * y).sum()) for x, y in zip(a, b))


def absolute_dot(a, b):
    return sum(float(np.abs(x * y).sum()) for x, y in zip(a, b))
