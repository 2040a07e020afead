"""pf.onnx.export: a model as an ONNX file. The model is called once, and what it calls is noted at the level of functions and methods."""
import contextlib
import sys
import types

import numpy as np

import pyflame as pf

from .. import _C, _tree
from .._C import Tensor
from . import values
from ._package import package

# Methods that tell about a tensor and compute nothing.
_ASKS = {"dim", "size", "numel", "nelement", "ndimension", "element_size", "is_contiguous", "is_floating_point", "stride", "storage_offset", "data_ptr", "get_device",
         "requires_grad_", "register_hook", "retain_grad", "is_same", "item", "tolist", "numpy", "backward", "is_complex", "is_set_to"}
_DUNDER = {"__add__": "add", "__radd__": "add", "__sub__": "sub", "__rsub__": "rsub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div", "__rtruediv__": "rdiv",
           "__pow__": "pow", "__matmul__": "matmul", "__neg__": "neg", "__getitem__": "getitem", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt",
           "__ge__": "ge", "__and__": "bitwise_and", "__rand__": "bitwise_and", "__or__": "bitwise_or", "__ror__": "bitwise_or", "__xor__": "bitwise_xor", "__rxor__": "bitwise_xor",
           "__invert__": "bitwise_not", "__abs__": "abs", "__pos__": "positive", "__floordiv__": "floor_divide", "__rfloordiv__": "rfloor_divide", "__mod__": "remainder",
           "__rmod__": "rremainder", "__rpow__": "rpow", "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift", "__setitem__": "setitem", "__iadd__": "add_",
           "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_", "__ifloordiv__": "floor_divide_", "__imod__": "remainder_", "__ipow__": "pow_", "__iand__": "bitwise_and_",
           "__ior__": "bitwise_or_", "__ixor__": "bitwise_xor_"}
_PROPERTIES = ("T", "mT", "H", "mH", "data", "real")
# Functions of the core that compute something, though their names are private.
_PRIVATE = ("_scatter", "_put_slices", "_index", "_index_put", "_true_positions", "_searchsorted", "_sorted_values", "_resample", "_lstm_step", "_gru_step", "_fft", "_rfft", "_irfft",
            "_grid_sample", "_embedding_bag", "_pdist", "_frexp", "_complex_logaddexp")

_LIMITS_NORMS = "max_norm"  # writes rows of a table that depend on the indices of the call; functions with a rule for it compute it instead


class Recorder:
    """Nodes and constants of a model while it runs. A value is known by its tensor; all tensors are kept, so that their identities stay theirs."""

    def __init__(self, onnx, opset, weights):
        self.onnx, self.opset, self.nodes, self.constants = onnx, opset, [], {}
        self.names, self.live, self.kept, self.missing, self.depth = {}, set(), [], {}, 0
        self.steps = None  # a list, where the results of all calls are kept: (function, tensor with its values)
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
        self.constants[name] = np.array(array)  # a copy, which later writes to a tensor do not reach
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
        """Calls a function and notes it by its rule. One without a rule that is written in Python is followed into what it calls."""
        from .export_compositions import RULES

        written = args[0] if not self.depth and _writes(name, args) else None
        if self.depth or not self.is_live(args) and not self.is_live(list(kwargs.values())):
            result = function(*args, **kwargs)
            if written is not None and self.names.get(id(written)) in self.constants:
                del self.names[id(written)]  # the constant has the values from before
            return result
        if written is not None:
            self.name(written)  # a constant, if nobody named it, has the values from before
        base = name[:-1] if name.endswith("_") and name[:-1] in RULES else name
        rule, python = RULES.get(base), isinstance(function, types.FunctionType)
        if name == _LIMITS_NORMS:
            self.missing[name] = self.missing.get(name, 0) + 1
        if rule is None and python:
            result = function(*args, **kwargs)
            if self.is_live(result) or not _tensors(result):
                return result
        else:
            self.depth += 1
            try:
                result = function(*args, **kwargs)
                tensors = _tensors(args[0] if name == "setitem" else result)
                made = None if rule is None or not tensors else self.made_by(rule, tensors[0] if name == "setitem" else result, args, kwargs)
            finally:
                self.depth -= 1
            if made is not None or not tensors:
                if isinstance(made, str) and written is not None and written is not tensors[0]:
                    self.note(name, [written], made, result)
                return self.note(name, tensors, made, result)
            if python and not name.endswith("_"):
                result = function(*args, **kwargs)
                if self.is_live(result):
                    return result
        refused = name if rule is None else f"{name}({_shown(args, kwargs)})"
        self.missing[refused] = self.missing.get(refused, 0) + 1
        tensors = _tensors(result) or _tensors(args[0])
        return self.note(name, tensors, [self.constant(values.to_array(t)) for t in tensors], result)

    def made_by(self, rule, result, args, kwargs):
        try:
            return rule(self, result, *_arranged(args, kwargs), **_keywords(kwargs))
        except TypeError:  # arguments that the rule does not know
            return None

    def note(self, name, tensors, made, result):
        """The tensors are the outputs of nodes."""
        for tensor, output in zip(tensors, made if isinstance(made, list) else [made]):
            self.names[id(tensor)] = output
            self.live.add(id(tensor))
            self.kept.append(tensor)
            if self.steps is not None and output:
                self.depth += 1
                self.steps.append((name.rstrip("_"), output, tensor.clone()))
                self.depth -= 1
        return result


