"""Compiled functions, and methods that hand their arguments on to another function, show their signature: in help() and to inspect.signature()."""
import inspect
import pathlib
import pydoc
import subprocess
import sys

import pytest

import pyflame as pf
from pyflame import _signatures, _tensor_methods
from pyflame.distributed.tensor import DTensor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "site"))
import names  # noqa: E402

IN_PLACE = [name for name in (*_tensor_methods._VIEWS, *_tensor_methods._IN_PLACE) if _signatures.is_forwarding(getattr(pf.Tensor, f"{name}_", None))]
UNARY = [name for name, value in vars(DTensor).items() if _signatures.is_forwarding(value) and name[0] != "_"]


@pytest.mark.parametrize("method, expected", [
    ("addmm_", "(self, mat1: 'Tensor', mat2: 'Tensor', *, beta: 'Number' = 1, alpha: 'Number' = 1) -> 'Tensor'"),
    ("clamp_", "(self, min: 'float | Tensor | None' = None, max: 'float | Tensor | None' = None) -> 'Tensor'"),
    ("divide_", "(self, other: 'Tensor | float', *, rounding_mode: 'str | None' = None) -> 'Tensor'"),
    ("leaky_relu_", "(self, negative_slope: 'float' = 0.01) -> 'Tensor'"),
    ("cumsum_", "(self, dim: 'int', dtype: 'dtype | str | None' = None) -> 'Tensor'"),
    ("transpose_", "(self, dim0: 'int', dim1: 'int') -> 'Tensor'"),
    ("t_", "(self) -> 'Tensor'"),
    ("fmod_", "(self, other: 'Tensor | float') -> 'Tensor'"),
])  # fmt: skip
def test_in_place(method, expected):
    assert str(inspect.signature(getattr(pf.Tensor, method))) == expected


def test_a_bound_method_has_no_self():
    assert list(inspect.signature(pf.zeros(2).lerp_).parameters) == ["end", "weight"]


def shown(function):
    return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()][1:]


@pytest.mark.parametrize("name", IN_PLACE)
def test_the_parameters_are_those_of_the_function(name):
    """Where the function is written in Python, Python itself says what they are."""
    sibling = getattr(pf.Tensor, name, None) or getattr(pf, name)
    found = shown(getattr(pf.Tensor, f"{name}_"))
    assert not any(kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for _, kind in found)
    if inspect.isfunction(sibling):
        assert found == shown(sibling)
    else:
        texts = [text for text, *_ in sibling.__nb_signature__]
        assert all(any(f"{parameter}:" in text for text in texts) for parameter, _ in found)
        assert len(found) == max(text.count(": ") for text in texts)


def test_what_programs_make():
    assert str(inspect.signature(pf.elementwise("a * x + y"))) == "(a: 'Operand', x: 'Operand', y: 'Operand') -> 'Any'"
    assert str(inspect.signature(pf.elementwise(lambda x, slope=0.5: slope * x))) == "(x: 'Operand', slope: 'Operand' = 0.5) -> 'Any'"
    two = pf.kernel("if (i < first_size) { first[i] = a * x[i]; second[i] = x[i]; }", "two", inputs="x", outputs=["first", "second"], scalars={"a": "float32"})
    assert str(inspect.signature(two)) == "(x: 'Tensor', /, *, a: 'float') -> 'tuple[Tensor, Tensor]'"
    assert "source" in inspect.signature(type(two)).parameters and "function" in inspect.signature(type(pf.elementwise("x"))).parameters


def test_how_many_there_are():
    assert len(IN_PLACE) > 50 and len(UNARY) > 35


@pytest.mark.parametrize("name", UNARY)
def test_methods_of_dtensor(name):
    signature = inspect.signature(getattr(DTensor, name))
    assert next(iter(signature.parameters)) == "self" and signature.return_annotation == "DTensor"
    assert not any(p.kind == p.VAR_POSITIONAL for p in signature.parameters.values())


