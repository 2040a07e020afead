"""The table of operators: for each of them its rules by opset.

A rule is a function of a node that returns what computes the node: a function of its inputs. It is called once, when a graph is loaded, so
attributes are read then, and not in each call. What it returns takes tensors, or None for inputs that are absent; at the positions `host` it
takes arrays of NumPy, such as the shape that Reshape has, and at the positions `either` a tensor or, if it is on the host, an array. It returns
one value, or a tuple of values for several outputs. An attribute `fix` of it says how a call with the same shapes is repeated: with the result and
the arguments it returns the methods (name, arguments) to call on the first argument, or None.
"""
import importlib

RULE_FILES = ("elementwise", "reductions", "shapes", "indexing", "windows", "normalization", "products", "resampling", "recurrent", "quantization",
              "losses", "sequences", "attention", "control", "random", "signals", "vision")

_RULES = {}
_HOST = {}
_loaded = []


class Rule:
    """What computes an operator from opset `since` on."""

    __slots__ = ("make", "since", "host", "either", "kind")

    def __init__(self, make, since, host, either, kind):
        self.make, self.since, self.host, self.either, self.kind = make, since, host, either, kind


def op(*names, since=1, host=(), either=(), kind="tensor", domain=""):
    """Registers a rule. kind says what the outputs are: 'tensor', 'host' (an array, found without waiting), or 'any' (a sequence, an optional)."""

    def register(make):
        for name in names:
            rules = _RULES.setdefault((domain, name), [])
            rules.append(Rule(make, since, tuple(host), tuple(either), kind))
            rules.sort(key=lambda r: -r.since)
        return make

    return register


def fixed(function, fix):
    """The function with its attribute fix; the function is a lambda or def of the rule."""
    function.fix = fix
    return function


def sized_by_values(function):
    """The function, marked: the sizes of its result depend on values of tensors, so another call with the same shapes may go another way."""
    function.sized_by_values = True
    return function


def composed(parts):
    """A function that calls others: parts(do, *arguments) calls each as do(function, *arguments). They are noted one by one, so those of weights
    alone are called once."""

    def run(*arguments):
        return parts(lambda function, *rest: function(*rest), *arguments)

    run.parts = parts
    return run


def on_host(*names, since=1):
    """Registers how an operator is computed with NumPy. It is used where all inputs are on the host: shapes, and what is computed from them."""

    def register(make):
        for name in names:
            rules = _HOST.setdefault(name, [])
            rules.append((since, make))
            rules.sort(key=lambda r: -r[0])
        return make

    return register


def _load():
    if not _loaded:
        for name in RULE_FILES:
            importlib.import_module(f".rules.{name}", __package__)
        importlib.import_module(".host", __package__)
        _loaded.append(True)


def find(domain, name, opset):
    """The rule of an operator for an opset, or None."""
    _load()
    return next((r for r in _RULES.get((domain, name), ()) if r.since <= opset), None)


def find_host(domain, name, opset):
    """How NumPy computes an operator, or None."""
    _load()
    return next((make for since, make in _HOST.get(name, ()) if since <= opset), None) if domain == "" else None


def operators():
    """The names of all operators that have a rule: {(domain, name): the opsets from which its rules hold}."""
    _load()
    return {key: sorted(r.since for r in rules) for key, rules in sorted(_RULES.items())}