def _writes(name, args):
    """Whether a call writes its first argument."""
    return bool(args) and isinstance(args[0], Tensor) and (name == "setitem" or name in ("_scatter", "_put_slices", "_index_put") and args[-1] is True or name.endswith("_"))


def _arranged(args, kwargs):
    """The arguments, with those in front that are given by PyTorch's keywords."""
    return (*((kwargs["input"],) if "input" in kwargs else ()), *args, *(kwargs[k] for k in ("other", "exponent") if k in kwargs))


def _keywords(kwargs):
    names = {"axis": "dim", "keepdims": "keepdim"}
    return {names.get(k, k): v for k, v in kwargs.items() if k not in ("input", "other", "exponent")}


def _shown(args, kwargs):
    """The text of the arguments of a call; of a tensor its shape."""
    def text(v):
        return f"Tensor{list(v.shape)}" if isinstance(v, Tensor) else "[...]" if isinstance(v, (list, tuple)) and _tensors(v) else repr(v)

    return ", ".join([text(v) for v in args] + [f"{k}={text(v)}" for k, v in kwargs.items()])


def _names(argument, given, default, count, of):
    """The names that were given, or "default", or "default_0" and so on for several."""
    if given is None:
        return [f"{default}_{k}" if count > 1 else default for k in range(count)]
    if isinstance(given, str) or len(given) != count or len(set(given)) != count:
        raise ValueError(f"onnx.export: {argument} do not fit; got {given!r} for {count} {of}; expected a list with a name of its own for each")
    return list(given)


def _tensors(result):
    return [r for r in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(r, Tensor)]


@contextlib.contextmanager
def _watched(recorder, model):
    """Wraps functions and methods for the time of the call: in the package, in the modules that define the model's parts, and where these parts keep one."""
    from ..nn import functional_embedding
    from .export_rules import FUNCTIONAL

    replaced = []

    def replace(owner, attribute, original, new):
        replaced.append((owner, attribute, original))
        setattr(owner, attribute, new)

    def watched(name, original):
        def wrapped(*args, **kwargs):
            return recorder.call(name, original, args, kwargs)

        return wrapped

    parts = list(model.modules()) if hasattr(model, "modules") else []
    own = {getattr(part, "__module__", None) for part in (model, *parts)}

    def exchange(new):
        """Puts new values, by the identity of the old ones, into namespaces."""
        spaces = [vars(m) for name, m in list(sys.modules.items()) if m is not None and (name.partition(".")[0] == "pyflame" or name in own)]
        for space in spaces + [vars(part) for part in parts]:
            space.update({a: new[id(v)] for a, v in list(space.items()) if id(v) in new})

    functions = [(a, v) for a, v in vars(_C).items() if callable(v) and not isinstance(v, type) and (a in _PRIVATE or not a.startswith("_"))]
    functions += [(a, getattr(pf.nn.functional, a)) for a in FUNCTIONAL] + [(_LIMITS_NORMS, functional_embedding._limit_norms)]
    wrapped = {id(v): watched(a, v) for a, v in functions}
    originals = {id(wrapped[id(v)]): v for _, v in functions}
    try:
        exchange(wrapped)
        for attribute, value in list(vars(Tensor).items()):
            if attribute in _DUNDER or callable(value) and not attribute.startswith("_") and attribute not in _ASKS:
                replace(Tensor, attribute, value, watched(_DUNDER.get(attribute, attribute), value))
        for attribute in _PROPERTIES:
            value = vars(Tensor)[attribute]
            replace(Tensor, attribute, value, property(watched(attribute, value.__get__)))
        replace(Tensor, "__iter__", vars(Tensor)["__iter__"], lambda x: iter(x.unbind(0)))
        yield
    finally:
        for owner, attribute, original in reversed(replaced):
            setattr(owner, attribute, original)
        exchange(originals)  # also in modules that were imported meanwhile


def _arguments(args):
    args = args if isinstance(args, tuple) else (args,)
    if not all(isinstance(a, Tensor) for a in args):
        raise TypeError(f"onnx.export: arguments are not tensors; got {[type(a).__name__ for a in args]}; expected tensors")
    return tuple(a.clone() if any(a is b for b in args[:k]) else a for k, a in enumerate(args))  # a tensor given twice is two inputs


def _run(model, args):
    with pf.no_grad():
        result = model(*args)
    results = _tree.flatten(result)[0] if isinstance(result, (tuple, list)) else (result,)
    if not all(isinstance(r, Tensor) for r in results):
        raise TypeError(f"onnx.export: the model's results are not tensors; got {[type(r).__name__ for r in results]}")
    return list(results)


