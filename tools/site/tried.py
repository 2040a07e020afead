"""Facts of public functions that were found by calling them: tried.py FOLDER writes FOLDER/tried.json, {path: [line, ...]}.

The calls are those of the case tables of pyflame.testing, whose values CI compares with NumPy, and otherwise the first call in the pages of docs/examples. A
call with tensors, or of a function that makes one, is repeated in each dtype; what the function returns, or the error, is a fact of the reference, and so
are the ops that the call runs. Of other functions one call is shown, with the types of arguments and result, and the error for an argument of a wrong type.
Of layers the shapes are noted.
"""
import contextlib
import functools
import gc
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
from calls import MOST_SHAPES, Call, arguments, call_line, dtypes_lines, error_line, ops_line, recorded, refusal_line, results, shape_text, shapes_line

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
# Their functions depend on nothing but their arguments, so that a call can be repeated.
MODULES = ("pyflame", "pyflame.nn.functional", "pyflame.special", "pyflame.linalg", "pyflame.fft", "pyflame.func", "pyflame.nn.init", "pyflame.signal.windows", "pyflame.nn.utils.rnn")
PAGES_LEFT_OUT = {"data-loading", "distributed", "devices", "language-models", "memory-and-profiling", "windows"}  # processes, files, settings: they come last
# Further pages that call what no page of examples does; they come last, too.
GUIDES = ("differences", "float8", "rewrites", "rocm", "execution", "checkpoints", "kernels", "memory", "footguns", "tuning", "finance", "benchmarking", "distributed", "models", "language-models", "optimize", "from-pytorch")
# Functions of which no page can show a call here, each with the reason. main() fails for any other.
_OTHERS, _GPU = "needs a second process", "needs an AMD GPU"
WITHOUT_FACTS = {
    **{f"pyflame.distributed.{name}": _OTHERS for name in ("send", "recv", "isend", "irecv", "batch_isend_irecv")},
    "pyflame.multiprocessing.spawn": _OTHERS,
    **{f"pyflame.{name}": _GPU for name in ("rocm_get_device_info", "backend.rocm.get_memory_manager", "backend.rocm.get_pinned_pool", "backend.rocm.warmup_memory_pool")},
    "pyflame.utils.cpp_extension.load_inline": "calls a compiler",
}
FAMILIES_LEFT_OUT = {"complex", "float8", "quantized", "paged"}  # their inputs are parts or codes, of which the call makes the tensors
# What these change outlives the call, so that it is not repeated.
LEFT_OUT = re.compile(r"\.(set_|manual_seed|seed|save|load|compile|use_|use_deterministic|fork|wait|explain|bench|empty_cache|write_|clear_|reset_)")
# No call with a wrong argument: these take any object, wait for others, or reach out of the process.
NOT_REFUSED = re.compile(r"pyflame\.(distributed|multiprocessing|hub|llm|utils\.cpp_extension|jit|compiler|memory\.monitor|tuning|wait|fork|is_|save|load)")
EXAMPLE = "__example__"  # __name__ of what run_examples() runs


class Notes:
    """What was called: calls to repeat, a line and arguments of the first call, shapes of layers, and errors of the examples."""

    def __init__(self):
        self.calls, self.lines, self.given, self.layers, self.errors = {}, {}, {}, {}, {}


@contextlib.contextmanager
def watched(pf, inventory, repeated=True):
    """While this is entered, the first call of each public function from an example is noted, and the shapes of each layer."""
    notes, undo = Notes(), []
    modules = names.modules(pf)

    def watch(module, name, path, function):
        repeatable = repeated and path.rpartition(".")[0] in MODULES and not LEFT_OUT.search(path)

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            if path in notes.lines or sys._getframe(1).f_globals.get("__name__") != EXAMPLE:
                return function(*args, **kwargs)
            call = recorded(pf, function, args, kwargs) if repeatable else None
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                notes.errors.setdefault(path, error_line(type(error).__name__, f"`{arguments(pf, args, kwargs)}`", str(error).partition("; ")[0]))
                raise
            notes.lines[path] = call_line(pf, args, kwargs, result)
            notes.given[path] = function, args, kwargs
            if call is not None:
                notes.calls[path] = call
            return result

        undo.append((module, name, function))
        setattr(module, name, wrapper)

    for path, entry in inventory.items():
        if entry.kind == "function":
            for place in [path, *entry.aliases]:
                module, _, name = place.rpartition(".")
                if module in modules and getattr(modules[module], name, None) is entry.value:
                    watch(modules[module], name, path, entry.value)
    plain = pf.nn.Module.__call__
    of_class = {entry.value: path for path, entry in inventory.items() if entry.kind == "class"}

    def called(self, *args, **kwargs):
        path = of_class.get(type(self))  # before: a lazy layer is of another class after its first call
        value = plain(self, *args, **kwargs)
        given = [tuple(a.shape) for a in args if isinstance(a, pf.Tensor)]
        if path and given and results(value):
            notes.layers.setdefault(path, []).append((given, [tuple(t.shape) for t in results(value)]))
        return value

    pf.nn.Module.__call__ = called
    try:
        yield notes
    finally:
        pf.nn.Module.__call__ = plain
        for module, name, function in reversed(undo):
            setattr(module, name, function)


