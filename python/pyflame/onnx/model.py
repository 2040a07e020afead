"""OnnxModule: a model file as a Module."""
import os

import numpy as np

from .. import _C
from .._C import Tensor
from ..nn.module import Module
from ..nn.parameter import Parameter
from . import values
from ._package import package
from .graph import read
from .plan import DEVICE, HOST, Plan, Report, Shared, host_positions, wanted_on_host
from .trace import Recorder, Traces

_FLOATS = ("float16", "float32", "float64", "bfloat16")
_STATISTICS = {"BatchNormalization": (3, 4)}  # inputs that training does not change


class Weights(Module):
    """Holds the weights that have the same first part of their dotted names."""


class OnnxModule(Module):
    """A model of an ONNX file. Call it with tensors (or arrays) by position or by the names of its inputs; it returns a tensor, or a tuple.

    inputs, outputs: what the model takes and gives, as (name, dtype, shape). Floating weights are parameters, integer weights are buffers,
    under the names of the file.

    Made by load(). A call raises TypeError for missing, unknown and too many inputs, and what an operator raises for shapes and dtypes that do not fit,
    with the name of its node.
    """

    def __init__(self, graph, opsets):
        super().__init__()
        self.opsets, self._graph, self._report = opsets, graph, Report()
        self.inputs = [i for i in graph.inputs if i.name not in graph.constants]
        self.outputs = list(graph.outputs)
        self._places, self._slots = [], {}
        self._statistics = _statistics(graph, set())
        wanted = wanted_on_host(graph)
        direct = host_positions(graph)
        kinds = {i.name: HOST if _small(i) and i.name in wanted and (i.dtype not in _FLOATS or i.name in direct) else DEVICE for i in self.inputs}
        self._kinds = kinds
        namespace = {"read": self._read, "w": None}
        self._namespace = namespace
        self._shared = Shared(self._weight, self._report, namespace, wanted)
        self._plan = Plan(graph, kinds, {}, self._shared)
        self._call = self._plan.compile([i.name for i in self.inputs])
        self._traces = Traces()
        self.training = False

    # ---- weights

    def _weight(self, name, array):
        """The expression that has a constant as a tensor, and the place where the module holds it."""
        key = (name, id(array))
        if key in self._slots:
            return self._slots[key]
        tensor = values.to_tensor(array)
        holder, last = self._place(name)
        if tensor.dtype.name in _FLOATS and tensor.dim() > 0 and name not in self._statistics:
            holder._parameters[last] = Parameter(tensor)
            where = holder._parameters
        else:
            holder._buffers[last] = tensor
            where = holder._buffers
            if tensor.dim() == 0 and name not in self._statistics:
                holder._non_persistent.add(last)
        self._slots[key] = f"w[{len(self._places)}]"
        self._places.append((where, last))
        return self._slots[key]

    def _place(self, name):
        """The child that holds a weight, and the weight's name there: 'layer1.0.weight' is 'weight' in the child 'layer1.0'."""
        parts = [p or "_" for p in name.split(".")]
        holder = self
        for part in parts[:-1]:
            child = holder._modules.get(part)
            if child is None:
                child = holder._modules[part] = Weights()
            holder = child
        last = parts[-1]
        while last in holder._parameters or last in holder._buffers or last in holder._modules:
            last += "_"
        return holder, last

    # ---- calls

    def _read(self, tensor, key):
        if isinstance(tensor, Tensor):
            self._report.reads[key] += 1
            if self._shared.recorder is not None:
                self._shared.recorder.read()
        return values.to_array(tensor)

    def _arguments(self, args, kwargs):
        if not args and kwargs.keys() == self._kinds.keys():
            return [kwargs[name] for name in self._kinds]
        if len(args) > len(self.inputs):
            raise TypeError(f"onnx: too many inputs; got {len(args)}; expected {len(self.inputs)}: {self._names()}")
        given = dict(zip((i.name for i in self.inputs), args))
        for name, value in kwargs.items():
            if name in given or name not in self._kinds:
                raise TypeError(f"onnx: unexpected input; got '{name}'; expected {self._names()}, each once")
            given[name] = value
        missing = [i.name for i in self.inputs if i.name not in given and not i.dtype.startswith("optional")]
        if missing:
            raise TypeError(f"onnx: inputs are missing; got {sorted(given)}; expected {self._names()}")
        return [given.get(i.name) for i in self.inputs]

    def _names(self):
        return ", ".join(f"{i.name} ({i.dtype} {list(i.shape) if i.shape is not None else ''})" for i in self.inputs)

    def forward(self, *args, **kwargs):
        given = args if not kwargs and len(args) == len(self.inputs) else self._arguments(args, kwargs)
        weights = [where[name] for where, name in self._places]
        device = self._device(given, weights)
        prepared = []
        for info, value in zip(self.inputs, given):
            if self._kinds[info.name] == HOST:
                prepared.append(self._host_input(info, value))
            elif type(value) is Tensor:
                prepared.append(value)
            else:
                prepared.append(_from_user(info, value, device))
        key = Traces.key(prepared)
        call = self._traces.find(key, weights)
        if call is not None:
            results = call(prepared, weights)
        else:
            results = self._first(key, prepared, weights, device)
        return results[0] if len(results) == 1 else tuple(results)

    def _first(self, key, prepared, weights, device):
        """A call with inputs of new shapes. It is noted, if its values do not decide what it does."""
        self._namespace["w"] = weights
        try:
            if key in self._traces.failed:
                return self._call(*prepared, device)
            recorder = self._shared.recorder = Recorder(prepared, weights, not _C.is_grad_enabled(), self._traces.folded)
            results = self._plan.noting()(*prepared, device)
            self._traces.keep(key, recorder.finish(results))
            return results
        except Exception as error:
            self._explain(error)
            raise
        finally:
            self._shared.recorder = None

    def _apply(self, fn):
        self._traces.clear()
        return super()._apply(fn)

    def _host_input(self, info, value):
        if isinstance(value, Tensor):
            return values.to_array(value)
        return np.asarray(value, values.numpy_dtype(values.NUMBERS[info.dtype]))

    def takes_host(self, name):
        """Whether an input stays on the host: its values decide shapes or which way the model takes."""
        return self._kinds[name] == HOST

    def _device(self, given, weights):
        for value in given:
            if isinstance(value, Tensor):
                return value.device
        return weights[0].device if weights else "cpu"

    def _explain(self, error):
        """Adds the node to an error of its rule."""
        trace, node = error.__traceback__, None
        while trace is not None:
            nodes = self._namespace.get(trace.tb_frame.f_code.co_filename)
            if nodes is not None and 0 <= trace.tb_lineno - 2 < len(nodes):
                node = nodes[trace.tb_lineno - 2]
            trace = trace.tb_next
        if node is not None and error.args and isinstance(error.args[0], str):
            error.args = (f"onnx: node {node}: {error.args[0]}",) + error.args[1:]

    # ---- descriptions

    def report(self):
        """Where the nodes run: a dict with the device, the nodes that NumPy computes on the host, those that Python controls, and those that waited for
        values of a tensor, with how often."""
        report = self._report
        device = str(self._device((), [w[n] for w, n in self._places]))
        return {"device": device, "on_device": dict(sorted(report.counts.items())), "folded": len(report.folded), "on_host": list(report.host),
                "control_flow": list(report.python),
                "waited_for_values": [{"node": node, "input": position, "times": n} for (node, position), n in report.reads.items() if n]}

    def extra_repr(self):
        return f"inputs: {self._names()}; outputs: {', '.join(o.name for o in self.outputs)}"

    def __repr__(self):
        return f"OnnxModule({self.extra_repr()}; {len(self._graph.nodes)} nodes, opsets {self.opsets})"