def _others(args):
    """Arguments of the same shapes with other values: floating ones are changed, others reversed."""
    return tuple(a * 0.75 + pf.randn(*a.shape, device=a.device).to(dtype=a.dtype) * 0.1 if a.is_floating_point() else a.flip(list(range(a.dim()))) for a in args)


def _differs(have, want):
    a, b = values.to_array(have), values.to_array(want)
    kind = np.complex128 if b.dtype.kind == "c" else np.float64
    a, b = a.astype(kind), b.astype(kind)
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
    return a.shape != b.shape or not np.allclose(a, b, rtol=1e-3, atol=1e-3 * scale, equal_nan=True)


def _check(model, proto, args, record):
    """Raises if the file computes something else than the model. record(args) calls the model and returns a recorder and a file with all its steps."""
    from .model import load

    loaded = load(proto)
    for given in (args, _others(args)):
        given = tuple(a.cpu() for a in given)
        for k, (have, want) in enumerate(zip(_run(loaded, given), _run(model, given))):
            if _differs(have, want):
                raise RuntimeError(f"onnx.export: output {k} of the file differs from the model's; {_first_difference(record, args, given)}; expected the same; hint: values that the "
                                   "program read, writes through views, and functions that it keeps in lists, dicts or closures, are not seen: call them as pf.name(...)")


def _first_difference(record, args, given):
    """The text that names the first function whose output differs in the file."""
    from .model import load

    steps, _ = record(given)
    if not steps:
        return "got no function that is seen"
    file = record(args)[1]
    for k, ((name, _, want), have) in enumerate(zip(steps, _run(load(file), given))):
        if _differs(have, want):
            return f"got other numbers first from {name}(), its call {1 + sum(n == name for n, *_ in steps[:k])}"
    return "got the same numbers from all functions that are seen"


def export(model, args, f=None, *, opset=18, input_names=None, output_names=None, check=True):
    """Writes a model as ONNX and returns the ModelProto. f: a path, or None; args: a tensor or a tuple of tensors, for one call in eval mode.
    input_names, output_names: a list with a name for each; None: "input" and "output", or "input_0", "input_1" and so on for several.

    The file has the shapes of args, and the branches that this call took. Results in nested tuples and lists are outputs in their order. Weights keep the names of the state dict. NotImplementedError lists all
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
        names = _names("input_names", input_names, "input", len(args), "arguments")
        if twice := set(names) & {name for name, _ in weights}:
            raise ValueError(f"onnx.export: inputs and parameters have the same names; got {', '.join(sorted(twice))}; expected other names in input_names")

        def record(args, steps=None):
            recorder = Recorder(onnx, opset, weights)
            recorder.steps = steps
            for tensor, name in zip(args, names):
                recorder.input(tensor, name)
            with _watched(recorder, model):
                return recorder, _run(model, args)

        def all_steps(args):
            recorder, _ = record(args, [])
            outputs = [(output, tensor) for _, output, tensor in recorder.steps]
            return recorder.steps, _proto(onnx, recorder, opset, args, names, outputs, None)

        recorder, results = record(args)
        if recorder.missing:
            listed = ", ".join(f"{n} ({k}x)" for n, k in sorted(recorder.missing.items()))
            raise NotImplementedError(f"onnx.export: functions or arguments without a rule; got {listed}; expected those of pyflame.onnx.export_rules")
        proto = _proto(onnx, recorder, opset, args, names, [(recorder.name(r), r) for r in results], output_names)
        if check:
            _check(model, proto, args, all_steps)
    finally:
        if was_training:
            model.train()
    if f is not None:
        onnx.save(proto, f)
    return proto


def _proto(onnx, recorder, opset, args, names, results, output_names):
    helper = onnx.helper
    outputs = _names("output_names", output_names, "output", len(results), "results")
    nodes, used = [helper.make_node("Identity", [made], [name]) for (made, _), name in zip(results, outputs)], {made for made, _ in results}
    for node in reversed(recorder.nodes):  # those that nobody needs are left out
        if any(n in used for n in node.output):
            nodes.append(node)
            used.update(node.input)
    results = [tensor for _, tensor in results]
    tensors = {n: values.to_array(t) for n, t in recorder.weights.items() if n in used}
    tensors.update((n, a) for n, a in recorder.constants.items() if n in used)

    def describe(name, tensor):
        return helper.make_tensor_value_info(name, values.number_of(tensor.dtype), list(tensor.shape))

    graph = helper.make_graph(nodes[len(results):][::-1] + nodes[:len(results)], "model", [describe(n, t) for n, t in zip(names, args)], [describe(n, t) for n, t in zip(outputs, results)],
                              [onnx.numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), n) for n, a in tensors.items()])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="pyflame")
    proto.ir_version = min(proto.ir_version, 10)
    onnx.checker.check_model(proto)
    return proto
