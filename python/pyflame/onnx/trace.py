"""Calls with inputs of one shape, as a straight list of operations.

What a graph does on the host depends on the shapes of its inputs, on its constants, and on inputs that are on the host. So the first call with some
shapes notes what it does with tensors, in order: control flow is followed, and shapes are numbers then. The next call with the same shapes does
only that. What depends on weights alone is computed once, until a weight changes. A call that reads values of a tensor, or has a tensor whose sizes
depend on values, is never repeated in this way.
"""
import re

from .. import _C
from .._C import Tensor
from .plan import release

_LONGEST = 5000  # operations; a longer call is not noted
_VIEWS = ("narrow", "permute", "select", "squeeze", "transpose", "unsqueeze")
_NAME = r"\b[vi]\d+\b"
_RANDOM = ("Random", "Bernoulli", "Dropout", "Multinomial")


class Recorder:
    """Notes the operations of one call. `weights`: the tensors of the list w; `inputs`: the arguments."""

    def __init__(self, inputs, weights, fold, folded):
        self.lines, self.namespace, self.kept, self.count, self.broken = [], {}, [], 0, None
        self.names, self.fold, self.folded = {}, fold, folded
        self.of_weights, self.used, self.roots, self.places = set(), {}, {}, {}
        for k, tensor in enumerate(weights):
            self.names[id(tensor)] = f"w[{k}]"
            self.of_weights.add(id(tensor))
        for k, tensor in enumerate(inputs):
            if isinstance(tensor, Tensor):
                self.names[id(tensor)] = f"i{k}"
                self.of_weights.discard(id(tensor))
        self.weights = {id(t): k for k, t in enumerate(weights)}
        self.kept = [inputs, weights]

    def read(self):
        """Values of a tensor are read, so the next call may take another way."""
        self.broken = "values of a tensor decide what is done"

    def expression(self, value):
        """The text for an argument."""
        if value is None or isinstance(value, (bool, int)) or isinstance(value, tuple) and all(isinstance(v, int) for v in value):
            return repr(value)
        if id(value) in self.names:
            return self.names[id(value)]
        if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
            return "[" + ", ".join(self.expression(v) for v in value) + "]"
        name = f"c{len(self.namespace)}"
        self.namespace[name] = value
        self.kept.append(value)
        self.names[id(value)] = name
        if isinstance(value, Tensor):  # made of constants on the host
            self.of_weights.add(id(value))
        return name

    def constant(self, arguments):
        """Whether the arguments are constants and weights alone."""
        for a in arguments:
            if isinstance(a, (list, tuple)):
                if not self.constant(a):
                    return False
            elif isinstance(a, Tensor) and id(a) in self.names and id(a) not in self.of_weights:
                return False
        return True

    def call(self, function, operator, *arguments):
        """Calls the function and notes it."""
        if self.broken:
            return function(*arguments)
        parts = getattr(function, "parts", None)
        if parts is not None:
            return parts(lambda part, *rest: self.call(part, operator, *rest), *arguments)
        if self.fold and not operator.startswith(_RANDOM) and any(isinstance(a, Tensor) for a in arguments) and self.constant(arguments):
            return self.once(function, arguments)
        result = function(*arguments)
        if getattr(function, "sized_by_values", False):
            self.broken = "values of a tensor decide the sizes of another"
            return result
        self.count += 1
        if self.count > _LONGEST:
            self.broken = "too many operations"
            return result
        if self.known(result):  # an argument came back
            return result
        fix = getattr(function, "fix", None)
        steps = None if fix is None else fix(result, *arguments)
        if self.same_view(result, arguments[0] if arguments else None, [getattr(function, "__name__", "")] if steps is None else [s[0] for s in steps]):
            return result
        if steps is not None:
            value = self.expression(arguments[0])
            if not steps and isinstance(result, Tensor):
                self.names[id(result)] = value
                self.kept.append(result)
                return result
            for method, *rest in steps:
                value += f".{method}({', '.join(self.literal(r) for r in rest)})"
            self.line(result, value)
            return result
        text = [self.expression(a) for a in arguments]
        while text and text[-1] == "None":
            text.pop()
        name = f"f{len(self.namespace)}"
        self.namespace[name] = function
        self.line(result, f"{name}({', '.join(text)})")
        return result

    def same_view(self, result, source, methods):
        """Whether the methods made a view that is as an earlier value, whose name it then gets."""
        if not isinstance(source, Tensor) or any(m not in _VIEWS for m in methods):
            return False
        root = self.roots.setdefault(id(source), source)
        self.places.setdefault(_place(root, source), self.names.get(id(source)))
        self.roots[id(result)] = root
        name = self.places.get(_place(root, result))
        if name is None:
            return False
        self.names[id(result)] = name
        self.kept.append(result)
        return True

    def literal(self, value):
        """The text of an argument of a method."""
        return repr(value) if isinstance(value, (int, float, tuple)) else self.expression(value)

    def line(self, result, text):
        names = []
        self.lines.append((names, f"{self.target(result, names)} = {text}"))

    def known(self, result):
        return self.names.get(id(result)) if isinstance(result, Tensor) else None

    def once(self, function, arguments):
        """A result of weights and constants: it is computed once and kept."""
        key = (id(function),) + tuple(self.key(a) for a in arguments)
        if key not in self.folded:
            self.folded[key] = (function, arguments, function(*arguments))
        result = self.folded[key][2]
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(tensor, Tensor):
                self.of_weights.add(id(tensor))
        for a in arguments:
            if isinstance(a, Tensor) and id(a) in self.weights:
                self.used[self.weights[id(a)]] = a, a._version
        return result

    def key(self, argument):
        import numpy as np

        if isinstance(argument, np.ndarray):
            return argument.shape, argument.dtype.str, argument.tobytes()
        if isinstance(argument, (list, tuple)):
            return tuple(self.key(a) for a in argument)
        return (id(argument), argument._version) if isinstance(argument, Tensor) else id(argument)

    def target(self, result, names):
        """The text that takes a result; `names` gets its names."""
        if isinstance(result, (list, tuple)):
            return ", ".join(self.target(r, names) for r in result) + "," if result else "[]"
        if result is None or self.known(result):
            return "_"
        names.append(f"v{len(self.kept)}")
        self.names[id(result)] = names[-1]
        self.kept.append(result)
        return names[-1]

    def needed(self, results):
        """The lines without those whose results nobody uses."""
        used, lines = set(re.findall(_NAME, results)), []
        for names, text in reversed(self.lines):
            if any(n in used for n in names):
                used.update(re.findall(_NAME, text))
                lines.append(text)
        return lines[::-1]

    def finish(self, results):
        """The function of the noted call, with what it depends on; None if the call cannot be repeated."""
        if self.broken:
            return None
        end = f"    return [{', '.join(self.expression(r) for r in results)}]"
        text = ["def call(i, w):"]
        text += [f"    i{k} = i[{k}]" for k, v in enumerate(self.kept[0]) if isinstance(v, Tensor)]
        text += ["    " + line for line in self.needed(end)] + [end]
        release(text, _NAME)
        exec(compile("\n".join(text), "<onnx calls of one shape>", "exec"), self.namespace)
        self.namespace["text"] = text
        return self.namespace.pop("call"), tuple(self.used.items())