def _small(info):
    return info.shape is not None and len(info.shape) <= 1


def _statistics(graph, found):
    for node in graph.nodes:
        for position in _STATISTICS.get(node.op, ()):
            if position < len(node.inputs):
                found.add(node.inputs[position])
        for value in node.attrs.values():
            if hasattr(value, "nodes"):
                _statistics(value, found)
    return found


def _from_user(info, value, device):
    """A tensor of what a user passes: an array, a number, a list of tensors for a sequence."""
    if value is None or type(value) is np.ndarray:
        return values.to_tensor(value, device)
    if info.dtype.startswith(("sequence", "optional")) and isinstance(value, (list, tuple)):
        return [values.to_tensor(v, device) for v in value]
    if info.dtype not in values.NUMBERS or isinstance(value, (np.ndarray, np.generic)):
        return values.to_tensor(value, device)
    return values.to_tensor(np.asarray(value, values.numpy_dtype(values.NUMBERS[info.dtype])), device)


def load(f):
    """Reads an ONNX file and returns a Module. f: a path, an open binary file, bytes, or a ModelProto of the package onnx.

    Weights in files beside it (external data) are read too. NotImplementedError lists all nodes whose operators have no rule.
    """
    onnx = package("onnx.load")
    folder = ""
    if isinstance(f, onnx.ModelProto):
        model = f
    elif isinstance(f, bytes):
        model = onnx.load_model_from_string(f)
    elif hasattr(f, "read"):
        model = onnx.load_model_from_string(f.read())
    else:
        folder = os.path.dirname(os.path.abspath(os.fspath(f)))
        try:
            model = onnx.load(os.fspath(f), load_external_data=False)
        except OSError:
            raise
        except Exception as e:
            raise ValueError(f"onnx.load: the file is not a model; got {os.fspath(f)}: {e}; expected a file of the ONNX format") from e
    if not model.graph.node and not model.graph.output:
        raise ValueError("onnx.load: the file has no graph; expected a model of the ONNX format")
    graph, opsets = read(onnx, model, folder)
    return OnnxModule(graph, opsets)