def test_help():
    assert "addmm_(self, mat1: 'Tensor', mat2: 'Tensor', *, beta: 'Number' = 1" in pydoc.plain(pydoc.render_doc(pf.Tensor.addmm_))
    assert "clamp(self, min: 'float | Tensor | None' = None, max:" in pydoc.plain(pydoc.render_doc(DTensor.clamp))
    assert "constant(tensor: 'Tensor', val: 'Number')" in pydoc.plain(pydoc.render_doc(pf.nn.init.constant))


def test_help_of_a_compiled_method_has_its_signature_once():
    text = pydoc.plain(pydoc.render_doc(pf.Tensor.softmax))
    assert text.count("softmax(self, dim: ") == 1 and "exp(x - max)" in text
    assert pydoc.plain(pydoc.render_doc(pf.softmax)).count("softmax(input: ") == 1
    assert pydoc.plain(pydoc.render_doc(pf.zeros(2).softmax)).count("softmax(self, dim: ") == 1
    assert pf.Tensor.softmax.__name__ == "softmax"


def test_the_function_itself_is_found():
    """Tools that unwrap functions come to the one that is called, and its source."""
    found = inspect.unwrap(pf.Tensor.addmm_)
    assert found.__code__ is pf.Tensor.addmm_.__code__ and "def method(self" in inspect.getsource(pf.Tensor.addmm_)


def test_nothing_is_computed_before_somebody_asks():
    code = "import sys, pyflame; pyflame.Tensor.addmm_.__wrapped__; assert 'inspect' not in sys.modules; pyflame.Tensor.addmm_.__wrapped__.__signature__; assert 'inspect' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("function, expected", [
    (pf.zeros, "(*size, dtype: 'dtype | str | None' = None, device: 'device | str | None' = None, requires_grad: 'bool' = False) -> 'Tensor'"),
    (pf.softmax, "(input: 'Tensor', dim: 'int', dtype: 'dtype | str | None' = None) -> 'Tensor'"),
    (pf.Tensor.softmax, "(self, dim: 'int', dtype: 'dtype | str | None' = None) -> 'Tensor'"),
    (pf.zeros(2).softmax, "(dim: 'int', dtype: 'dtype | str | None' = None) -> 'Tensor'"),
    (pf.Tensor.reshape, "(self, *shape) -> 'Tensor'"),
    (pf.clamp, "(input: 'Tensor', min: 'float | Tensor | None' = None, max: 'float | Tensor | None' = None) -> 'Tensor'"),
    (pf.device, "(device: 'object | None' = None, index: 'int | None' = None, *, type: 'str | None' = None) -> 'None'"),
])  # fmt: skip
def test_compiled(function, expected):
    assert str(inspect.signature(function)) == expected


def test_a_compiled_function_of_several_forms_takes_each():
    signature = inspect.signature(pf.arange)
    for args in ((5,), (1, 5), (1, 5, 2)):
        assert list(signature.bind(*args, dtype=pf.int64).arguments)[-1] == "dtype"
    assert [p.name for p in signature.parameters.values()][:3] == ["start", "end", "step"]


def test_the_result_that_the_stub_knows():
    """C++ calls a tensor that is returned again an object."""
    if not (pathlib.Path(pf.__file__).parent / "_C.pyi").exists():
        pytest.skip("this build has no stub of the compiled module")
    assert inspect.signature(pf.Tensor.abs_).return_annotation == "Tensor"
    assert inspect.signature(pf.sort).return_annotation == "ValuesIndices"


def test_every_function_and_method_has_a_signature():
    without, count = [], 0
    for path, entry in names.inventory(pf).items():
        members = [(f"{path}.{name}", value) for name, value in entry.members.items() if not isinstance(value, property)]
        for name, value in [(path, entry.value)] * (entry.kind == "function") + members:
            count += 1
            try:
                inspect.signature(value)
            except ValueError:
                without.append(name)
    assert count > 2000 and not without, ", ".join(without)
