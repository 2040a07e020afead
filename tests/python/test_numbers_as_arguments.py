"""Tensors without dims and NumPy's scalars stand for numbers; numbers have the dtypes that PyTorch gives them."""
import math

import numpy as np
import pyflame as pf
import pytest
from pyflame.nn import functional as F


@pytest.mark.parametrize(("numbers", "dtype"), [
    ([np.float64(1)], "float64"), ([np.int32(1), np.int32(2)], "int32"), ([np.float32(1), 2.0], "float32"), ([np.int8(1), np.float16(2)], "float16"),
    ([[np.float64(1)], [1]], "float64"), ([np.float16(1), 3], "float16"), ([np.float16(1), np.float64(3)], "float64"), ([np.uint8(1), -3], "int64"), ([np.bool_(True)], "bool"),
    ([np.complex64(1)], "complex64"), ([1, 2.0], "float32"), ([1, True], "int64"), ([True], "bool"), ([], "float32")])
def test_a_list_has_the_dtype_of_its_numpy_scalars(numbers, dtype):
    t = pf.tensor(numbers)
    assert t.dtype.name == dtype and t.tolist() == numbers
    assert pf.tensor(numbers, dtype=pf.float64 if dtype != "complex64" else pf.complex128).dtype != pf.float32


def test_a_list_has_the_dtype_of_its_tensors():
    assert pf.tensor([pf.tensor(1.0, dtype=pf.float64), 1]).dtype == pf.float64


def test_tensors_without_dims_stand_for_numbers_by_position():
    x, half, two = pf.tensor([0.2, 0.9]), pf.tensor(0.5), pf.tensor(2)
    np.testing.assert_array_equal(pf.clamp(x, 0, half).numpy(), np.float32([0.2, 0.5]))
    np.testing.assert_array_equal(x.clamp(0, half).numpy(), np.float32([0.2, 0.5]))
    assert pf.ones(2, 3).sum(pf.tensor(1)).tolist() == [3, 3]
    assert pf.full_like(x, two).tolist() == [2, 2]
    assert [p.tolist() for p in pf.arange(4).split(two)] == [[0, 1], [2, 3]] and [p.tolist() for p in pf.split(pf.arange(4), two)] == [[0, 1], [2, 3]]
    assert F.leaky_relu(-x, half).tolist() == pytest.approx([-0.1, -0.45])


def test_tensors_that_are_no_numbers_are_still_refused():
    for wrong in (lambda: pf.ones(2).sum(pf.ones(2)), lambda: pf.full_like(pf.ones(2), pf.ones(1, 2)), lambda: pf.clamp(pf.ones(2), "a", pf.tensor(1.0)), lambda: pf.arange(4).split(pf.tensor(1.5))):
        with pytest.raises(TypeError):
            wrong()


def test_linspace_between_complex_ends():
    np.testing.assert_array_equal(pf.linspace(1 + 1j, 2, 3).numpy(), np.complex64([1 + 1j, 1.5 + 0.5j, 2]))
    assert pf.linspace(0j, 1, 1, dtype=pf.complex128).dtype == pf.complex128
    with pytest.raises(TypeError, match="linspace: complex ends with a real dtype; got float32"):
        pf.linspace(0j, 1, 3, dtype=pf.float32)


def test_alpha_has_the_dtype_of_the_result():
    true = pf.tensor([True])
    assert pf.add(true, true, alpha=2).dtype == pf.bool and pf.add(true, true, alpha=1).tolist() == [True] and pf.add(~true, true, alpha=0).tolist() == [False]
    assert pf.add(pf.tensor([1], dtype=pf.uint8), true, alpha=2).dtype == pf.uint8
    assert pf.add(pf.ones(1, dtype=pf.float16), pf.tensor([2]), alpha=0.5).dtype == pf.float16
    for add in (lambda: pf.add(pf.tensor([1]), pf.tensor([1]), alpha=1.5), lambda: pf.tensor([1]).add_(1, alpha=1.5), lambda: pf.sub(pf.tensor([1]), 1, alpha=0.5)):
        with pytest.raises(RuntimeError, match=r"(add|sub): alpha does not fit integers; got [01].5; expected an integer"):
            add()
    w = pf.ones(2, requires_grad=True)
    pf.add(pf.ones(2, dtype=pf.float64), w, alpha=3).sum().backward()
    assert w.grad.tolist() == [3, 3] and w.grad.dtype == pf.float32


@pytest.mark.parametrize("rounding", ["trunc", "floor"])
def test_rounded_quotients_have_the_gradient_zero_also_at_infinities(rounding):
    x, y = pf.tensor([math.inf, 1.0, -math.inf], requires_grad=True), pf.tensor([2.0, 0.0, 3.0], requires_grad=True)
    z = pf.div(x, y, rounding_mode=rounding)
    z.sum().backward()
    assert x.grad.tolist() == [0, 0, 0] and y.grad.tolist() == [0, 0, 0]


def test_places_of_a_split_have_two_words():
    x = pf.arange(4)
    for parts in (pf.tensor_split(x, indices=(1,)), x.tensor_split(indices=[1]), pf.hsplit(x, indices=(1,)), x.hsplit(indices=(1,))):
        assert [p.tolist() for p in parts] == [[0], [1, 2, 3]]
    assert [p.tolist() for p in x.tensor_split(sections=2)] == [p.tolist() for p in x.hsplit(sections=2)] == [[0, 1], [2, 3]]
    assert [p.shape for p in pf.vsplit(pf.ones(4, 2), sections=2)] == [(2, 2)] * 2 and [p.shape for p in pf.dsplit(pf.ones(1, 1, 4), indices=[1])] == [(1, 1, 1), (1, 1, 3)]
    for split in (pf.tensor_split, pf.hsplit, pf.vsplit, pf.dsplit):
        for wrong in ({}, {"sections": 2, "indices": [1]}):
            with pytest.raises(TypeError, match=f"{split.__name__}: no single number of parts"):
                split(pf.ones(4, 4, 4), **wrong)


def test_sizes_are_integers():
    assert pf.Size([1, np.int64(2), pf.tensor(3)]) == (1, 2, 3) and type(pf.Size([np.int64(2)])[0]) is int and pf.Size(()) == () and pf.Size() == ()
    for wrong in (["a"], [1.5], [None]):
        with pytest.raises(TypeError, match="Size: not a size; got .* at place 0; expected integers"):
            pf.Size(wrong)


def test_the_slope_beside_an_infinity_does_not_read_it():
    np.testing.assert_array_equal(pf.gradient(pf.tensor([1.0, 2.0, math.inf, 3.0, 4.0]))[0].numpy(), np.float32([1, math.inf, 0.5, -math.inf, 1]))
    assert pf.gradient(pf.tensor([1.0, 4.0, 9.0]), spacing=2.0)[0].tolist() == [1.5, 2, 2.5]


def test_a_copy_of_a_view_takes_any_strides():
    assert pf.view_copy(pf.arange(6).view(2, 3).t(), (6,)).tolist() == [0, 3, 1, 4, 2, 5]
