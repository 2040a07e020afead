"""pf.onnx.export: a model as an ONNX file. The model is called once, and what it calls is noted at the level of functions and methods."""
import contextlib

import numpy as np

import pyflame as pf

from .. import _C
from .._C import Tensor
from . import values
from ._package import package

# Methods that tell about a tensor and compute nothing.
_ASKS = {"dim", "size", "numel", "nelement", "ndimension", "element_size", "is_contiguous", "is_floating_point", "stride", "storage_offset", "data_ptr", "get_device",
         "requires_grad_", "register_hook", "retain_grad", "is_same", "item", "tolist", "numpy", "backward", "is_complex", "is_set_to"}
_DUNDER = {"__add__": "add", "__radd__": "add", "__sub__": "sub", "__rsub__": "rsub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div", "__rtruediv__": "rdiv",
           "__pow__": "pow", "__matmul__": "matmul", "__neg__": "neg", "__getitem__": "getitem", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt",
           "__ge__": "ge", "__and__": "logical_and", "__or__": "logical_or", "__invert__": "logical_not", "__abs__": "abs", "__iadd__": "add_", "__isub__": "sub_",
           "__imul__": "mul_", "__itruediv__": "div_"}


class Recorder:
    """Nodes and constants of a model while it runs. A value is known by its tensor; all tensors are kept, so that their identities stay theirs."""

    def __init__(self, onnx, opset, weights):
        self.onnx, self.opset, self.nodes, self.constants = onnx, opset, [], {}
        self.names, self.live, self.kept, self.missing, self.depth = {}, set(), [], {}, 0
        for name, tensor in weights:
            self.names[id(tensor)] = name
            self.kept.append(tensor)
        self.weights = dict(weights)

    def input(self, tensor, name):
        self.names[id(tensor)] = name
        self.live.add(id(tensor))
        self.kept.append(tensor)

    # ---- what rules use

    def name(self, value, like=None):
        """The name of a tensor, or of a number as a constant with the dtype of `like`."""
        if isinstance(value, Tensor):
            if self.names.get(id(value)) == "":
                raise NotImplementedError("onnx.export: the places that a pool returns have no rule; expected its values alone")
            if id(value) in self.names:
                return self.names[id(value)]
            self.names[id(value)] = self.constant(values.to_array(value))
            self.kept.append(value)
            return self.names[id(value)]
        return self.constant(np.asarray(value, None if like is None else like.dtype.name))

    def cast(self, value, dtype):
        """The name of a value with a dtype; a number becomes a constant of it."""
        if not isinstance(value, Tensor):
            return self.constant(np.asarray(value, dtype.name))
        return self.name(value) if value.dtype == dtype else self.node("Cast", [self.name(value)], to=values.number_of(dtype))

    def constant(self, array):
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def ints(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def node(self, op, inputs, outputs=1, **attributes):
        """Adds a node; returns the name of its output, or a list of names."""
        made = [f"{op.lower()}_{len(self.nodes)}" + (f"_{k}" if outputs > 1 else "") for k in range(outputs)]
        attributes = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(self.onnx.helper.make_node(op, inputs, made, **attributes))
        return made[0] if outputs == 1 else made

    # ---- calls

    def is_live(self, value):
        if isinstance(value, (list, tuple)):
            return any(self.is_live(v) for v in value)
        return isinstance(value, Tensor) and (id(value) in self.live or id(value) in self.names and self.names[id(value)] in self.weights)

    def call(self, name, function, args, kwargs):
        from .export_rules import RULES

        if self.depth:
            return function(*args, **kwargs)
        self.depth += 1
        try:
            result = function(*args, **kwargs)
            tensors = [r for r in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(r, Tensor)]
            if not tensors or not self.is_live(args) and not self.is_live(list(kwargs.values())):
                return result
            base = name[:-1] if name.endswith("_") and name[:-1] in RULES else name
            rule = RULES.get(base)
            made = None if rule is None else rule(self, result, *args, **kwargs)
            if made is None:
                self.missing[name] = self.missing.get(name, 0) + 1
                made = [self.constant(values.to_array(t)) for t in tensors]
            for tensor, output in zip(tensors, made if isinstance(made, list) else [made]):
                self.names[id(tensor)] = output
                self.live.add(id(tensor))
                self.kept.append(tensor)
            return result
        finally:
            self.depth -= 1


@contextlib.contextmanager
def _watched(recorder):
    """Wraps functions and methods for the time of the call."""
    from .export_rules import FUNCTIONAL

    replaced = []

    def wrap(owner, attribute, name):
        original = owner.__dict__[attribute] if isinstance(owner, type) else getattr(owner, attribute)

        def wrapped(*args, **kwargs):
            return recorder.call(name, original, args, kwargs)

        replaced.append((owner, attribute, original))
        setattr(owner, attribute, wrapped)

    try:
        for attribute, value in list(vars(_C).items()):
            if callable(value) and not isinstance(value, type) and not attribute.startswith("_"):
                wrap(_C, attribute, attribute)
                for owner in (pf, pf.nn.functional):  # both have some of them under the same name
                    if getattr(owner, attribute, None) is value:
                        wrap(owner, attribute, attribute)
        for attribute in FUNCTIONAL:
            wrap(pf.nn.functional, attribute, attribute)
        for attribute, value in list(vars(Tensor).items()):
            if attribute in _DUNDER or callable(value) and not attribute.startswith("_") and attribute not in _ASKS:
                wrap(Tensor, attribute, _DUNDER.get(attribute, attribute))
        yield
    finally:
        for owner, attribute, original in reversed(replaced):
            setattr(owner, attribute, original)


def _arguments(args):
    args = args if isinstance(args, tuple) else (args,)
    if not all(isinstance(a, Tensor) for a in args):
        raise TypeError(f"onnx.export: arguments are not tensors; got {[type(a).__name__ for a in args]}; expected tensors")
    return args


def _run(model, args):
    with pf.no_grad():
        result = model(*args)
    results = result if isinstance(result, (tuple, list)) else (result,)
    if not all(isinstance(r, Tensor) for r in results):
        raise TypeError(f"onnx.export: the model's results are not tensors; got {[type(r).__name__ for r in results]}")
    return list(results)


def _others(args):
    """Arguments of the same shapes with other values: floating ones are changed, others reversed."""
    return tuple(a * 0.75 + pf.randn(*a.shape, device=a.device).to(dtype=a.dtype) * 0.1 if a.is_floating_point() else a.flip(list(range(a.dim()))) for a in args)


def _check(model, proto, args):
    """Raises if the file computes something else than the model."""
    from .model import load

    loaded = load(proto)
    for given in (args, _others(args)):
        given = tuple(a.cpu() for a in given)
        for k, (have, want) in enumerate(zip(_run(loaded, given), _run(model, given))):
            a, b = values.to_array(have).astype(np.float64), values.to_array(want).astype(np.float64)
            scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
            if a.shape != b.shape or not np.allclose(a, b, rtol=1e-3, atol=1e-3 * scale, equal_nan=True):
                raise RuntimeError(f"onnx.export: output {k} of the file differs from the model's; got {a.shape}; expected {b.shape}; hint: functions that the program "
                                   "took into its own names, or values that it read, are not seen: call them as pf.name(...)")


def export(model, args, f=None, *, opset=18, input_names=None, output_names=None, check=True):
    """Writes a model as ONNX and returns the ModelProto. f: a path, or None; args: a tensor or a tuple of tensors, for one call in eval mode.

    The file has the shapes of args, and the branches that this call took. Weights keep the names of the state dict. NotImplementedError lists all
    functions without a rule. With check, the file is loaded again and compared with the model on args and on other values.
    """
    onnx = package("onnx.export")
    if not 17 <= opset <= 22:
        raise ValueError(f"onnx.export: the opset is not written; got {opset}; expected 17 to 22")
    args = _arguments(args)
    was_training = getattr(model, "training", False)
    if was_training:
        model.eval()
    try:
        weights = [*model.named_parameters(), *model.named_buffers()] if hasattr(model, "named_parameters") else []
        recorder = Recorder(onnx, opset, weights)
        names = list(input_names or [f"input_{k}" if len(args) > 1 else "input" for k in range(len(args))])
        for tensor, name in zip(args, names):
            recorder.input(tensor, name)
        with _watched(recorder):
            results = _run(model, args)
        if recorder.missing:
            listed = ", ".join(f"{n} ({k}x)" for n, k in sorted(recorder.missing.items()))
            raise NotImplementedError(f"onnx.export: functions or arguments without a rule; got {listed}; expected those of pyflame.onnx.export_rules")
        proto = _proto(onnx, recorder, opset, args, names, results, output_names)
        if check:
            _check(model, proto, args)
    finally:
        if was_training:
            model.train()
    if f is not None:
        onnx.save(proto, f)
    return proto


def _proto(onnx, recorder, opset, args, names, results, output_names):
    helper = onnx.helper
    outputs = list(output_names or [f"output_{k}" if len(results) > 1 else "output" for k in range(len(results))])
    for result, name in zip(results, outputs):
        recorder.nodes.append(helper.make_node("Identity", [recorder.name(result)], [name]))
    used = {n for node in recorder.nodes for n in node.input}
    tensors = {n: values.to_array(t) for n, t in recorder.weights.items() if n in used}
    tensors.update((n, a) for n, a in recorder.constants.items() if n in used)

    def describe(name, tensor):
        return helper.make_tensor_value_info(name, values.number_of(tensor.dtype), list(tensor.shape))

    graph = helper.make_graph(recorder.nodes, "model", [describe(n, t) for n, t in zip(names, args)], [describe(n, t) for n, t in zip(outputs, results)],
                              [onnx.numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), n) for n, a in tensors.items()])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="pyflame")
    proto.ir_version = min(proto.ir_version, 10)
    onnx.checker.check_model(proto)
    return proto