def _place(root, view):
    """Where the elements of a view are."""
    return id(root), view.storage_offset(), tuple(view.shape), tuple(s for n, s in zip(view.shape, view.stride()) if n != 1)


class Traces:
    """The noted calls of a module, by what they depend on."""

    _MOST = 64

    def __init__(self):
        self.calls, self.folded, self.failed = {}, {}, set()

    def clear(self):
        self.calls.clear()
        self.folded.clear()
        self.failed.clear()

    @staticmethod
    def key(inputs):
        """What decides which operations a call does."""
        parts = [_C.is_grad_enabled()]
        for value in inputs:
            if isinstance(value, Tensor):
                parts.append((tuple(value.shape), value.dtype, value.device))
            elif value is None or isinstance(value, list):
                parts.append(None if value is None else tuple((tuple(v.shape), v.dtype, v.device) for v in value))
            else:
                parts.append((value.shape, value.tobytes()))
        return tuple(parts)

    def find(self, key, weights):
        """The noted call, if all weights behind its constants are as they were."""
        found = self.calls.get(key)
        if found is None:
            return None
        call, used = found
        for k, (weight, version) in used:
            if weights[k] is not weight or weight._version != version:
                self.clear()
                return None
        return call

    def keep(self, key, noted):
        if noted is None:
            self.failed.add(key)
            if len(self.failed) > 1000:
                self.failed.clear()
            return
        if len(self.calls) >= self._MOST:
            del self.calls[next(iter(self.calls))]
        self.calls[key] = noted
