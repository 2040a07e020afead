"""What the docstrings of elementwise functions and of their in-place methods say about dtypes and errors is what the calls do."""
import re

import pytest

import pyflame

VALUES = {
    "bools": lambda: pyflame.tensor([True, False]),
    "integers": lambda: pyflame.tensor([1, 1]),
    "floats": lambda: pyflame.tensor([0.5, 0.25]),
    "complex": lambda: pyflame.tensor([0.5 + 0.25j, 0.25 + 0j]),
}
UNARY = """
neg abs sign sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma
digamma sigmoid relu silu floor ceil round bitwise_not logical_not square i0 trunc sgn
""".split()
IN_PLACE = [*(name for name in UNARY if name != "round"), "conj_physical"]  # round_ is written in Python
BINARY = """
add sub mul div floor_divide remainder pow atan2 igamma igammac gcd lcm bitwise_and bitwise_or bitwise_xor maximum minimum eq ne lt le gt ge logical_and
logical_or logical_xor
""".split()


def refused(doc):
    """The kinds of dtypes for which a docstring promises a TypeError."""
    text = " ".join(re.findall(r"TypeError for ([^.]*)\.", doc))
    kinds = {kind for kind in VALUES if re.search(rf"\b{kind}\b", text)}
    return kinds | ({"bools"} if re.search(r"\bbool\b", text) else set())


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except (TypeError, RuntimeError) as error:
        return type(error)


@pytest.mark.parametrize("name", UNARY)
def test_a_function_refuses_what_its_docstring_says(name):
    function = getattr(pyflame, name)
    raises = {kind for kind, make in VALUES.items() if outcome(function, make()) is TypeError}
    assert raises == refused(function.__doc__)


@pytest.mark.parametrize("name", UNARY)
def test_a_function_has_the_dtype_that_its_docstring_says(name):
    function = getattr(pyflame, name)
    dtype = outcome(function, VALUES["integers"]())
    if "Dtype: bool" in function.__doc__:
        assert dtype.dtype == pyflame.bool
    elif "become the default dtype" in function.__doc__:
        assert dtype.dtype == pyflame.float32
    else:
        assert dtype.dtype == pyflame.int64


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_in_place_method_refuses_what_its_docstring_says(name):
    doc = getattr(pyflame.Tensor, f"{name}_").__doc__
    method = lambda x: getattr(x, f"{name}_")()  # noqa: E731
    found = {kind: outcome(method, make()) for kind, make in VALUES.items()}
    assert {kind for kind, value in found.items() if value is TypeError} == refused(doc)
    assert (found["integers"] is RuntimeError) == ("RuntimeError for tensors of integers or bools" in doc)
    x = VALUES["integers" if name == "bitwise_not" else "floats"]()
    assert method(x) is x


@pytest.mark.parametrize("name", BINARY)
def test_an_in_place_method_of_two_operands_does_what_its_docstring_says(name):
    doc = getattr(pyflame.Tensor, f"{name}_").__doc__
    method = lambda x, y: getattr(x, f"{name}_")(y)  # noqa: E731
    integers, floats = VALUES["integers"], VALUES["floats"]
    assert (outcome(method, integers(), integers()) is RuntimeError) == ("RuntimeError for tensors of integers or bools" in doc)
    if "Integers" not in doc:
        assert (outcome(method, integers(), floats()) is RuntimeError) == ("of a higher kind" in doc)
    x = integers() if "Integers" in doc else floats()
    assert method(x, 1) is x
    with pytest.raises(ValueError):
        method(x, pyflame.ones(3, 2, dtype=x.dtype))


@pytest.mark.parametrize("name", ["exp_", "add_"])
def test_an_in_place_method_refuses_leaves_and_shared_elements(name):
    arguments = (1,) if name == "add_" else ()
    leaf = pyflame.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        getattr(leaf, name)(*arguments)
    with pyflame.no_grad():
        assert getattr(leaf, name)(*arguments) is leaf
    with pytest.raises(RuntimeError, match="share one memory location"):
        getattr(pyflame.ones(1).expand(2), name)(*arguments)
    doc = getattr(pyflame.Tensor, name).__doc__
    assert "a leaf that requires grad, except under no_grad()" in doc and "share one place in memory" in doc
