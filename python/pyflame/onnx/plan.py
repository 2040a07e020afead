"""From a graph to a Python function: where each node is computed, and the lines that compute it.

Shapes, and what is computed from shapes and constants alone, stay on the host as arrays of NumPy: no device is asked, and nothing waits. Which
values these are follows from the graph, so it is decided once. The function has one line for each node, and releases each value after its
last use. A graph in a node's attribute (If, Loop, Scan) becomes a function of its own, with what it uses of the graphs around it as arguments.
"""
import collections
import re

import numpy as np

from . import table, values
from .graph import Graph, Node

HOST, DEVICE, ANY = "host", "device", "any"
_LARGEST_FOLDED = 1 << 16  # elements: a larger result of constants is computed when it is needed


class Body:
    """A compiled graph: call(*captured, *inputs, device) returns the list of its outputs. kinds: where each output is."""

    def __init__(self, plan, arguments, captured):
        self.plan, self.captured = plan, captured
        self.normal = plan.compile(arguments, device_outputs=False)
        self.kinds = [plan.kinds.get(o.name, DEVICE) for o in plan.graph.outputs]

    def call(self, *arguments):
        if self.plan.shared.recorder is not None:
            return self.plan.noting()(*arguments)
        return self.normal(*arguments)


class Report:
    """What runs elsewhere than on the device: nodes with NumPy, nodes that Python controls, nodes that wait for values."""

    def __init__(self):
        self.host, self.folded, self.python, self.reads, self.counts = [], [], [], {}, {}

    def wait(self, node, position):
        """The line of a node needs the values of a tensor."""
        key = (str(node), position)
        self.reads[key] = self.reads.get(key, 0)
        return key


class Shared:
    """What the plans of a graph and of the graphs inside of it share. expressions(name, array): the text that has a constant as a tensor."""

    def __init__(self, expressions, report, namespace, wanted):
        self.expressions, self.report, self.namespace, self.wanted = expressions, report, namespace, wanted
        self.recorder = None  # of the call that is noted now
        namespace["put"] = values.to_tensor

    def do(self, operator, function, *arguments):
        """Calls a function of tensors inside of a rule of control flow, so that it is noted."""
        if self.recorder is None:
            return function(*arguments)
        return self.recorder.call(function, operator, *arguments)

    def note(self, function, operator, *arguments):
        return self.recorder.call(function, operator, *arguments)


