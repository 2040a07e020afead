"""The keywords that functions take beside their own ones, in the type stubs: those of pyflame/_keywords.py, and complex numbers.

The rules are those that hold when a program runs: _keywords.py has the tables, and a wrapper that it makes knows what it takes. A word for an argument
with a default becomes one more parameter (`axis` beside `dim`). A word for an argument that is required makes one more signature, in which it is required.
"""
import ast
import copy
import inspect
import types

# NumPy's words for arguments. The other ones of _keywords.RENAMED name the tensor itself, which is given by its place.
WORDS = ("axis", "axis0", "axis1", "keepdims")
# The compiled functions that draw random numbers.
DRAWING = {"rand", "randn", "rand_like", "randn_like", "randint", "randperm", "bernoulli", "dropout"}
LIKE = "_like"  # a tensor that is like another one takes memory_format


def in_closure(function, name):
    """What a wrapper knows by this name; None where it knows nothing."""
    code = getattr(function, "__code__", None)
    return function.__closure__[code.co_freevars.index(name)].cell_contents if code and name in code.co_freevars else None


def own_names(node):
    return [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]


def pairs_of(arguments):
    """[(parameter, its default or None)] of those that may be given by place."""
    return list(zip(arguments.args, [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults))


def is_of_tensors(annotation):
    """Whether a result is a tuple of a fixed number of tensors."""
    from pyflame import _named_tuples
    from pyflame.linalg import _annotations

    for module in (_named_tuples, _annotations):
        fields = getattr(getattr(module, annotation, None), "__annotations__", None)
        if fields:
            return all(getattr(field, "__forward_arg__", getattr(field, "__name__", field)) == "Tensor" for field in fields.values())
    return annotation.startswith("tuple[") and set(annotation[len("tuple[") : -1].split(", ")) == {"Tensor"}


class Further:
    """Adds the keywords to the definitions of a stub."""

    def __init__(self, keywords):
        self.keywords = keywords

    def taken(self, function, node):
        """(the further keywords that a function with this definition takes, whether it is compiled)."""
        if in_closure(function, "others") is not None and inspect.isfunction(function):
            return in_closure(function, "others"), False
        if isinstance(function, types.FunctionType):
            inner = in_closure(function, "function") if function.__code__.co_name == "method" else None  # in place
            return (frozenset(), False) if inner is None else self.taken(inner, node)
        if not type(function).__name__.startswith("nb_") or node.args.kwarg or any(a.arg[:3] == "arg" for a in node.args.posonlyargs):
            return frozenset(), False
        # private: the functions that call the compiled one say what they take
        return (frozenset(), False) if node.name[0] == "_" else (self.keywords._further(self.keywords._RELEVANT.intersection(own_names(node))), True)

    def definitions(self, node, function, is_method):
        """The definition with the keywords, and those that it has beside itself."""
        takes, is_compiled = self.taken(function, node)
        if not takes:
            return [node]
        words = {word: self.keywords.RENAMED[word] for word in WORDS if word in takes}
        if is_compiled and node.name in self.keywords.WORDS:
            old, new = self.keywords.WORDS[node.name]
            words[old] = new
        nodes = [copy.deepcopy(node)]
        required = self.add_words(nodes[0], words)
        if required:
            nodes.append(renamed(node, required))
            self.add_words(nodes[-1], words)
        if is_compiled and node.args.vararg and self.keywords.SIZES.get(node.name) == node.args.vararg.arg:
            nodes.append(with_sizes(node))
        for each in nodes:
            self.add_others(each, takes, is_compiled, is_method)
        return nodes

    def add_words(self, node, words):
        """Adds a keyword for each argument with a default. Returns {own name: word} of the required ones."""
        found = dict((a.arg, (a, default)) for a, default in [*pairs_of(node.args), *zip(node.args.kwonlyargs, node.args.kw_defaults)])
        for word, own in words.items():
            if own in found and found[own][1] is not None and word not in found:
                add(node, word, found[own][0].annotation, found[own][1])
        required = {own: word for word, own in words.items() if own in found and found[own][1] is None and word not in found}
        return {} if "keepdim" in required else required  # that would be another signature's

    def add_others(self, node, takes, is_compiled, is_method):
        own, result = own_names(node), ast.unparse(node.returns) if node.returns else ""
        if result == "Tensor" and {"dtype", "device"} <= set(own):  # it makes a tensor
            wanted = {"layout": "Any", "pin_memory": "bool", **({"memory_format": "memory_format | None"} if node.name == "empty" or node.name.endswith(LIKE) else {})}
            for word, annotation in wanted.items():
                if word in takes and word not in own:
                    add(node, word, annotation, "False" if word == "pin_memory" else "None")
        if is_compiled and node.name in DRAWING:
            add(node, "generator", "Generator | None", "None")
        if is_compiled and node.name in self.keywords.LOSSES and not is_method:
            add(node, "size_average", "bool | None", "None")
            add(node, "reduce", "bool | None", "None")
        if is_compiled and node.name == "gather":
            add(node, "sparse_grad", "bool", "False")
        if "out" in takes and not is_method and node.name[-1] != "_":
            if result == "Tensor" or is_of_tensors(result):
                add(node, "out", "Tensor | None" if result == "Tensor" else "Sequence[Tensor] | None", "None")


def expression(text):
    return text if isinstance(text, ast.AST) or text is None else ast.parse(text, mode="eval").body


def add(node, word, annotation, default):
    node.args.kwonlyargs.append(ast.arg(word, expression(annotation)))
    node.args.kw_defaults.append(expression(default))


def renamed(node, words):
    """The definition with other words for some arguments. These and the ones behind them are keywords."""
    node = copy.deepcopy(node)
    given = node.args
    pairs = pairs_of(given)
    first = min([i for i, (a, _) in enumerate(pairs) if a.arg in words], default=len(pairs))
    moved = pairs[first:]
    given.args, given.defaults = [a for a, _ in pairs[:first]], [default for _, default in pairs[:first] if default is not None]
    given.kwonlyargs, given.kw_defaults = [a for a, _ in moved] + given.kwonlyargs, [default for _, default in moved] + given.kw_defaults
    for a in given.kwonlyargs:
        a.arg = words.get(a.arg, a.arg)
    return node


def with_sizes(node):
    """The definition in which the sizes, which may also be given one by one, are a keyword."""
    node = copy.deepcopy(node)
    word, node.args.vararg = node.args.vararg.arg, None
    node.args.kwonlyargs.insert(0, ast.arg(word, expression("int | Sequence[int]")))
    node.args.kw_defaults.insert(0, None)
    return node


def with_complex_numbers(node, function, module):
    """The definition in which the arguments may be complex numbers with which a compiled function can be called. The ops are recorded, and none is computed."""
    node = copy.deepcopy(node)
    if not type(function).__name__.startswith("nb_"):
        return node
    arguments = [*pairs_of(node.args), *zip(node.args.kwonlyargs, node.args.kw_defaults)]
    for tried, _ in arguments:
        annotation = ast.unparse(tried.annotation) if tried.annotation else ""
        kinds = {kind.split(".")[-1] for kind in annotation.split(" | ")}
        if "float" not in kinds or kinds - {"float", "Tensor", "None"}:
            continue
        values = {}
        for argument, default in arguments:
            kind = ast.unparse(argument.annotation) if argument.annotation else "Tensor"
            if argument is tried:
                values[argument.arg] = 1j
            elif default is None:
                is_tensor = kind.split(" | ")[0] == "Tensor"
                values[argument.arg] = module.ones(2, dtype=module.bool_ if argument.arg in ("condition", "mask") else module.complex64) if is_tensor else 0
        try:
            function(*[values.pop(a.arg) for a in node.args.args if a.arg in values], **values)
        except (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
            continue
        tried.annotation = expression(" | ".join("builtins.complex" if kind.endswith("float") else kind for kind in annotation.split(" | ")))
    return node
