"""Writes the type stubs of the compiled module: nanobind's stub generator, and what it cannot know, such as the methods of Tensor that are written in Python.
Modules whose functions take more keywords than they are written with (`accepting` of _keywords.py) get stubs, too, beside their sources.

Inside class Tensor the names float, int and bool are methods, so annotations there say builtins.float; functions that return "the same
object or a new one" are known to the generator as object only; in-place methods end with an underscore, which it takes for private.

    python make_stubs.py FOLDER_WITH_THE_MODULE FOLDER_OF_THE_STUBS
"""
import ast
import glob
import functools
import importlib.util
import inspect
import os
import re
import sys
import types

import stub_keywords

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyflame")

# Results that C++ declares as a Python object.
RETURNS = {
    "dtype": "dtype", "shape": "Size", "grad": "Tensor | None", "grad_fn": "GradFn | None", "size": "Any", "stride": "Any", "item": "Any", "tolist": "Any",
    "numpy": "np.ndarray", "__array__": "np.ndarray", "__dlpack__": "Any", "__reduce__": "Any", "__reduce_ex__": "Any", "type": "Any",
    "max": "Any", "min": "Any", "topk": "ValuesIndices", "sort": "ValuesIndices", "cummax": "ValuesIndices", "cummin": "ValuesIndices", "max_pool2d": "Any", "__int__": "builtins.int", "__index__": "builtins.int",
    "__format__": "builtins.str", "unbind": "tuple[Tensor, ...]", "__complex__": "builtins.complex", "index": "builtins.int | None",
    "__enter__": "device", "read_torch_file": "Any",
}  # fmt: skip
ARGUMENTS = "data|obj|value|key|device|dtype|ndarray|buffer|gradient|hook|other|grad|src|retain_graph|modulo|copy|split_size|stream|max_version|dl_device|dim|split_size_or_sections|ext_tensor"
HEADER = "import builtins\nfrom typing import Any, NoReturn\n\nimport numpy as np\n\nfrom ._named_tuples import ValuesIndices\n"
# Decorators that type checkers need not see: the stub has what they add.
ADDING = ("accepting", "_accepting", "method")
# Properties of Tensor that are written in Python and are no bools.
PROPERTIES = {"H": "Tensor", "mH": "Tensor", "layout": "Any", "names": "tuple[None, ...]", "name": "None", "output_nr": "builtins.int"}
# Classes that nanobind did not make.
MODULE_BASE = """
class _ModuleBase:
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __getattr__(self, name: str) -> Any: ...


class Size(tuple[builtins.int, ...]):
    def numel(self) -> builtins.int: ...


class ArgumentError(ValueError, RuntimeError): ...


class DeviceError(RuntimeError): ...


class OutOfMemoryError(MemoryError): ...
"""


def returned(line):
    match = re.match(r"\s*def (\w+)\(", line)
    if not match or "-> object" not in line:
        return line
    return line.replace("-> object", "-> " + RETURNS.get(match[1], "Tensor"))


def correct(text):
    lines, in_tensor = [], False
    for line in text.split("\n"):
        if line and not line[0].isspace():
            in_tensor = line.startswith("class Tensor")
        is_definition = re.match(r"\s*def ", line)
        line = returned(line)
        if is_definition:
            line = re.sub(rf"\b({ARGUMENTS}): object( \| None)?", r"\1: Any", line)
            line = re.sub(r"-> pyflame\.(dtype|device)\b", r"-> \1", line)
            line = line.replace("pyflame.dtype", "Any").replace("pyflame.device", "Any").replace("Any | str", "Any").replace("Any | None", "Any")
        if in_tensor and (is_definition or re.match(r"    \w+: ", line)):
            line = re.sub(r"(?<!def )(?<![.\w])(float|int|bool)\b", r"builtins.\1", line)
            line = re.sub(r"(-> )dtype\b", r"\1_dtype", line)
        if in_tensor and re.match(r"\s*def (__eq__|__ne__|__reduce_ex__)\(", line):
            line += "  # type: ignore[override]"
        lines.append(line)
    out = "\n".join(lines)
    out = out.replace("import pyflame\n", "", 1)
    at = out.index("\nclass ")
    # Tensor.dtype is a property: inside the class the type needs another name.
    return out[:at].rstrip("\n") + "\n" + HEADER + "\n__version__: str\n" + MODULE_BASE + out[at:].replace("\nclass device", "\n_dtype = dtype\n\nclass device", 1)


