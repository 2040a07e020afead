"""Which dtypes and shapes a function takes and what it returns, found by calling it: tried.py FOLDER writes FOLDER/tried.json, {path: [line, ...]}.

The calls are those of the case tables of pyflame.testing, whose values CI compares with NumPy, and otherwise the first call with tensors in the pages of
docs/examples. Each is repeated with its floating inputs in each dtype; what the function returns, or the error, is a fact of the reference. Of layers
the shapes are noted.
"""
import contextlib
import functools
import importlib
import io
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import warnings

import names

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
MODULES = ("pyflame", "pyflame.nn.functional", "pyflame.special", "pyflame.linalg", "pyflame.fft", "pyflame.nn.utils", "pyflame.func")
PAGES_LEFT_OUT = {"data-loading", "distributed", "devices", "language-models", "memory-and-profiling", "windows"}  # processes, files, settings
FAMILIES_LEFT_OUT = {"complex", "float8", "quantized", "paged"}  # their inputs are parts or codes, of which the call makes the tensors
# What these change outlives the call.
LEFT_OUT = re.compile(r"\.(set_|manual_seed|seed|save|load|compile|use_|use_deterministic|fork|wait|explain|bench)")

DTYPES = ("float32", "float64", "bfloat16", "float16", "complex64", "complex128", "int64", "int32", "int16", "int8", "uint8", "bool")
MOST_SHAPES = 3
LONGEST = 160  # characters of an error


class Call:
    """One call that can be repeated with other dtypes: make(dtype) is a function without arguments."""

    def __init__(self, make, inputs, dtype="float32"):
        self.make, self.inputs, self.dtype = make, inputs, dtype  # inputs: shapes

    def results(self, dtype=None):
        """The tensors that the call returns, or the error; in its own dtype, or in another one."""
        try:
            found = results(self.make(dtype or self.dtype)())
            for t in found:
                t.tolist()  # a failure of a kernel shows when the values are read
            return found
        except Exception as error:  # each kind is a fact
            return error


def results(value):
    """The tensors of a result."""
    return [v for v in (value if isinstance(value, (tuple, list)) else (value,)) if hasattr(v, "dtype") and hasattr(v, "shape")]


def call_of_case(pf, case):
    def make(dtype):
        arrays = [pf.tensor(array.tolist() if array.size else array, dtype=getattr(pf, spec.dtype)).reshape(spec.shape) for spec, array in zip(case.inputs, case.arrays())]
        given = [t.to(getattr(pf, dtype)) if spec.dtype == "float32" else t for spec, t in zip(case.inputs, arrays)]
        return lambda: case.call(pf, *given)

    return Call(make, [s.shape for s in case.inputs])


def shape_text(shape):
    return "[" + ", ".join(map(str, shape)) + "]"


def shapes_line(calls):
    """Shapes of inputs and results of a few calls."""
    seen = []
    for call in calls:
        found = call.results()
        if isinstance(found, Exception) or not found or any(0 in shape for shape in call.inputs):
            continue
        text = f"`{', '.join(map(shape_text, call.inputs))} -> {', '.join(shape_text(t.shape) for t in found)}`"
        if text not in seen:
            seen.append(text)
        if len(seen) == MOST_SHAPES:
            break
    return "Shapes, for example: " + ", ".join(seen) + "." if seen else ""


def dtypes_lines(call):
    """What the function returns for each dtype, those alike together; and what it refuses, with the error."""
    returns, refuses = {}, {}
    for dtype in DTYPES:
        found = call.results(dtype)
        if isinstance(found, Exception):
            lines = str(found).strip().splitlines() or [""]
            text = lines[0].replace("`", "'")
            refuses.setdefault(type(found).__name__, []).append((dtype, text if len(text) <= LONGEST else text[:LONGEST - 1] + "…"))
        elif found:
            out = ", ".join(dict.fromkeys(str(t.dtype).rpartition(".")[2] for t in found))
            returns.setdefault("the same" if out == dtype else out, []).append(dtype)
    parts = [f"{', '.join(f'`{d}`' for d in dtypes)} → {out if out == 'the same' else f'`{out}`'}" for out, dtypes in returns.items()]
    lines = ["Dtypes: " + "; ".join(parts) + "."] if parts else []
    for error, refused in refuses.items():
        lines.append(f"`{error}` for {', '.join(f'`{d}`' for d, _ in refused)}: `{refused[0][1]}`")
    return lines


def calls_of_cases(pf, cases):
    """{function: calls}, those of at least six elements first. A case of several functions says nothing of one."""
    found = {}
    for case in cases:
        dtypes = {s.dtype for s in case.inputs}
        if len(case.functions) == 1 and "float32" in dtypes and not dtypes & {"float64", "float16", "bfloat16"} and all(s.layout == "contiguous" for s in case.inputs):
            found.setdefault(case.functions[0], []).append(case)

    def order(case):
        size = sum(math.prod(s.shape) for s in case.inputs)
        return size < 6, size

    return {function: [call_of_case(pf, case) for case in sorted(its, key=order)] for function, its in found.items()}


