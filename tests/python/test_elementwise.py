"""pf.elementwise: formulas of scalars become functions of tensors."""
import math
from math import tanh

import numpy as np
import pytest

import pyflame as pf
from pyflame import exp

X, Y = pf.tensor([[-1.5, 0.0, 2.0], [0.5, -3.0, 1.0]]), pf.tensor([2.0, 3.0, 4.0])
RATE = 0.25


def test_text_takes_its_arguments_in_the_order_of_their_first_use():
    f = pf.elementwise("a * x + y")
    assert f.inputs == ["a", "x", "y"]
    assert f(2.0, X, Y).tolist() == (2.0 * X + Y).tolist()
    assert f(x=X, y=Y, a=2.0).tolist() == f(2.0, X, y=Y).tolist()
    assert pf.elementwise("a * x + y", "saxpy", inputs=["x", "y", "a"])(X, Y, 3).tolist() == (3 * X + Y).tolist()


@pytest.mark.parametrize("text, expected", [
    ("exp(-x * x) / (1 + abs(x))", lambda x: np.exp(-x * x) / (1 + abs(x))),
    ("x if x > 0 else 0.1 * x", lambda x: np.where(x > 0, x, np.float32(0.1) * x)),
    ("where(0 < x <= 1, x ** 2, -1)", lambda x: np.where((0 < x) & (x <= 1), x**2, -1)),
    ("max(min(x, 1), -1)", lambda x: np.clip(x, -1, 1)),
    ("max(x, 0.5, -x)", lambda x: np.maximum(np.maximum(x, np.float32(0.5)), -x)),
    ("clamp(x, -1, 1)", lambda x: np.clip(x, -1, 1)),
    ("1.0 if x > 1 or not x > -1 else 0.0", lambda x: np.where((x > 1) | ~(x > -1), 1.0, 0.0)),
    ("x // 2 + x % 2", lambda x: x // 2 + x % 2),
    ("sin(pi * x)", lambda x: np.sin(np.float32(math.pi) * x)),
    ("atan2(x, 2)", lambda x: np.arctan2(x, np.float32(2))),
    ("sqrt(2) * x", lambda x: np.float32(math.sqrt(2)) * x),
    ("maximum(x, 0.5)", lambda x: np.maximum(x, np.float32(0.5))),
    ("isnan(x / x) and x == 0", lambda x: x == 0),
])
def test_values(text, expected):
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(pf.elementwise(text)(X).numpy(), expected(X.numpy()), rtol=1e-5, atol=1e-6)


def test_every_known_function_exists_and_takes_tensors_and_numbers():
    from pyflame._elementwise_text import FUNCTIONS

    numbers = {"clamp": 3, "lerp": 3, "where": 3, **dict.fromkeys("atan2 copysign fmod heaviside hypot logaddexp logical_and logical_or logical_xor maximum minimum pow remainder xlogy".split(), 2)}
    x = pf.tensor([0.25, 0.5])
    for name in FUNCTIONS:
        count = numbers.get(name, 1)
        arguments = ["x", "a", "b"][:count]
        f = pf.elementwise(f"{name}({', '.join(arguments)}) + 0 * x", inputs=["x", "a", "b"])
        condition = x > 0.3 if name == "where" else x
        want = getattr(pf, name)(condition, *(pf.full((2,), v) for v in (0.5, 0.75)[:count - 1])) + 0 * x
        g = pf.elementwise(f"{name}({', '.join(['c', 'a', 'b'][:count])}) + 0 * x", inputs=["c", "x", "a", "b"])
        np.testing.assert_allclose(g(condition, x, 0.5, 0.75).numpy(), want.numpy(), rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(f(x, x, x).numpy(), f(x, x.clone(), x.clone()).numpy(), err_msg=name)
        alone = pf.elementwise(f"{name}({', '.join(['0.25', '0.5', '0.75'][:count])}) + x")  # numbers alone
        first = pf.tensor(0.25) > 0 if name == "where" else pf.tensor(0.25)
        np.testing.assert_allclose(alone(x).numpy(), (getattr(pf, name)(first, *(pf.tensor(v) for v in (0.5, 0.75)[:count - 1])) + x).numpy(), rtol=1e-6, err_msg=name)


def test_functions():
    here = 3.0
    assert pf.elementwise(lambda x, a=2.0: a * x + here)(X).tolist() == (2.0 * X + 3.0).tolist()
    assert pf.elementwise(lambda x, a=2.0: a * x + here)(X, a=5).tolist() == (5 * X + 3.0).tolist()
    f, g = pf.elementwise(lambda x: x + 1), pf.elementwise(lambda x: x - 1)
    assert (f(X) - g(X) == 2).all()
    f, g = pf.elementwise(lambda x: here * x + 1), pf.elementwise(lambda x: here * x - 1)  # with the same names and numbers
    assert (f(X) - g(X) == 2).all() and g.text == "here * x - 1"
    assert pf.elementwise(lambda x: tanh(x) + exp(x))(X).tolist() == (pf.tanh(X) + pf.exp(X)).tolist()
    named = dict(a=pf.elementwise(lambda x: x * 2),
                 b=pf.elementwise(lambda x: x * 4, "four"))
    assert named["b"](X).tolist() == (2 * named["a"](X)).tolist()
    assert pf.elementwise(
        lambda x: x +
        x * here)(X).tolist() == (X + 3 * X).tolist()
    many = [pf.elementwise(
        lambda x, y: (x
                      if x > y
                      else pf.exp(y) * math.pi)
    ), 1]
    np.testing.assert_allclose(many[0](X, Y).numpy(), np.where(X.numpy() > Y.numpy(), X.numpy(), np.exp(Y.numpy()) * math.pi), rtol=1e-5)

    def smooth(x, y):
        """A step."""
        d = math.tanh(x - y)
        return RATE * d * d

    h = pf.elementwise(smooth)
    assert h.name == "smooth" and h.text == "d = math.tanh(x - y); return RATE * d * d"
    np.testing.assert_allclose(h(X, Y).numpy(), RATE * np.tanh(X.numpy() - Y.numpy()) ** 2, rtol=1e-5)
    assert repr(pf.elementwise("x+1", "more")) == "pyflame.elementwise(more(x) = x + 1)"


def test_several_results():
    a, b = pf.elementwise("x + y, x - y")(X, Y)
    assert a.tolist() == (X + Y).tolist() and b.tolist() == (X - Y).tolist()


def test_results_have_the_shape_of_all_arguments():
    assert pf.elementwise("0 * pi + y", inputs=["x", "y"])(X, Y).shape == (2, 3)
    assert pf.elementwise("1.5 if a else 0.5", inputs=["x", "a"])(X, True).tolist() == [[1.5] * 3] * 2


@pytest.mark.parametrize("text, dtypes, expected", [
    ("2 * x + 0.5", [pf.float16], pf.float16),
    ("2 * x + 0.5", [pf.int32], pf.float32),
    ("2 * x", [pf.int8], pf.int8),
    ("x / 2", [pf.int64], pf.float32),
    ("x + y", [pf.float16, pf.float32], pf.float32),
    ("x + y", [pf.bfloat16, pf.float16], pf.float32),
    ("maximum(x, 0.5)", [pf.bfloat16], pf.bfloat16),
    ("maximum(x, 0.5)", [pf.int32], pf.float32),
    ("maximum(x, 1)", [pf.float16], pf.float16),
    ("sqrt(2) * x", [pf.float16], pf.float16),
    ("x if x > 0 else 0", [pf.float64], pf.float64),
    ("x > 0 and x < 2", [pf.float32], pf.bool_),
    ("exp(x)", [pf.int32], pf.float32),
])
def test_dtypes_are_promoted_as_by_ops(text, dtypes, expected):
    assert pf.elementwise(text)(*(pf.ones(3, dtype=d) for d in dtypes)).dtype == expected


def test_numbers_of_numpy_are_numbers():
    f = pf.elementwise("a * x")
    assert f(np.float32(0.5), pf.ones(2, dtype=pf.float16)).dtype == pf.float16 and f(np.int64(3), X).tolist() == (3 * X).tolist()


def test_gradients():
    x, y = pf.tensor([0.5, -1.0], requires_grad=True), pf.tensor(2.0, requires_grad=True)
    pf.elementwise(lambda x, y: y * pf.exp(x) if x > 0 else x * y * y)(x, y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [2 * math.exp(0.5), 4.0], rtol=1e-6)
    np.testing.assert_allclose(y.grad.item(), math.exp(0.5) - 4.0, rtol=1e-5)


def if_statement(x):
    if x > 0:
        return x
    return -x


def no_result(x):
    y = x  # noqa: F841


@pytest.mark.parametrize("make, kind, message", [
    (lambda: pf.elementwise("a * x +"), SyntaxError, "elementwise: the text is no expression; got 'a \\* x \\+'"),
    (lambda: pf.elementwise("y = 2 * x"), SyntaxError, "the text is no expression"),
    (lambda: pf.elementwise("1 + 2"), ValueError, "the formula has no arguments"),
    (lambda: pf.elementwise("x @ y", "f"), NotImplementedError, "f: an operator has no meaning for elements; got x @ y"),
    (lambda: pf.elementwise("softmax(x)"), NotImplementedError, r"softmax is no function of elements that is known here; got softmax\(x\)"),
    (lambda: pf.elementwise("x.sum()"), NotImplementedError, "x.sum is no function of elements"),
    (lambda: pf.elementwise("x[0]"), NotImplementedError, r"a part without meaning for elements \(Subscript\); got x\[0\]"),
    (lambda: pf.elementwise("x.shape"), NotImplementedError, "an attribute is no constant of a module; got x.shape"),
    (lambda: pf.elementwise("x + 'a'"), NotImplementedError, "a constant is no number; got 'a'"),
    (lambda: pf.elementwise("x is y"), NotImplementedError, "a comparison has no meaning for elements"),
    (lambda: pf.elementwise("max(x)"), NotImplementedError, r"max needs two values or more; got max\(x\)"),
    (lambda: pf.elementwise("clamp(*x)"), NotImplementedError, "arguments with a star"),
    (lambda: pf.elementwise("__import__('os').system('true') + x"), NotImplementedError, "is no function of elements"),
    (lambda: pf.elementwise("x + b", inputs="x"), NameError, "the formula has an unknown name; got b"),
    (lambda: pf.elementwise("x", inputs=["x", "x"]), ValueError, "the names of the arguments are wrong; got 'x'"),
    (lambda: pf.elementwise("x", "a b"), ValueError, "the name is no identifier; got 'a b'; expected letters, digits and _; hint: inputs= names the arguments"),
    (lambda: pf.elementwise(3), TypeError, "elementwise: no formula; got int"),
    (lambda: pf.elementwise(lambda: 1), ValueError, "the function has no arguments"),
    (lambda: pf.elementwise(lambda *x: 1), NotImplementedError, r"a function of any number of arguments has no formula; got \*x"),
    (lambda: pf.elementwise(lambda x: x + Y), NotImplementedError, "a name from outside is no number but Tensor; got Y; .* hint: make it an argument"),
    (lambda: pf.elementwise(lambda x: x + absent), NameError, "unknown name; got absent"),  # noqa: F821
    (lambda: pf.elementwise(lambda x: pf.nn.functional.relu(x)), NotImplementedError, "pf.nn.functional.relu is no function of elements"),
    (lambda: pf.elementwise(lambda x: x, inputs=["x"]), TypeError, "a function names its arguments itself"),
    (lambda: pf.elementwise(if_statement), NotImplementedError, "if_statement: a statement is no assignment to a name; got if x > 0"),
    (lambda: pf.elementwise(no_result), NotImplementedError, "no_result: the function does not end with a result"),
    (lambda: pf.elementwise(eval("lambda x: x")), ValueError, "the source of the function cannot be read; .* hint: write the formula as text"),
    (lambda: pf.elementwise(math.sin), ValueError, "the function has no Python source"),
])
def test_errors_of_formulas(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("call, message", [
    (lambda f: f(X), "saxpy: arguments are missing; got none for x, y; expected a, x, y"),
    (lambda f: f(1, X, Y, 2), "saxpy: there are too many arguments; got 4"),
    (lambda f: f(1, X, Y, a=2), "saxpy: an argument is given twice; got a"),
    (lambda f: f(1, X, Y, b=2), "saxpy: an argument is unknown; got b"),
    (lambda f: f(1, [1.0], Y), "saxpy: x is neither a tensor nor a number; got list"),
    (lambda f: f(1, 2, 3), "saxpy: there is no tensor; got numbers only"),
])
def test_errors_of_calls(call, message):
    with pytest.raises(TypeError, match=message):
        call(pf.elementwise("a * x + y", "saxpy"))


@pytest.mark.parametrize("name", ["fmax", "fmin", "hypot", "logaddexp"])
def test_of_a_tensor_and_a_number(name):
    function = getattr(pf, name)
    for x, number in ((pf.tensor([1.0, -3.0, float("nan"), 5.0]), 2.0), (pf.tensor([1.0, 7.0], dtype=pf.float16), 2), (pf.tensor([3, 9]), 2.5)):
        want = function(x, pf.full((), number, dtype=pf.result_type(x, number)))
        for got in (function(x, number), function(number, x), getattr(x, name)(number)):
            assert got.dtype == want.dtype and np.array_equal(got.numpy(), want.numpy(), equal_nan=True)
    assert pf.fmax(pf.tensor([1.0, float("nan")]), 2.0).tolist() == [2, 2] and pf.hypot(3.0, pf.tensor([4.0])).tolist() == [5]
    for arguments, text in (((1.0, 2.0), "got float and float"), ((pf.ones(2), "x"), "got Tensor and str"), ((None, pf.ones(2)), "got NoneType and Tensor")):
        with pytest.raises(TypeError, match=f"^{name}: the arguments do not fit; {text}; expected two tensors, or a tensor and a number"):
            function(*arguments)


def test_differences_of_unsigned_integers_do_not_wrap():
    low, high = pf.tensor([5], dtype=pf.uint8), pf.tensor([2], dtype=pf.uint8)
    for weight in (0.3, pf.tensor(0.3), pf.tensor([0.3])):
        np.testing.assert_allclose(pf.lerp(low, high, weight).numpy(), [4.1], rtol=1e-6)
        np.testing.assert_allclose(pf.lerp(high, low, weight).numpy(), [2.9], rtol=1e-6)
    assert pf.lerp(low, high, pf.tensor(0.5, dtype=pf.float64)).dtype == pf.float64 and pf.lerp(low, high, 1).dtype == pf.uint8
    assert pf.special.shifted_chebyshev_polynomial_t(pf.tensor([0, 1], dtype=pf.uint8), 3).tolist() == [-1.0, 1.0]
    assert pf.special.shifted_chebyshev_polynomial_u(pf.tensor([0], dtype=pf.uint8), pf.tensor(3)).tolist() == [-4.0]


@pytest.mark.parametrize("op", [pf.xlogy, pf.copysign, pf.ldexp])
def test_compositions_promote_dtypes_once(op):
    assert op(pf.ones(2), pf.tensor(1.0, dtype=pf.float64)).dtype == pf.float32
    assert op(pf.ones(2, dtype=pf.float16), pf.tensor([1, 0], dtype=pf.int8)).dtype == pf.float16
    assert op(pf.arange(2), pf.ones(2, dtype=pf.float16)).dtype == pf.float16
    assert op(pf.arange(2), pf.tensor([1, 2])).dtype == pf.float32
    assert op(pf.arange(2), pf.tensor(1.5, dtype=pf.float64)).dtype == pf.float64


def test_compositions_compute_in_the_dtype_of_the_result():
    assert pf.xlogy(pf.ones(1), pf.tensor([2.0], dtype=pf.float16)).item() == np.log(np.float32(2))
    assert pf.ldexp(pf.tensor(0.1, dtype=pf.float64), pf.tensor([1], dtype=pf.int8)).item() == 0.2
    assert pf.ldexp(pf.tensor([2.0**-10], dtype=pf.float16), pf.tensor([20])).item() == 1024.0


@pytest.mark.parametrize("tolerance", [{"rtol": -1}, {"atol": -1}])
def test_tolerances_are_not_negative(tolerance):
    with pytest.raises(ValueError, match="isclose: a negative tolerance; got"):
        pf.isclose(pf.ones(1), pf.ones(1), **tolerance)


@pytest.mark.parametrize("repeat", [lambda x: x.repeat(-1, 2), lambda x: x.tile(2, -1), lambda x: pf.tile(x, (-1,))])
def test_repeats_are_not_negative(repeat):
    with pytest.raises(ValueError, match=r"(repeat|tile): a negative number of repeats; got"):
        repeat(pf.ones(2, 3))


def test_single_numbers_do_not_widen_a_block_diagonal():
    assert pf.block_diag(pf.ones(1, 2, dtype=pf.int32), pf.tensor(5)).dtype == pf.int32
    assert pf.block_diag(pf.ones(2, dtype=pf.int32), pf.tensor(0.5)).tolist() == [[1, 1, 0], [0, 0, 0.5]]
    assert pf.block_diag(pf.tensor(1), pf.tensor(0.5)).dtype == pf.block_diag().dtype == pf.float32


def test_tensors_without_dims_stand_for_numbers():
    three = pf.tensor(3)
    assert pf.tensor([-1.0, 5.0]).clamp(min=0, max=three).tolist() == [0.0, 3.0] and pf.clamp(pf.tensor(5.0), min=pf.tensor(0.0), max=1).item() == 1.0
    assert pf.add(pf.ones(1), pf.ones(1), alpha=three).tolist() == [4.0] and pf.ones(2, 3).sum(dim=pf.tensor(0)).tolist() == [2.0, 2.0, 2.0]
    for wrong in (lambda: pf.ones(2).clamp(min=0, max=pf.tensor(1.0, requires_grad=True)), lambda: pf.ones(2).sum(dim=pf.tensor(0.5))):
        with pytest.raises(TypeError, match="wrong arguments; got .*Tensor"):
            wrong()