# ---- the members of Tensor that are written in Python


def annotation_of(text):
    """An annotation inside class Tensor, where some names of types are members."""
    return re.sub(r"(?<![.\w])(float|int|bool|type)\b", r"builtins.\1", text)


def signature_of(function, returned=None, is_method=True):
    """The parameters of a function, and its result. The first one of a method is the tensor."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
    annotation = annotation_of if is_method else str

    def of(argument, default=None, stars=""):
        written = f": {annotation(ast.unparse(argument.annotation))}" if argument.annotation else ""
        return f"{stars}{argument.arg}{written}" + (f" = {ast.unparse(default)}" if default is not None else "")

    parts = ["self", *map(of, positional[1:], defaults[1:])] if is_method else [*map(of, positional, defaults)]
    if given.posonlyargs:
        parts.insert(len(given.posonlyargs), "/")
    if given.vararg:
        parts.append(of(given.vararg, stars="*"))
    elif given.kwonlyargs:
        parts.append("*")
    parts += map(of, given.kwonlyargs, given.kw_defaults)
    if given.kwarg:
        parts.append(of(given.kwarg, stars="**"))
    result = returned or (annotation(ast.unparse(function.returns)) if function.returns else "Any")
    return f"({', '.join(parts)}) -> {result}: "


def definitions_in(body):
    """{name: its definitions} of functions: those that @overload marks come before the function itself."""
    found = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


@functools.lru_cache(None)
def source_of(path):
    """The functions of a module of the package, and {name: how the stub imports it} of the names that it imports or defines."""
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    folders = os.path.relpath(path, PACKAGE)[: -len(".py")].split(os.sep)
    names = {node.name: f"from .{'.'.join(folders)} import {node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in [*tree.body, *(inner for node in tree.body if isinstance(node, ast.If) for inner in node.body)]:
        if isinstance(node, ast.ImportFrom):
            module = ".".join(filter(None, [*folders[: len(folders) - node.level], node.module])) if node.level else node.module
            for name in node.names:
                names[name.asname or name.name] = f"from {'.' * bool(node.level)}{module} import {name.name}" + (f" as {name.asname}" if name.asname else "")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = f"from .{'.'.join(folders)} import {node.targets[0].id}"
    return definitions_in(tree.body), names


def stub_of(name, value, known, imports):
    """The text of a member. known: {name: definitions} of the stub. imports: gets the lines that the annotations need."""
    doc = '        """' + ((value.__doc__ or "").strip().split("\n")[0].replace("\\", "\\\\")) + '"""\n'
    if isinstance(value, property):
        return f"    @property\n    def {name}(self) -> {PROPERTIES.get(name, 'builtins.bool')}:\n{doc}"
    code, result = value.__code__, None
    if code.co_name == "refused":
        return f"    def {name}(self, *args: Any, **kwargs: Any) -> NoReturn:\n{doc}"
    if code.co_name == "method":  # in place: the arguments are those of the method that makes a new tensor
        nodes, result, names = known[name[:-1]], "Tensor", {}
    else:
        definitions, names = source_of(code.co_filename)
        nodes = definitions[code.co_name]
        nodes = nodes[:-1] or nodes
    texts = [signature_of(node, result) for node in nodes]
    for node in nodes:
        annotations = [node.returns, *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg))]
        words = {n.id for annotation in annotations if annotation is not None for n in ast.walk(annotation) if isinstance(n, ast.Name)}
        imports |= {names[word] for word in words if word in names and not names[word].startswith("from ._C ")}
    if len(texts) == 1:
        return f"    def {name}{texts[0]}\n{doc}".replace(": \n", ":\n", 1)
    return "\n".join(f"    @overload\n    def {name}{text}...\n" for text in texts)


def with_python_members(text, tensor):
    """The stub in which class Tensor has the members that are written in Python, in the place of compiled ones of the same name."""
    members, imports = {}, set()
    for name, value in vars(tensor).items():
        function = inspect.unwrap(value) if callable(value) else value
        if isinstance(function, types.FunctionType) or isinstance(value, property) and isinstance(value.fget, types.FunctionType):
            members[name] = function
    of_tensor = next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    lines = text.split("\n")
    for node in reversed(of_tensor.body):
        if isinstance(node, ast.FunctionDef) and node.name in members:
            del lines[min(d.lineno for d in [node, *node.decorator_list]) - 1 : node.end_lineno + 1]
    for in_place in (False, True):  # those in place have the arguments of others
        tree = ast.parse("\n".join(lines))
        of_tensor = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
        known = {**definitions_in(tree.body), **definitions_in(of_tensor.body)}
        written = [stub_of(name, value, known, imports) for name, value in members.items() if in_place == (getattr(value, "__name__", "") == name and value.__code__.co_name == "method")]
        lines[of_tensor.end_lineno : of_tensor.end_lineno] = ["", *"\n".join(written).rstrip("\n").split("\n")]
    return "\n".join(lines).replace(HEADER, HEADER + "".join(f"{line}\n" for line in sorted(imports) if line not in HEADER), 1)


# ---- further keywords


def with_keywords(text, module, further):
    """The stub in which the functions and the methods of Tensor have the keywords that they take beside their own ones, and complex numbers."""
    tree, lines = ast.parse(text), text.split("\n")
    tensor = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    found = [(node, vars(module), False) for node in tree.body] + [(node, vars(module.Tensor), True) for node in tensor.body]
    for node, values, is_method in sorted(found, key=lambda each: -each[0].lineno):
        value = values.get(getattr(node, "name", None))
        if not isinstance(node, ast.FunctionDef) or not callable(value):
            continue
        nodes = further.definitions(stub_keywords.with_complex_numbers(node, value, module), value, is_method)
        if len(nodes) == 1 and ast.unparse(nodes[0].args) == ast.unparse(node.args):
            continue
        indent = "    " * is_method
        texts = [f"{indent}def {node.name}{signature_of(each, None, is_method).rstrip()}" for each in nodes]
        others = [line for text in texts[1:] for line in ("", f"{indent}@overload", f"{text} ...")]
        lines[node.end_lineno : node.end_lineno] = others
        lines[node.lineno - 1] = texts[0] + re.search(r"( \.\.\.)?(  #.*)?$", lines[node.lineno - 1])[0]
        if others and not node.decorator_list:
            lines.insert(node.lineno - 1, f"{indent}@overload")
    return "\n".join(lines)


def accepting_functions():
    """{path of a module: {name of a function in it: the function that programs call}} of functions with further keywords."""
    found = {}
    for name in ("linalg", "nn.functional", "special"):
        importlib.import_module(f"pyflame.{name}")
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "pyflame"]:
        for function in vars(module).values():
            if isinstance(function, types.FunctionType) and stub_keywords.in_closure(function, "others") is not None:
                code = inspect.unwrap(function).__code__
                found.setdefault(code.co_filename, {})[code.co_name] = function
    return found


def assignment(node, functions, names_all):
    """The lines of a stub for names that a module assigns: further names of functions, and results of functions. Empty for private names and members of other objects."""
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    names = [name for target in targets for name in (target.elts if isinstance(target, ast.Tuple) else [target])]
    if not all(isinstance(name, ast.Name) for name in names):
        return ""
    if names[0].id == "__all__" or isinstance(node, ast.Assign) and all(isinstance(v, (ast.Name, ast.Attribute)) for v in (node.value.elts if isinstance(node.value, ast.Tuple) else [node.value])):
        return ast.unparse(node)
    public = [name.id for name in names if name.id[0] != "_" and (names_all is None or name.id in names_all)]
    if isinstance(node, ast.AnnAssign):
        kind = ast.unparse(node.annotation)
    else:
        called = getattr(node.value, "func", None)
        called = node.value.args[0] if getattr(called, "id", None) == "map" else called
        maker = functions.get(getattr(called, "id", None))
        kind = ast.unparse(maker[-1].returns) if maker and maker[-1].returns else "Any"
        if kind == "Function" and called is node.value.func:  # a type variable: the result is of the type of what is given
            return "\n".join(f"{name} = {ast.unparse(node.value.args[0])}" for name in public)
    return "\n".join(f"{name}: {kind}" for name in public)


def stub_of_module(path, functions, further):
    """The stub of a module that is written in Python; None if no function in it gets a keyword, and for a module with public classes, whose source says more.

    It has no docstrings: editors take those of the source beside it."""
    with open(path, encoding="utf-8") as f:
        body = ast.parse(f.read()).body
    for_checkers = {inner for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" for inner in node.body}
    body = [inner for node in body for inner in (node.body if isinstance(node, ast.If) and node.body[0] in for_checkers else [node])]
    names_all = next((ast.literal_eval(node.value) for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"), None)
    classes = [node.name for node in body if isinstance(node, ast.ClassDef)]
    if any(name in names_all if names_all else name[0] != "_" for name in classes):
        return None
    lines, changed, functions_of_module = [], False, definitions_in(body)
    for name, nodes in functions_of_module.items():
        if name[0] == "_" and name not in functions:
            continue
        for node in nodes[:-1] or nodes:
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list if ast.unparse(decorator) not in ADDING]
            definitions = further.definitions(node, functions.get(name), False)
            changed = changed or len(definitions) > 1 or ast.unparse(definitions[0].args) != ast.unparse(node.args)
            if len(definitions) > 1 and "overload" not in decorators:
                decorators.append("overload")
            for each in definitions:
                lines += ["", *(f"@{decorator}" for decorator in decorators), f"def {name}{signature_of(each, None, False)}..."]
    if not changed:
        return None
    used = set(re.findall(r"\w+", " ".join(line for line in lines if line[:4] == "def " or line[:1] == "@"))) | set(names_all or ())
    known, above = set(), []
    for node in reversed(body):  # what a line needs is above it
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            line = assignment(node, functions_of_module, names_all)
            if line:
                used |= set(re.findall(r"\w+", line))
                above.insert(0, line)
        elif isinstance(node, ast.Import) or isinstance(node, ast.ImportFrom) and node.module != "__future__":
            exports = isinstance(node, ast.ImportFrom) and node.level and names_all is None and node not in for_checkers
            for name in node.names:
                if exports and name.name[0] != "_" and name.asname is None and name.name != "*":
                    name.asname = name.name  # it is public, as when a program runs
            node.names = [name for name in node.names if name.name == "*" or (name.asname or name.name) in used or name.asname and name.asname[0] != "_"]
            known |= {name.asname or name.name for name in node.names}
            if node.names:
                above.insert(0, ast.unparse(node))
    package = "." * (os.path.relpath(path, PACKAGE).count(os.sep) + 1)
    homes = {"Any": "typing", "overload": "typing", "Sequence": "collections.abc", "Tensor": f"{package}_C", "memory_format": f"{package}_C"}
    imports = [f"from {home} import {name}" for name, home in homes.items() if name in used - known]
    return "\n".join([f"# Generated from {os.path.basename(path)} by make_stubs.py.", *imports, *above, *lines]) + "\n"


def main():
    folder, output = sys.argv[1:]
    from nanobind.stubgen import StubGen

    for name in [name for name in os.environ if name.startswith("PYFLAME_")]:
        del os.environ[name]  # settings of the person who builds
    sys.path.insert(0, folder)
    module = importlib.import_module("_C")
    generator = StubGen(module=module, include_private=True)
    generator.put(module)
    text = correct(generator.get())
    # The package adds members to Tensor when it is imported.
    sys.modules["pyflame._C"] = module
    spec = importlib.util.spec_from_file_location("pyflame", os.path.join(PACKAGE, "__init__.py"))
    package = sys.modules["pyflame"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    further = stub_keywords.Further(package._keywords)
    stubs = {"_C.pyi": with_keywords(with_python_members(text, module.Tensor), module, further)}
    for path, functions in accepting_functions().items():
        stub = stub_of_module(path, functions, further)
        if stub is not None:
            stubs[os.path.relpath(path, PACKAGE) + "i"] = stub
    for old in glob.glob(os.path.join(glob.escape(output), "**", "*.pyi"), recursive=True):
        if os.path.relpath(old, output) not in stubs:
            os.remove(old)  # of a function that was there before
    for path, stub in stubs.items():
        os.makedirs(os.path.dirname(os.path.join(output, path)), exist_ok=True)
        with open(os.path.join(output, path), "w", encoding="utf-8") as f:
            f.write(stub)


if __name__ == "__main__":
    main()
