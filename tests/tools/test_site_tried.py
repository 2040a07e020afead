"""tools/site/tried.py: what the reference says about shapes, dtypes and errors of a function was found by calling it."""
import pathlib
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "site"))

import calls  # noqa: E402
import names  # noqa: E402
import python_reference  # noqa: E402
import tried  # noqa: E402

import pyflame as pf  # noqa: E402
from pyflame.testing.cases import reduce, special  # noqa: E402


def entries(*paths):
    every = names.inventory(pf)
    return {path: every[path] for path in paths}


def lines_of(path, cases, pages=()):
    return tried.tried(pf, entries(path), [c for c in cases if c.functions == (path.rpartition(".")[2],)], pages)[path]


def test_of_a_case():
    shapes, dtypes, refused, ops = lines_of("pyflame.lgamma", special.cases())
    assert shapes.startswith("Shapes, for example: `[") and "[31, 33] -> [31, 33]" in shapes
    assert "`bfloat16`" in dtypes.partition(" → the same")[0] and "`bool` → `float32`" in dtypes
    assert refused.startswith("`TypeError` for `complex64`, `complex128`: `lgamma: ")
    assert ops == "Ops of the engine: `lgamma`."
    assert "→ `int64`" in lines_of("pyflame.sum", reduce.cases())[1]


def test_the_ops_of_a_function_that_is_made_of_several(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nimport pyflame as pf\nx = pf.ones(2, 2)\npf.addmm(x, x, x)\npf.swapdims(x, 0, 1)\n```\n")
    found = tried.tried(pf, entries("pyflame.addmm", "pyflame.swapdims"), [], [page])
    assert found["pyflame.addmm"][-1] == "Ops of the engine: `matmul`, `add`."
    assert found["pyflame.swapdims"][-1] == "Ops of the engine: none."  # a view


def test_of_an_example_and_of_a_layer(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nimport pyflame as pf\nlayer = pf.nn.Linear(3, 2)\ny = layer(pf.ones(4, 3))\nz = pf.lerp(y, y, 0.5)\n```\n\n```python\nraise ValueError\n```\n")
    plain = pf.lerp
    found = tried.tried(pf, entries("pyflame.lerp", "pyflame.nn.Linear"), [], [page])
    assert found["pyflame.lerp"][0] == "Shapes, for example: `[4, 2], [4, 2] -> [4, 2]`."
    assert any(line.startswith("`TypeError` for `bool`: `") for line in found["pyflame.lerp"])
    assert found["pyflame.nn.Linear"] == ["Shapes, for example: `[4, 3] -> [4, 2]`."]
    assert pf.lerp is plain, "the function is not watched afterwards"


def test_a_call_in_place_is_repeated_with_a_copy():
    value = pf.ones(2)
    call = calls.recorded(pf, pf.relu_, (value,), {})
    assert call.results("float64")[0].dtype == pf.float64 and call.results("float16")[0].dtype == pf.float16 and value.dtype == pf.float32
    assert calls.recorded(pf, pf.relu_, (pf.tensor([1], dtype=pf.int32),), {}) is None  # of no dtype that is varied


def test_integers_of_another_shape_are_indices():
    x, index = pf.tensor([[1, 2], [3, 4]]), pf.tensor([0, 3, 1])
    assert calls.recorded(pf, pf.take, (x, index), {}).results("float16")[0].dtype == pf.float16
    both = calls.recorded(pf, pf.bitwise_and, (index, index), {}).results("int8")
    assert both[0].dtype == pf.int8


def test_of_a_function_that_makes_a_tensor(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nimport pyflame as pf\npf.zeros(2, 3)\npf.is_tensor(3)\n```\n")
    found = tried.tried(pf, entries("pyflame.zeros", "pyflame.is_tensor"), [], [page])
    assert found["pyflame.zeros"][0] == "A call, for example: `(2, 3) → float32[2, 3]`." and "`bool` → the same" in found["pyflame.zeros"][1]
    assert found["pyflame.is_tensor"] == ["A call, for example: `(3) → False`."]


def test_of_a_function_without_tensors_and_of_its_errors(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("""```python
import pyflame as pf
pf.equal(pf.ones(2), pf.zeros(2))
try:
    pf.set_device("rocm:99")
except pf.DeviceError:
    pass
```
""")
    found = tried.tried(pf, entries("pyflame.equal", "pyflame.set_device"), [], [page])
    line, refused = found["pyflame.equal"]
    assert line == "A call, for example: `(float32[2], float32[2]) → False`." and refused.startswith("`TypeError` for another object: `equal: ")
    assert found["pyflame.set_device"] == ["`DeviceError` for `('rocm:99')`: `set_device: the device is not available`"]


def test_calls_of_pyflame_itself_are_no_examples(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nimport pyflame as pf\npf.nn.Linear(3, 2)\n```\n")
    assert tried.tried(pf, entries("pyflame.nn.init.kaiming_uniform_"), [], [page]) == {}


@pytest.mark.parametrize("value, text", [
    (None, "None"), (True, "True"), (1.5, "1.5"), ("sum", "'sum'"), ("/tmp/a", "str"), ((3,), "(3,)"), ([1, 2, 3, 4], "[1, 2, 3, …]"), (print, "function"), (dict, "dict"), ({}, "dict"),
    (pf.inference_mode(), "inference_mode"),
])
def test_values_as_a_reader_wants_them(value, text):
    assert calls.shown(pf, value) == text


def test_pages_and_functions_that_are_named_exist():
    assert all((tried.ROOT / "docs" / f"{name}.md").is_file() for name in tried.GUIDES)
    assert set(tried.WITHOUT_FACTS) <= {path for path, entry in names.inventory(pf).items() if entry.kind == "function"}


def test_the_reference_has_the_lines():
    entry = names.Entry("pyflame.f", types.FunctionType((lambda x: x).__code__, {}))
    text = python_reference.entry_text(entry, {}, {"pyflame.f": ["Shapes, for example: `[1] -> [1]`."]})
    assert "Found by calling it:\n\n- Shapes, for example: `[1] -> [1]`." in text


def test_the_pages_of_examples_are_there():
    pages = {p.stem for p in tried.example_pages()}
    assert len(pages) > 30 and not pages & tried.PAGES_LEFT_OUT and tried.PAGES_LEFT_OUT <= {p.stem for p in (tried.ROOT / "docs" / "examples").glob("*.md")}


def test_a_layer_names_its_function():
    named = {cls: python_reference.function_of(getattr(pf.nn, cls)) for cls in ("MaxPool2d", "BCEWithLogitsLoss", "Sequential", "SmoothL1Loss")}
    assert named["MaxPool2d"] == "nn.functional.max_pool2d" and named["Sequential"] is None and named["SmoothL1Loss"] == "nn.functional.smooth_l1_loss"
    assert named["BCEWithLogitsLoss"] == "nn.functional.binary_cross_entropy_with_logits"
    assert python_reference.function_of(pf.relu) is None
