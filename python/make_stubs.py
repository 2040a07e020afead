"""Writes the type stubs of the compiled module: nanobind's stub generator, and what it cannot know.

Inside class Tensor the names float, int and bool are methods, so annotations there say builtins.float; functions that return "the same
object or a new one" are known to the generator as object only; in-place methods end with an underscore, which it takes for private.

    python make_stubs.py FOLDER_WITH_THE_MODULE OUTPUT
"""
import importlib
import re
import sys

# Results that C++ declares as a Python object.
RETURNS = {
    "dtype": "dtype", "shape": "Size", "grad": "Tensor | None", "grad_fn": "GradFn | None", "size": "Any", "stride": "Any", "item": "Any", "tolist": "Any",
    "numpy": "np.ndarray", "__array__": "np.ndarray", "__dlpack__": "Any", "__reduce__": "Any", "__reduce_ex__": "Any", "type": "Any",
    "max": "Any", "min": "Any", "topk": "Any", "sort": "Any", "max_pool2d": "Any", "__int__": "builtins.int", "__index__": "builtins.int",
    "__format__": "builtins.str", "unbind": "tuple[Tensor, ...]",
}  # fmt: skip
ARGUMENTS = "data|obj|value|key|device|dtype|ndarray|buffer|gradient|hook|other|grad|src|retain_graph|modulo|copy|split_size|stream|max_version|dl_device|dim|split_size_or_sections|ext_tensor"
HEADER = "import builtins\nfrom typing import Any\n\nimport numpy as np\n"
# Classes that nanobind did not make.
MODULE_BASE = """
class _ModuleBase:
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __getattr__(self, name: str) -> Any: ...


class Size(tuple[builtins.int, ...]):
    def numel(self) -> builtins.int: ...


class ArgumentError(ValueError, RuntimeError): ...
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


def main():
    folder, output = sys.argv[1:]
    from nanobind.stubgen import StubGen

    sys.path.insert(0, folder)
    module = importlib.import_module("_C")
    generator = StubGen(module=module, include_private=True)
    generator.put(module)
    text = correct(generator.get())
    with open(output, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
