"""Small things in which programs written for PyTorch rely on PyTorch's behaviour."""
import pickle

import numpy as np
import pytest

import pyflame as pf


def test_constructor_takes_sizes_or_data():
    assert pf.Tensor(3).shape == (3,) and pf.Tensor(2, 3).shape == (2, 3) and pf.Tensor().shape == (0,)
    assert pf.Tensor(3).dtype == pf.Tensor([1, 2]).dtype == pf.Tensor(np.arange(3)).dtype == pf.float32
    assert pf.Tensor([1, 2]).tolist() == [1, 2] and pf.Tensor((2, 3)).tolist() == [2, 3] and pf.Tensor(pf.ones(2, 3).shape).shape == (2, 3)
    x = pf.arange(3)
    assert pf.Tensor(x).is_same(x)
    for wrong in (3.5, True, "a", None):
        with pytest.raises(TypeError):
            pf.Tensor(wrong)


def test_new():
    x = pf.arange(3)
    assert x.new(2, 2).shape == (2, 2) and x.new([1, 2]).tolist() == [1, 2] and x.new().shape == (0,) and x.new((2, 3)).tolist() == [2, 3]
    assert x.new(2).dtype == x.new([1.5]).dtype == pf.int64 and x.new(x.shape).shape == (3,)


def test_shape_is_a_size():
    s = pf.zeros(2, 3, 4).shape
    assert isinstance(s, pf.Size) and isinstance(s, tuple) and s == (2, 3, 4) and s.numel() == 24 and hash(s) == hash((2, 3, 4))
    assert type(s[1:]) is type(s[:]) is type(s + (5,)) is type(s * 2) is pf.Size and s[1:] == (3, 4) and s + (5,) == (2, 3, 4, 5) and s[-1] == 4
    assert pf.Size([1, 2]).numel() == 2 and pf.Size().numel() == 1 and pf.zeros(2, 3).size() == pf.Size((2, 3)) and repr(s) == "(2, 3, 4)"
    assert pickle.loads(pickle.dumps(s)) == s and type(pickle.loads(pickle.dumps(s))) is pf.Size
    assert pf.zeros(s).shape == s and pf.zeros(24).view(s).shape == s
    with pytest.raises(TypeError):
        s + 3


