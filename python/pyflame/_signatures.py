"""The signatures that methods show which hand their arguments on to another function: help() and inspect.signature() ask for them.

Such a method is written as method(self, *args, **kwargs). Python finds its signature through __wrapped__, where an object of Shown stands. It makes the
signature of the other function when somebody asks: `import pyflame` neither loads `inspect` nor reads 100 signatures.
"""


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
        from inspect import Parameter

        signature = _signature(self._function)
        parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *list(signature.parameters.values())[1:]]
        return signature.replace(parameters=parameters, return_annotation=self._result)

    @property
    def __wrapped__(self):
        """The method without this object: the end of the way for tools that look for the code of a function."""
        from types import FunctionType

        method = self._method
        plain = FunctionType(method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__)
        plain.__doc__, plain.__kwdefaults__ = method.__doc__, method.__kwdefaults__
        return plain


def _signature(function):
    from inspect import signature

    compiled = getattr(function, "__nb_signature__", None)
    return _joined([_read(text, defaults or ()) for text, _, defaults in compiled]) if compiled else signature(function)


def _read(text, defaults):
    """The signature of one form of a compiled function, whose text names default number n as \\n."""
    import ast
    import re
    from inspect import Parameter, Signature

    node = ast.parse(re.sub(r"\\(\d+)", r"_default_\1", text).replace("pyflame._C.", "").replace("pyflame.", "") + ": ...").body[0]
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    values = [None] * (len(positional) - len(given.defaults)) + given.defaults
    kinds = [Parameter.POSITIONAL_ONLY] * len(given.posonlyargs) + [Parameter.POSITIONAL_OR_KEYWORD] * len(given.args) + [Parameter.KEYWORD_ONLY] * len(given.kwonlyargs)

    def default(value):
        if value is None:
            return Parameter.empty
        return defaults[int(value.id[len("_default_") :])] if isinstance(value, ast.Name) and value.id.startswith("_default_") else ast.literal_eval(value)

    found = [
        Parameter(a.arg, kind, default=default(value), annotation=ast.unparse(a.annotation) if a.annotation else Parameter.empty)
        for a, kind, value in zip([*positional, *given.kwonlyargs], kinds, [*values, *given.kw_defaults])
    ]
    return Signature(found, return_annotation=ast.unparse(node.returns) if node.returns else Signature.empty)


def _joined(forms):
    """One signature for all forms of a function: the longest, with the annotations of all. What a form lacks may be left out: it is None then where it may be None."""
    longest = max(forms, key=lambda form: len(form.parameters))
    found = []
    for p in longest.parameters.values():
        same = [form.parameters[p.name] for form in forms if p.name in form.parameters]
        if len(same) < len(forms) and p.default is p.empty:
            p = p.replace(default=None if "None" in p.annotation.split(" | ") else ...)
        annotations = [a.annotation for a in same if a.annotation is not p.empty]
        if annotations:
            kinds = dict.fromkeys(kind for annotation in annotations for kind in annotation.split(" | "))
            p = p.replace(annotation=" | ".join(sorted(kinds, key=lambda kind: kind == "None")))
        found.append(p)
    return longest.replace(parameters=found)