def call_of_case(pf, case):
    def make(dtype):
        arrays = [pf.tensor(array.tolist() if array.size else array, dtype=getattr(pf, spec.dtype)).reshape(spec.shape) for spec, array in zip(case.inputs, case.arrays())]
        given = [t.to(getattr(pf, dtype)) if spec.dtype == "float32" else t for spec, t in zip(case.inputs, arrays)]
        return lambda: case.call(pf, *given)

    return Call(make, [s.shape for s in case.inputs])


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
                            exec(compile(code, str(page), "exec"), {"__name__": EXAMPLE})
        finally:
            os.chdir(before)


def layer_line(calls):
    seen = list(dict.fromkeys(f"`{', '.join(map(shape_text, ins))} -> {', '.join(map(shape_text, outs))}`" for ins, outs in calls))
    return "Shapes, for example: " + ", ".join(seen[:MOST_SHAPES]) + "."


def facts(pf, repeated, line, given):
    """The lines of one function: of the first of `repeated`, lists of calls, that shows anything; otherwise of its first call, and of one with a wrong argument."""
    for calls in repeated:
        lines = [shapes_line(calls) if calls[0].inputs else line, *dtypes_lines(calls[0])]
        if len(lines) > 1 and all(lines):
            return [*lines, ops_line(pf, calls[0])]
    return [line, refusal_line(*given) if given else ""]


def tried(pf, inventory, cases, pages, last_pages=()):
    """{path: lines} of the public functions that have cases or are called in the pages, and of the layers that these call. What `last_pages` call is not repeated."""
    of_name = {}
    for path, entry in inventory.items():
        for alias in (path, *entry.aliases):
            of_name.setdefault(alias.removeprefix("pyflame."), path)
    with watched(pf, inventory) as notes:
        run_examples(pages)
    every = {path: [[call]] for path, call in notes.calls.items()}
    for function, its in calls_of_cases(pf, cases).items():
        path = of_name.get(function) or of_name.get("nn.functional." + function)
        if path:
            every[path] = [its, *every.get(path, ())]
    asked = {path: given for path, given in notes.given.items() if not NOT_REFUSED.match(path)}
    found = {path: facts(pf, every.get(path, ()), notes.lines.get(path, ""), asked.get(path)) for path in {**every, **notes.lines}}
    found.update({path: [layer_line(its)] for path, its in notes.layers.items()})
    with watched(pf, {path: entry for path, entry in inventory.items() if path not in found}, repeated=False) as last:
        run_examples(last_pages)
    found.update({path: [line] for path, line in {**notes.errors, **last.errors, **last.lines}.items() if path not in found})
    found.update({path: [layer_line(its)] for path, its in last.layers.items() if path not in found})
    return {path: kept for path, lines in sorted(found.items()) if (kept := [line for line in lines if line])}


def example_pages():
    """Those whose calls depend on nothing else."""
    return [p for p in sorted((ROOT / "docs" / "examples").glob("*.md")) if p.stem not in PAGES_LEFT_OUT]


def main(folder):
    import pyflame as pf
    from pyflame.testing import cases

    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    of_functions = [c for f in cases.FAMILIES if f not in FAMILIES_LEFT_OUT for c in importlib.import_module(f"{cases.__name__}.{f}").cases()]
    last = [ROOT / "docs" / "examples" / f"{name}.md" for name in sorted(PAGES_LEFT_OUT)] + [ROOT / "docs" / f"{name}.md" for name in GUIDES]
    inventory = names.inventory(pf)
    gc.freeze()  # pages collect garbage many times; nothing that is alive here is any
    found = tried(pf, inventory, of_functions, example_pages(), last)
    missing = {path for path, entry in inventory.items() if entry.kind == "function"} - set(found) - set(WITHOUT_FACTS)
    if missing:
        raise SystemExit(f"tried: no page of docs/examples calls {', '.join(sorted(missing))}; hint: add a call to the page of its topic")
    (folder / "tried.json").write_text(json.dumps(found), encoding="utf-8")
    print(f"tried: dtypes and shapes of {len(found)} functions and layers")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