class Plan:
    """Compiles one graph. kinds: name -> where a captured value or an input is; constants: name -> array, for captured ones too."""

    def __init__(self, graph, kinds, constants, shared):
        self.graph, self.kinds, self.shared = graph, dict(kinds), shared
        self.report, self.namespace, self.expressions = shared.report, shared.namespace, shared.expressions
        self.constants = {**constants, **graph.constants}
        self.lines, self.nodes, self.variables, self.noted = [], [], {}, {}
        for name, array in graph.constants.items():
            self.kinds[name] = DEVICE if self.is_weight(name, array) else HOST

    def is_weight(self, name, array):
        """Floating constants are weights, except numbers and what is needed on the host."""
        return array.ndim > 0 and values.is_floating(array) and name not in self.shared.wanted

    # ---- names in the text of the function

    def variable(self, name):
        if name not in self.variables:
            self.variables[name] = f"v{len(self.variables)}"
        return self.variables[name]

    def bind(self, prefix, value):
        """A name of the function's namespace for an object."""
        name = f"{prefix}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def on_host(self, name, node, position):
        """The expression of a value as an array."""
        if name in self.constants:
            return self.bind("c", self.constants[name])
        if self.kinds.get(name) == HOST:
            return self.variable(name)
        key = self.bind("k", self.report.wait(node, position))
        return f"read({self.variable(name)}, {key})"

    def on_device(self, name):
        """The expression of a value as a tensor."""
        if name in self.constants:
            return self.expressions(name, self.constants[name])
        kind = self.kinds.get(name)
        if kind == DEVICE:
            return self.variable(name)
        return f"put({self.variable(name)}, device)"

    def as_it_is(self, name):
        return self.bind("c", self.constants[name]) if name in self.constants else self.variable(name)

    # ---- nodes

    def emit(self, text, node):
        self.lines.append(text)
        self.nodes.append(node)

    def fold(self, node, function):
        """Computes a node whose inputs are constants. False if that is not possible now."""
        inputs = [self.constants[n] if n else None for n in node.inputs]
        if node.op == "ConstantOfShape" and np.prod(inputs[0]) > _LARGEST_FOLDED:
            return False
        with np.errstate(all="ignore"):
            result = function(*inputs)
        for name, value in zip(node.outputs, result if isinstance(result, (tuple, list)) else (result,)):
            if name:
                self.constants[name] = np.asarray(value)
                self.kinds[name] = HOST
        self.report.folded.append(str(node))
        return True

    def host_rule(self, node):
        """How NumPy computes this node, if all its inputs are on the host."""
        present = [n for n in node.inputs if n]
        if not present or not all(self.kinds.get(n) == HOST for n in present):
            return None
        make = table.find_host(node.domain, node.op, node.opset)
        return None if make is None else make(node)

    def add(self, node):
        function = self.host_rule(node)
        if function is not None:
            if all(n in self.constants for n in node.inputs if n) and self.fold(node, function):
                return
            arguments = [self.as_it_is(n) if n else "None" for n in node.inputs]
            self.assign(node, function, arguments, [HOST] * len(node.outputs))
            self.report.host.append(str(node))
            return
        rule = table.find(node.domain, node.op, node.opset)
        if any(isinstance(v, Graph) for v in node.attrs.values()):
            self.report.python.append(str(node))
            arguments, kinds, function = rule.make(node)(self)
            self.assign(node, function, arguments, kinds)
            return
        function, arguments = rule.make(node), []
        for position, name in enumerate(node.inputs):
            if not name:
                arguments.append("None")
            elif position in rule.host:
                arguments.append(self.on_host(name, node, position))
            elif position in rule.either and self.kinds.get(name) == HOST:
                arguments.append(self.as_it_is(name))
            else:
                arguments.append(self.on_device(name))
        kind = {"tensor": DEVICE, "host": HOST, "any": ANY}[rule.kind]
        if kind == DEVICE:
            for op in (node.op, *node.attr("then", ())):
                self.report.counts[op] = self.report.counts.get(op, 0) + 1
        self.assign(node, function, arguments, [kind] * len(node.outputs))

    def assign(self, node, function, arguments, kinds):
        """The line of a node."""
        while arguments and arguments[-1] == "None":
            arguments.pop()
        name = self.bind("f", function)
        targets = []
        for output, kind in zip(node.outputs, kinds):
            targets.append(self.variable(output) if output else "_")
            self.kinds[output] = kind
        if any(k != HOST for k in kinds) and not any(isinstance(v, Graph) for v in node.attrs.values()):
            self.noted[len(self.lines)] = (f"{name}(", f"note({name}, {node.op!r}{', ' if arguments else ''}")
        call = f"{name}({', '.join(arguments)})"
        if len(targets) == 1:
            self.emit(f"{targets[0]} = {call}", node)
        else:
            self.emit(f"{', '.join(targets)}, *_ = {call}", node)

    # ---- graphs inside of nodes

    def body(self, graph, kinds):
        """Compiles a graph in an attribute of a node; kinds: where its inputs are."""
        captured = [n for n in graph.names_from_outside() if n not in self.constants]
        known = {n: self.kinds.get(n, DEVICE) for n in captured}
        known.update(zip((i.name for i in graph.inputs), kinds))
        known.update((n, self.kinds[n]) for n in self.constants)
        inner = Plan(graph, known, self.constants, self.shared)
        return Body(inner, captured + [i.name for i in graph.inputs], [self.variable(n) for n in captured])

    # ---- the whole

    def compile(self, arguments, device_outputs=True):
        """The function of the graph; it takes the values named in `arguments`, in this order, and `device` last."""
        names = [self.variable(a) for a in arguments]
        for node in with_activations(self.graph):
            self.add(node)
        results = [self.on_device(o.name) if device_outputs else self.as_it_is(o.name) for o in self.graph.outputs]
        self.head, self.end = f"def call({', '.join(names + ['device'])}):", f"    return [{', '.join(results)}]"
        self._noting = None
        return self.function(self.lines, "")

    def function(self, lines, suffix):
        text = [self.head] + ["    " + line for line in lines] + [self.end]
        release(text, r"\bv\d+\b")
        filename = f"<onnx graph {self.graph.name or 'main'} {len(self.namespace)}{suffix}>"
        self.namespace[filename] = self.nodes  # for errors: line k + 2 is node k
        exec(compile("\n".join(text), filename, "exec"), self.namespace)
        return self.namespace.pop("call")

    def noting(self):
        """The same function, whose operations on tensors are noted."""
        if self._noting is None:
            lines = list(self.lines)
            for k, (plain, noted) in self.noted.items():
                lines[k] = lines[k].replace(plain, noted, 1)
            self.namespace.setdefault("note", self.shared.note)
            self._noting = self.function(lines, ", noted")
        return self._noting


def with_activations(graph):
    """The nodes of a graph, where a Conv and the Relu that alone uses its result are one node: Conv with the attribute then."""
    uses = collections.Counter(o.name for o in graph.outputs)
    for node in graph.nodes:
        uses.update(node.inputs)
        for value in node.attrs.values():
            if isinstance(value, Graph):
                uses.update(value.names_from_outside())
    relus = {n.inputs[0]: n for n in graph.nodes if n.op == "Relu" and not n.domain and uses[n.inputs[0]] == 1}
    nodes, done = [], set()
    for node in graph.nodes:
        relu = relus.get(node.outputs[0]) if node.op == "Conv" and not node.domain else None
        if relu is not None:
            done.add(id(relu))
            node = Node(node.op, node.domain, node.name, node.inputs, relu.outputs, {**node.attrs, "then": ["Relu"]}, node.opset)
        if id(node) not in done:
            nodes.append(node)
    return nodes


def release(text, pattern):
    """Adds to each line of a function what is not used after it, so that its memory is free early."""
    seen = set(re.findall(pattern, text[-1]))
    for k in range(len(text) - 2, 0, -1):
        here = [v for v in dict.fromkeys(re.findall(pattern, text[k])) if v not in seen]
        if here:
            text[k] += f"; del {', '.join(here)}"
            seen.update(here)


def host_positions(graph):
    """The names of values that a rule takes as arrays."""
    found = set()
    for node in graph.nodes:
        rule = table.find(node.domain, node.op, node.opset)
        found.update(n for k, n in enumerate(node.inputs) if rule is not None and k in rule.host)
    return found


def wanted_on_host(graph):
    """The names of values that are needed on the host, by a rule or by NumPy on the way to one."""
    wanted = set()
    for node in reversed(graph.nodes):
        rule = table.find(node.domain, node.op, node.opset)
        if rule is None:
            continue
        wanted.update(n for k, n in enumerate(node.inputs) if k in rule.host)
        if node.op in ("If", "Loop"):
            wanted.update(n for n in node.inputs[:2 if node.op == "Loop" else 1])
        for value in node.attrs.values():
            if isinstance(value, Graph):
                wanted.update(wanted_on_host(value))
        if any(o in wanted for o in node.outputs) and table.find_host(node.domain, node.op, node.opset) is not None:
            wanted.update(node.inputs)
    return wanted - {""}
