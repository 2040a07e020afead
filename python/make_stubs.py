"""Writes the type stubs of the compiled module: nanobind's stub generator, and what it cannot know, such as the methods of Tensor that are written in Python.

Inside class Tensor the names float, int and bool are methods, so annotations there say builtins.float; functions that return "the same
object or a new one" are known to the generator as object only; in-place methods end with an underscore, which it takes for private.

    python make_stubs.py FOLDER_WITH_THE_MODULE OUTPUT
"""
import ast
import functools
import importlib.util
import inspect
import os
import re
import sys
import types

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyflame")

# Results that C++ declares as a Python object.
RETURNS = {
    "dtype": "dtype", "shape": "Size", "grad": "Tensor | None", "grad_fn": "GradFn | None", "size": "Any", "stride": "Any", "item": "Any", "tolist": "Any",
    "numpy": "np.ndarray", "__array__": "np.ndarray", "__dlpack__": "Any", "__reduce__": "Any", "__reduce_ex__": "Any", "type": "Any",
    "max": "Any", "min": "Any", "topk": "ValuesIndices", "sort": "ValuesIndices", "cummax": "ValuesIndices", "cummin": "ValuesIndices", "max_pool2d": "Any", "__int__": "builtins.int", "__index__": "builtins.int",
    "__format__": "builtins.str", "unbind": "tuple[Tensor, ...]", "__complex__": "builtins.complex", "index": "builtins.int | None",
    "__enter__": "device", "read_torch_file": "Any", "read_gguf_file": "Any",
}  # fmt: skip
ARGUMENTS = "data|obj|value|key|device|dtype|ndarray|buffer|gradient|hook|other|grad|src|retain_graph|modulo|copy|split_size|stream|max_version|dl_device|dim|split_size_or_sections|ext_tensor"
HEADER = "import builtins\nfrom typing import Any, NoReturn\n\nimport numpy as np\n\nfrom ._named_tuples import ValuesIndices\n"
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


def signature_of(function, returned=None):
    """The parameters of a method, whose first one is the tensor, and its result."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults

    def of(argument, default=None, stars=""):
        written = f": {annotation_of(ast.unparse(argument.annotation))}" if argument.annotation else ""
        return f"{stars}{argument.arg}{written}" + (f" = {ast.unparse(default)}" if default is not None else "")

    parts = ["self", *map(of, positional[1:], defaults[1:])]
    if given.posonlyargs:
        parts.insert(len(given.posonlyargs), "/")
    if given.vararg:
        parts.append(of(given.vararg, stars="*"))
    elif given.kwonlyargs:
        parts.append("*")
    parts += map(of, given.kwonlyargs, given.kw_defaults)
    if given.kwarg:
        parts.append(of(given.kwarg, stars="**"))
    result = returned or (annotation_of(ast.unparse(function.returns)) if function.returns else "Any")
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
    text = with_python_members(text, module.Tensor)
    with open(output, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