def test_a_tensor_and_an_array_give_a_tensor():
    x, a = pf.tensor([1.0, 2.0, 3.0]), np.arange(3, dtype=np.float32)
    assert (x * a).tolist() == [0, 2, 6] and (x - a).tolist() == [1, 1, 1] and (x**a).tolist() == [1, 2, 9] and (x // (a + 1)).tolist() == [1, 1, 1]
    assert (x @ a).item() == 8 and (x == a + 1).tolist() == [True] * 3 and (x < a).tolist() == [False] * 3 and ((x > 1) & (a > 1)).tolist() == [False, False, True]
    assert (x * a.astype(np.float64)).dtype == pf.float64 and (pf.arange(3) * a.astype(np.int64)).dtype == pf.int64
    x.requires_grad_()
    (x * a).sum().backward()
    assert x.grad.tolist() == a.tolist()
    assert type(a * x.detach()) is pf.Tensor and (a * x.detach()).tolist() == [0, 2, 6]
    for wrong in (lambda: a @ x.detach(), lambda: x @ 3, lambda: x * "a", lambda: x + [1, 2, 3]):
        with pytest.raises(TypeError):
            wrong()


def test_an_array_in_place_keeps_the_tensor():
    x, a = pf.ones(3), np.arange(3.0)
    same = x
    x *= a
    x += a
    x **= np.float32(2) * np.ones(3)
    assert x is same and x.dtype == pf.float32 and x.tolist() == [0, 4, 16]


def test_type_has_the_names_of_pytorch():
    x = pf.zeros(2)
    assert x.type() == "torch.FloatTensor" and x.long().type() == "torch.LongTensor" and (x > 0).type() == "torch.BoolTensor"
    assert x.type("torch.LongTensor").dtype == x.type(pf.int64).dtype == x.type("int64").dtype == pf.int64 and x.type(x.type()) is x


def test_parts_are_tuples():
    x = pf.arange(5)
    for parts in (x.split(2), pf.split(x, [2, 3]), x.chunk(2), pf.chunk(x, 2), x.unbind()):
        assert type(parts) is tuple
    assert [p.tolist() for p in x.split(2)] == [[0, 1], [2, 3], [4]]


def test_wrong_shapes_are_value_and_runtime_errors():
    for wrong in (lambda: pf.zeros(2) + pf.zeros(3), lambda: pf.zeros(2, 3) @ pf.zeros(2, 3), lambda: pf.zeros(4).view(3)):
        with pytest.raises(ValueError) as caught:
            wrong()
        assert isinstance(caught.value, RuntimeError) and type(caught.value) is pf.ArgumentError
    assert type(pickle.loads(pickle.dumps(caught.value))) is pf.ArgumentError


def test_any_and_all_over_no_dims_and_of_bytes():
    x = pf.tensor([[2, 0], [1, 3]])
    for reduce in (pf.any, pf.all, pf.Tensor.any, pf.Tensor.all):
        for dim in ((), []):
            assert reduce(x, dim).tolist() == reduce(x, dim, True).tolist() == [[True, False], [True, True]]
        bytes_ = x.to(pf.uint8)
        assert reduce(x).dtype == pf.bool and reduce(bytes_).dtype == reduce(bytes_, 0).dtype == reduce(bytes_, ()).dtype == pf.uint8
        assert reduce(bytes_, ()).tolist() == [[1, 0], [1, 1]]
    assert pf.any(x, 0).tolist() == [True, True] and pf.all(x.to(pf.uint8), axis=0).tolist() == [1, 0] and x.all(dim=(0, 1)).item() is False


def test_keywords_for_sizes():
    x = pf.arange(6.0).reshape(2, 3)
    for make in (pf.zeros, pf.ones, pf.empty, pf.rand, pf.randn, x.new_zeros, x.new_ones, x.new_empty):
        assert make(size=(2, 1)).shape == (2, 1) and make(size=(3,), dtype=pf.float64).dtype == pf.float64
    assert x.view(size=(3, 2)).shape == x.reshape(shape=(3, 2)).shape == x.permute(dims=(1, 0)).shape == pf.permute(x, dims=(1, 0)).shape == (3, 2)
    assert x[:1].expand(size=(4, 3)).shape == x[:1].repeat(repeats=(4, 1)).shape == (4, 3)
    assert x.pow(exponent=2).tolist() == pf.pow(x, exponent=2).tolist() == pf.pow(input=x, exponent=2).tolist() == (x * x).tolist()
    assert pf.dropout(x, p=0.5, train=False).tolist() == x.tolist()
    for wrong in (lambda: pf.zeros(2, size=(2,)), lambda: x.pow(exponents=2), lambda: x.view(sizes=(6,))):
        with pytest.raises(TypeError):
            wrong()


def test_gradient_of_an_extreme_element_that_is_nan():
    nan = float("nan")
    for extreme in (pf.max, pf.min, pf.Tensor.max, pf.Tensor.min):
        for values, want in (([1.0, nan, 3.0], [0, 1, 0]), ([nan, 2.0, nan, 1.0], [0.5, 0, 0.5, 0]), ([[5.0, 5.0]], [[0.5, 0.5]])):
            x = pf.tensor(values, requires_grad=True)
            (extreme(x)).backward()
            assert x.grad.tolist() == want
    for larger in (pf.fmax, pf.fmin):  # of two NaN the first
        x, y = pf.tensor([nan, nan, 1.0], requires_grad=True), pf.tensor([nan, 2.0, nan], requires_grad=True)
        larger(x, y).sum().backward()
        assert x.grad.tolist() == [1, 0, 1] and y.grad.tolist() == [0, 1, 0]
    assert pf.max(pf.tensor([1.0, 4.0]), other=pf.tensor([2.0, 3.0])).tolist() == [2, 4] and pf.tensor([3, 5]).max(axis=0).indices.item() == 1
    for wrong in (lambda: pf.max(3), lambda: pf.ones(2, requires_grad=True).max(keepdim=True)):
        with pytest.raises(TypeError):
            wrong()
    x = pf.tensor([1.0, 4.0], requires_grad=True)
    first, = pf.autograd.grad(x.max() ** 3, x, create_graph=True)
    assert pf.autograd.grad(first.sum(), x)[0].tolist() == [0, 24]


def test_older_orders_of_the_arguments_of_var():
    x = pf.tensor([[1.0, 3.0], [2.0, 6.0]])
    assert x.var(1, False).tolist() == x.var(1, unbiased=False).tolist() == x.var(1, correction=0).tolist() == x.var(axis=1, correction=0).tolist() == [1, 4]
    assert x.var(1).tolist() == x.var(1, True).tolist() == [2, 8] and x.var(1, True, True).tolist() == pf.var_mean(x, 1, True, True)[0].tolist() == [[2], [8]]
    assert x.var(False).item() == pf.var(x, unbiased=False).item() == 3.5 and pf.std(x, False).item() == np.float32(3.5**0.5)