def recorded(pf, function, args, kwargs):
    """The call as one that can be repeated, with its tensors of float32, or otherwise of int64, in other dtypes; None where it has neither."""
    copies = lambda v: v.detach().clone() if isinstance(v, pf.Tensor) else type(v)(map(copies, v)) if type(v) in (tuple, list) else v  # noqa: E731
    args, kwargs = copies(args), {k: copies(v) for k, v in kwargs.items()}
    given = [t for a in (*args, *kwargs.values()) for t in (a if type(a) in (tuple, list) else (a,)) if isinstance(t, pf.Tensor)]
    varied = next((d for d in (pf.float32, pf.int64) if any(t.dtype == d for t in given)), None)
    if varied is None:
        return None

    def make(dtype):
        def cast(v):
            if isinstance(v, pf.Tensor):
                return v.to(getattr(pf, dtype)) if v.dtype == varied else v.clone()
            return type(v)(map(cast, v)) if type(v) in (tuple, list) else v

        now, named = cast(args), {k: cast(v) for k, v in kwargs.items()}
        return lambda: function(*now, **named)

    return Call(make, [tuple(t.shape) for t in given], str(varied).rpartition(".")[2])


@contextlib.contextmanager
def watched(pf, inventory):
    """While this is entered, the first call of each public function is noted in the dict that it gives, and the shapes of each layer."""
    calls, layers, undo = {}, {}, []
    modules = names.modules(pf)

    def watch(module, name, path, function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            if path not in calls:
                calls[path] = recorded(pf, function, args, kwargs)
                if calls[path] is None:
                    del calls[path]
            return function(*args, **kwargs)

        undo.append((module, name, function))
        setattr(module, name, wrapper)

    for path, entry in inventory.items():
        if entry.kind == "function" and entry.module in MODULES and not LEFT_OUT.search(path):
            for place in [path, *entry.aliases]:
                module, _, name = place.rpartition(".")
                if module in MODULES:
                    watch(modules[module], name, path, entry.value)
    plain = pf.nn.Module.__call__
    of_class = {entry.value: path for path, entry in inventory.items() if entry.kind == "class"}

    def called(self, *args, **kwargs):
        value = plain(self, *args, **kwargs)
        path = of_class.get(type(self))
        given = [tuple(a.shape) for a in args if isinstance(a, pf.Tensor)]
        if path and given and results(value):
            layers.setdefault(path, []).append((given, [tuple(t.shape) for t in results(value)]))
        return value

    pf.nn.Module.__call__ = called
    try:
        yield calls, layers
    finally:
        pf.nn.Module.__call__ = plain
        for module, name, function in undo:
            setattr(module, name, function)


def run_examples(pages):
    """The blocks of the pages that CI runs, in an empty folder. CI says which fail; here a failure is of no interest."""
    from run_doc_blocks import runnable

    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        os.chdir(folder)
        try:
            for page in pages:
                for _, language, code, _ in runnable(page.read_text(encoding="utf-8")):
                    if language == "python":
                        with contextlib.suppress(Exception):
                            exec(compile(code, str(page), "exec"), {"__name__": "__example__"})
        finally:
            os.chdir(before)


def layer_line(calls):
    seen = list(dict.fromkeys(f"`{', '.join(map(shape_text, ins))} -> {', '.join(map(shape_text, outs))}`" for ins, outs in calls))
    return "Shapes, for example: " + ", ".join(seen[:MOST_SHAPES]) + "."


def tried(pf, inventory, cases, pages):
    """{path: lines} of the public functions that have cases or are called in the pages, and of the layers that these call."""
    of_name = {}
    for path, entry in inventory.items():
        for alias in (path, *entry.aliases):
            of_name.setdefault(alias.removeprefix("pyflame."), path)
    with watched(pf, inventory) as (calls, layers):
        run_examples(pages)
    every = {path: [call] for path, call in calls.items()}
    for function, its in calls_of_cases(pf, cases).items():
        path = of_name.get(function) or of_name.get("nn.functional." + function)
        if path:
            every[path] = its
    found = {path: [shapes_line(its), *dtypes_lines(its[0])] for path, its in every.items()}
    found.update({path: [layer_line(its)] for path, its in layers.items()})
    return {path: kept for path, lines in sorted(found.items()) if (kept := [line for line in lines if line])}


def example_pages():
    return [p for p in sorted((ROOT / "docs" / "examples").glob("*.md")) if p.stem not in PAGES_LEFT_OUT]


def main(folder):
    import pyflame as pf
    from pyflame.testing import cases

    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    of_functions = [c for f in cases.FAMILIES if f not in FAMILIES_LEFT_OUT for c in importlib.import_module(f"{cases.__name__}.{f}").cases()]
    found = tried(pf, names.inventory(pf), of_functions, example_pages())
    (folder / "tried.json").write_text(json.dumps(found), encoding="utf-8")
    print(f"tried: dtypes and shapes of {len(found)} functions and layers")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
