"""A graph as it was read: nodes with attributes as Python values, constants as arrays."""
import collections

from . import table, values

Input = collections.namedtuple("Input", "name dtype shape")
Input.__doc__ = "What a model takes or gives: its name, the name of its element type, and its shape (numbers, names of sizes, or None)."


class Node:
    """One node. attr(name, default) is an attribute as a Python value."""

    def __init__(self, op, domain, name, inputs, outputs, attrs, opset):
        self.op, self.domain, self.name, self.inputs, self.outputs, self.attrs, self.opset = op, domain, name, inputs, outputs, attrs, opset

    def attr(self, name, default=None):
        return self.attrs.get(name, default)

    def __str__(self):
        label = f"{self.domain}.{self.op}" if self.domain else self.op
        return f"{label} '{self.name or (self.outputs[0] if self.outputs else '')}'"


class Graph:
    """Nodes in order, constants by name, and the names of inputs and outputs. `outer`: names that belong to the graphs around it."""

    def __init__(self):
        self.name, self.nodes, self.constants, self.inputs, self.outputs, self.outer = "", [], {}, [], [], []

    def names_from_outside(self):
        """What this graph uses and does not define, in the order of its use."""
        known = set(self.constants) | {i.name for i in self.inputs}
        outer = {}
        for node in self.nodes:
            used = [n for n in node.inputs if n]
            for value in node.attrs.values():
                if isinstance(value, Graph):
                    used += value.names_from_outside()
            outer.update((n, None) for n in used if n not in known)
            known.update(node.outputs)
        outer.update((o.name, None) for o in self.outputs if o.name not in known)
        return list(outer)


def value_info(info):
    """The description of an input or output."""
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return Input(info.name, kind.replace("_type", "") if kind else "", None)
    tensor = info.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(d.dim_value if d.WhichOneof("value") == "dim_value" else (d.dim_param or None) for d in tensor.shape.dim)
    return Input(info.name, values.NAMES.get(tensor.elem_type, ""), shape)


class Reader:
    """Makes a Graph of a GraphProto."""

    def __init__(self, package, opsets, folder):
        self.package, self.opsets, self.folder = package, opsets, folder

    def attribute(self, attribute):
        """An attribute as a Python value: numbers, text, lists, arrays, graphs."""
        types = self.package.AttributeProto
        if attribute.type == types.GRAPH:
            return self.graph(attribute.g)
        if attribute.type == types.TENSOR:
            return values.array_of(self.package, attribute.t, self.folder)
        if attribute.type == types.SPARSE_TENSOR:
            return self.sparse(attribute.sparse_tensor)
        if attribute.type == types.TYPE_PROTO:
            return attribute.tp
        value = self.package.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value] if attribute.type >= types.FLOATS else value

    def sparse(self, proto):
        import numpy as np

        stored = values.array_of(self.package, proto.values, self.folder)
        where = values.array_of(self.package, proto.indices, self.folder)
        dense = np.zeros(tuple(proto.dims), stored.dtype)
        if where.ndim == 1:
            dense.reshape(-1)[where] = stored
        else:
            dense[tuple(where.T)] = stored
        return dense

    def constant(self, node):
        """The value of a Constant node."""
        import numpy as np

        ((name, value),) = node.attrs.items()
        if name in ("value", "sparse_value"):
            return value
        kind = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}.get(name, object)
        return np.array(value, kind)

    def graph(self, proto):
        graph = Graph()
        graph.name = proto.name
        for tensor in proto.initializer:
            graph.constants[tensor.name] = values.array_of(self.package, tensor, self.folder)
        for tensor in proto.sparse_initializer:
            graph.constants[tensor.values.name] = self.sparse(tensor)
        graph.inputs = [value_info(i) for i in proto.input]
        graph.outputs = [value_info(o) for o in proto.output]
        for n in proto.node:
            domain = "" if n.domain == "ai.onnx" else n.domain
            attrs = {a.name: self.attribute(a) for a in n.attribute}
            node = Node(n.op_type, domain, n.name, list(n.input), list(n.output), attrs, self.opsets.get(domain, 1))
            if node.op == "Constant" and domain == "":
                graph.constants[node.outputs[0]] = self.constant(node)
            else:
                graph.nodes.append(node)
        return graph


def _without_rule(graph_proto, opsets, found):
    """The nodes, of a graph and of the graphs in its attributes, for whose operator there is no rule."""
    for node in graph_proto.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if node.op_type != "Constant" and table.find(domain, node.op_type, opsets.get(domain, 1)) is None:
            found.append((domain, node))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _without_rule(attribute.g, opsets, found)
    return found


def _expanded(package, model):
    """The model with functions in the place of operators that have no rule. NotImplementedError lists what remains."""
    from onnx import inliner, shape_inference  # noqa: F401

    for _ in range(8):  # a function may call others
        opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
        missing = _without_rule(model.graph, opsets, [])
        local = {(f.domain, f.name) for f in model.functions}
        keys = {(domain, node.op_type) for domain, node in missing}
        known = {k for k in keys if k in local or _has_body(package, *k, opsets.get(k[0], 1))}
        if not known:
            break
        if not known <= local:  # some bodies depend on the types of the inputs
            model = package.shape_inference.infer_shapes(model)
            try:
                model = inliner.inline_selected_functions(model, sorted(known), inline_schema_functions=True)
            except (TypeError, RuntimeError):  # an older package; or a body that needs a type which is not known
                break
            continue
        model = inliner.inline_selected_functions(model, sorted(known))
    if missing:
        lines = [f"{node.op_type if not domain else domain + '.' + node.op_type} '{node.name or node.output[0]}'" for domain, node in missing]
        shown = ", ".join(lines[:50]) + (f" and {len(lines) - 50} more" if len(lines) > 50 else "")
        raise NotImplementedError(f"onnx.load: {len(lines)} nodes have operators without a rule; got {shown} (opsets {opsets}); "
                                  "expected operators of pyflame.onnx.operators()")
    return model, opsets


def _has_body(package, domain, name, opset):
    try:
        schema = package.defs.get_schema(name, opset, domain)
    except Exception:
        return False
    return schema.has_function or schema.has_context_dependent_function


def read(package, model, folder):
    """The Graph of a ModelProto."""
    model, opsets = _expanded(package, model)
    return Reader(package, opsets, folder).graph(model.graph), opsets
