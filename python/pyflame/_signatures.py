"""The signatures that help() and inspect.signature() ask for, of compiled functions and of methods that hand their arguments on to another function.

A method of the second kind is written as method(self, *args, **kwargs). Python finds its signature through __wrapped__, where an object of Shown stands. A
compiled function has __signature__, which calls of_compiled (python/src/signatures.cpp). Both make the signature when somebody asks: `import pyflame` neither
loads `inspect` nor reads hundreds of signatures.
"""
from __future__ import annotations

import functools

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from inspect import Signature
    from typing import Any, Callable


def forwarding(method, function, result):
    """Makes a method show the parameters of a function, of which the first one is self, and the name of its own result. Returns the method."""
    method.__wrapped__ = Shown(method, function, result)
    return method


def is_forwarding(method):
    """Whether the method shows the signature of another function."""
    return isinstance(getattr(method, "__wrapped__", None), Shown)


class Shown:
    """What a method wraps: it has the signature, and then the function that is called."""

    __slots__ = ("_method", "_function", "_result")

    def __init__(self, method, function, result):
        self._method, self._function, self._result = method, function, result

    @property
    def __signature__(self):
        from inspect import Parameter, signature as signature_of

        signature = signature_of(self._function)
        parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *list(signature.parameters.values())[1:]]
        return signature.replace(parameters=parameters, return_annotation=self._result)

    @property
    def __wrapped__(self):
        """The method without this object: the end of the way for tools that look for the code of a function."""
        from types import FunctionType

        method = self._method
        plain = FunctionType(method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__)
        plain.__doc__, plain.__kwdefaults__, plain.__annotations__ = method.__doc__, method.__kwdefaults__, method.__annotations__
        return plain


class OfObject:
    """The attribute __signature__ of objects that are called, such as what pf.kernel returns. Their class has none, so its constructor is what inspect.signature() shows.

    parameters: from an object to three dicts {name: annotation}, of arguments by position, by either way, and by keyword; then {name: default}, and the
    annotation of the result.
    """

    def __init__(self, parameters: Callable[[Any], tuple[dict[str, str], dict[str, str], dict[str, str], dict[str, Any], str]]) -> None:
        self._parameters = parameters

    def __get__(self, value: Any, owner: type | None = None) -> Signature:
        if value is None:
            raise AttributeError("__signature__")
        from inspect import Parameter, Signature

        *given, defaults, result = self._parameters(value)
        kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        found = [Parameter(n, kind, annotation=a, default=defaults.get(n, Parameter.empty)) for kind, annotations in zip(kinds, given) for n, a in annotations.items()]
        return Signature(found, return_annotation=result)


def of_compiled(function: Any) -> Signature:
    """The signature of a compiled function or method; that of a bound method has no self. Of several forms it is one for all of them."""
    bound = getattr(function, "__func__", None)
    source = function if bound is None else bound
    signature = _joined([_read(text, defaults or ()) for text, _, defaults in source.__nb_signature__])
    if signature.return_annotation == "object":
        signature = signature.replace(return_annotation=results().get(source.__qualname__, signature.empty))
    return signature if bound is None else signature.replace(parameters=list(signature.parameters.values())[1:])


@functools.lru_cache(None)
def results() -> dict[str, str]:
    """{name, of a method with that of its class: result} of compiled functions by their stub, which knows what C++ calls an object."""
    import ast
    import os

    stub, found = os.path.join(os.path.dirname(__file__), "_C.pyi"), {}
    if not os.path.isfile(stub):
        return {}
    with open(stub, encoding="utf-8") as f:
        body = ast.parse(f.read()).body
    for node in body:
        for prefix, each in [("", node), *((f"{node.name}.", member) for member in (node.body if isinstance(node, ast.ClassDef) else ()))]:
            if isinstance(each, ast.FunctionDef) and each.returns:
                found.setdefault(prefix + each.name, set()).add(ast.unparse(each.returns).replace("builtins.", ""))
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1}


def _read(text, defaults):
    """The signature of one form of a compiled function, whose text names default number n as \\n."""
    import ast
    import re
    from inspect import Parameter, Signature

    node = ast.parse(re.sub(r"\\(\d+)", r"_default_\1", text).replace("pyflame._C.", "").replace("pyflame.", "") + ": ...").body[0]
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    values = [None] * (len(positional) - len(given.defaults)) + given.defaults
    parameters = [(a, Parameter.POSITIONAL_ONLY if a in given.posonlyargs else Parameter.POSITIONAL_OR_KEYWORD, value) for a, value in zip(positional, values)]
    parameters += [(given.vararg, Parameter.VAR_POSITIONAL, None)] if given.vararg else []
    parameters += [(a, Parameter.KEYWORD_ONLY, value) for a, value in zip(given.kwonlyargs, given.kw_defaults)]
    parameters += [(given.kwarg, Parameter.VAR_KEYWORD, None)] if given.kwarg else []

    def default(value):
        if value is None:
            return Parameter.empty
        return defaults[int(value.id[len("_default_") :])] if isinstance(value, ast.Name) and value.id.startswith("_default_") else ast.literal_eval(value)

    found = [Parameter(a.arg, kind, default=default(value), annotation=ast.unparse(a.annotation) if a.annotation else Parameter.empty) for a, kind, value in parameters]
    return Signature(found, return_annotation=ast.unparse(node.returns) if node.returns else Signature.empty)


def _joined(forms):
    """One signature for all forms of a function: the longest, with the annotations of all. What a form lacks may be left out: it is None then where it may be None,
    and otherwise `...`, as is what stands behind it (the end of arange(end) is the second argument of arange(start, end))."""
    longest = max(forms, key=lambda form: len(form.parameters))
    found = []
    for p in longest.parameters.values():
        same = [form.parameters[p.name] for form in forms if p.name in form.parameters]
        behind = bool(found) and found[-1].default is not p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        if (len(same) < len(forms) or behind) and p.default is p.empty:
            p = p.replace(default=None if "None" in p.annotation.split(" | ") else ...)
        annotations = [a.annotation for a in same if a.annotation is not p.empty]
        if annotations:
            kinds = dict.fromkeys(kind for annotation in annotations for kind in annotation.split(" | "))
            p = p.replace(annotation=" | ".join(sorted(kinds, key=lambda kind: kind == "None")))
        found.append(p)
    return longest.replace(parameters=found)
