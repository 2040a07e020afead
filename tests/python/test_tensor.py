"""The Tensor class: making, indexing, operators, conversions, printing. NumPy is the truth."""
import copy
import operator
import pickle
import weakref

import numpy as np
import pytest

import pyflame as pf

FLOATS = [pf.float64, pf.float32, pf.float16, pf.bfloat16]
INTS = [pf.int64, pf.int32, pf.int16, pf.int8, pf.uint8]
NUMPY = {
    pf.float64: np.float64, pf.float32: np.float32, pf.float16: np.float16, pf.int64: np.int64, pf.int32: np.int32,
    pf.int16: np.int16, pf.int8: np.int8, pf.uint8: np.uint8, pf.bool: np.bool_,
}


def array(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# ---- making


@pytest.mark.parametrize(
    "data, dtype, shape",
    [(1, pf.int64, ()), (1.5, pf.float32, ()), (True, pf.bool, ()), ([1, 2], pf.int64, (2,)), ([1, 2.5], pf.float32, (2,)),
     ([True, False], pf.bool, (2,)), ([[1], [2]], pf.int64, (2, 1)), ([], pf.float32, (0,)), ([[], []], pf.float32, (2, 0)),
     ((1, 2), pf.int64, (2,)), (range(3), pf.int64, (3,)), ([True, 2], pf.int64, (2,))],
)
def test_tensor_infers_dtype_and_shape(data, dtype, shape):
    x = pf.tensor(data)
    assert x.dtype == dtype and x.shape == shape
    assert x.tolist() == np.array(data).tolist()


@pytest.mark.parametrize("dtype", list(NUMPY))
def test_tensor_keeps_numpy_dtype(dtype):
    a = np.arange(6).reshape(2, 3).astype(NUMPY[dtype])
    x = pf.tensor(a)
    assert x.dtype == dtype
    np.testing.assert_array_equal(x.numpy(), a)
    a[:] = 1
    assert x.tolist()[0][0] == (False if dtype == pf.bool else 0)  # a copy


def test_tensor_of_strided_and_scalar_arrays():
    a = array(4, 6)[::2, ::-3]
    np.testing.assert_array_equal(pf.tensor(a).numpy(), a)
    assert pf.tensor(np.float64(2.5)).dtype == pf.float64
    assert pf.tensor(np.int32(7)).item() == 7
    assert pf.tensor([np.float32(1), np.float32(2)]).tolist() == [1.0, 2.0]
    np.testing.assert_array_equal(pf.tensor([np.ones(2), np.zeros(2)]).numpy(), [[1, 1], [0, 0]])


def test_tensor_large_integers_are_exact():
    v = [2**53 + 1, -(2**63), 2**63 - 1]
    assert pf.tensor(v).tolist() == v


@pytest.mark.parametrize("given", ["float16", pf.float16, np.float16, np.dtype("float16"), "pyflame.float16"])
def test_dtype_spellings(given):
    assert pf.zeros(2, dtype=given).dtype is pf.float16


def test_dtype_objects():
    assert repr(pf.float32) == "pyflame.float32"
    assert pf.float is pf.float32 and pf.double is pf.float64 and pf.half is pf.float16 and pf.long is pf.int64 and pf.int is pf.int32
    assert pf.float32 == "float32" and pf.float32 != pf.float64 and pf.float32 != 3
    assert pickle.loads(pickle.dumps(pf.bfloat16)) is pf.bfloat16
    assert {pf.float32: 1}[pf.float32] == 1
    assert pf.float64.itemsize == 8 and pf.bfloat16.is_floating_point and not pf.int8.is_floating_point


@pytest.mark.parametrize("make, want", [
    (lambda: pf.zeros(2, 3), np.zeros((2, 3))), (lambda: pf.ones((2, 3)), np.ones((2, 3))), (lambda: pf.full((2,), 3), np.full(2, 3)),
    (lambda: pf.arange(5), np.arange(5)), (lambda: pf.arange(1, 7, 2), np.arange(1, 7, 2)), (lambda: pf.arange(3, 0, -1), np.arange(3, 0, -1)),
    (lambda: pf.arange(0, 1, 0.25), np.arange(0, 1, 0.25)), (lambda: pf.linspace(0, 1, 5), np.linspace(0, 1, 5)),
    (lambda: pf.eye(3), np.eye(3)), (lambda: pf.eye(2, 3), np.eye(2, 3)), (lambda: pf.zeros(()), np.zeros(())), (lambda: pf.zeros(0, 3), np.zeros((0, 3))),
])
def test_creation(make, want):
    x = make()
    assert x.shape == want.shape
    np.testing.assert_allclose(x.numpy(), want, rtol=1e-6)


def test_like_functions():
    x = pf.tensor([[1, 2]], dtype=pf.int32)
    assert pf.zeros_like(x).dtype == pf.int32 and pf.ones_like(x, dtype=pf.float64).dtype == pf.float64
    assert pf.full_like(x, 7).tolist() == [[7, 7]]
    assert x.new_zeros(3).dtype == pf.int32 and x.new_full((2,), 4).tolist() == [4, 4]
    assert pf.rand_like(pf.zeros(3)).shape == (3,)


def test_random_is_reproducible():
    pf.manual_seed(5)
    a, state = pf.randn(100).tolist(), pf.get_rng_state()
    b = pf.rand(100).tolist()
    pf.manual_seed(5)
    assert pf.randn(100).tolist() == a
    pf.set_rng_state(state)
    assert pf.rand(100).tolist() == b
    assert a != pf.randn(100).tolist()
    assert sorted(pf.randperm(50).tolist()) == list(range(50))
    r = pf.randint(3, 7, (200,)).tolist()
    assert set(r) == {3, 4, 5, 6} and pf.randint(2, (5,)).dtype == pf.int64


# ---- facts


def test_facts():
    x = pf.zeros(2, 3, 4, dtype=pf.float64)
    assert (x.ndim, x.dim(), x.numel(), x.element_size(), x.nbytes, x.itemsize) == (3, 3, 24, 8, 192, 8)
    assert x.size() == (2, 3, 4) and x.size(-1) == 4 and x.stride() == (12, 4, 1) and x.stride(0) == 12
    assert x.is_contiguous() and not x.transpose(0, 2).is_contiguous() and x[1].storage_offset() == 12
    assert len(x) == 2 and x.device == "cpu" and str(x.device) == "cpu" and x.device == pf.device("cpu")
    assert x.device.type == "cpu" and hash(x.device) == hash(pf.device("cpu"))
    assert pf.tensor([[1, 2], [3, 4]]).T.tolist() == [[1, 3], [2, 4]] and pf.zeros(2, 3, 4).mT.shape == (2, 4, 3)


def test_scalars():
    assert pf.tensor(2.5).item() == 2.5 and isinstance(pf.tensor(2).item(), int) and pf.tensor(True).item() is True
    assert float(pf.tensor([3])) == 3.0 and int(pf.tensor(3.9)) == 3 and [10, 20, 30][pf.tensor(1)] == 20
    assert bool(pf.tensor(1.0)) and not pf.tensor([0])
    assert f"{pf.tensor(1.23456):.2f}" == "1.23"
    assert 2 in pf.tensor([1, 2]) and 5 not in pf.tensor([1, 2])


def test_iteration_and_identity():
    assert [r.tolist() for r in pf.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    a, b = pf.unbind(pf.tensor([[1, 2], [3, 4]]), 1)
    assert a.tolist() == [1, 3] and b.tolist() == [2, 4]
    x = pf.zeros(3)
    assert len({x, x, pf.zeros(3)}) == 2 and {x: 1}[x] == 1
    x.note = "mine"
    assert x.note == "mine" and weakref.ref(x)() is x


def test_repr():
    assert repr(pf.tensor([1, 2])).startswith("tensor([1") and "dtype=pyflame.int64" in repr(pf.tensor([1, 2]))
    x = pf.ones(2, requires_grad=True)
    assert repr(x).endswith("requires_grad=True)") and repr(x * 2).endswith("grad_fn=<mul>)")
    big = repr(pf.zeros(100, 100))
    assert "..." in big and len(big) < 2000
    assert all(line.startswith("       ") for line in repr(pf.zeros(3, 3)).split("\n")[1:])


# ---- indexing

KEYS = [
    0, -1, slice(None), slice(1, None), slice(None, -1), slice(0, 4, 2), slice(10, 20), Ellipsis, None, (0, 1), (slice(None), 2), (Ellipsis, -1),
    (None, 1, Ellipsis, None), (slice(1, 3), slice(None), slice(0, 5, 3)), (1, 2, 3), (Ellipsis,), (slice(None), None, 0),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_getitem(key):
    a = array(4, 3, 5)
    x = pf.tensor(a)
    np.testing.assert_array_equal(x[key].numpy(), a[key])


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_setitem(key):
    a = array(4, 3, 5)
    x = pf.tensor(a)
    x[key] = 7
    a[key] = 7
    np.testing.assert_array_equal(x.numpy(), a)
    v = array(*a[key].shape, seed=1)
    x[key] = v
    a[key] = v
    np.testing.assert_array_equal(x.numpy(), a)


def test_index_with_tensors():
    a = array(4, 3, 5)
    x = pf.tensor(a)
    for idx in ([2, 0, 2], [[0, 1], [2, 1]], []):
        i = np.array(idx, dtype=np.int64)
        np.testing.assert_array_equal(x[pf.tensor(i)].numpy(), a[i])
        np.testing.assert_array_equal(x[:, pf.tensor(i) % 3].numpy(), a[:, i % 3])
    np.testing.assert_array_equal(x[[1, 3]].numpy(), a[[1, 3]])
    np.testing.assert_array_equal(x[np.array([1, 3])].numpy(), a[[1, 3]])


def test_masked_assignment():
    a = array(4, 3)
    x = pf.tensor(a)
    x[x < 0] = 0
    np.testing.assert_array_equal(x.numpy(), np.where(a < 0, 0, a))
    rows = pf.tensor([True, False, False, True])
    x[rows] = 9.0
    assert x[0].tolist() == [9, 9, 9] and x[1].tolist() == np.where(a[1] < 0, 0, a[1]).tolist()


def test_views_share_memory():
    x = pf.zeros(2, 3)
    for v in (x.view(6), x.view((3, 2)), x.T, x[0], x.unsqueeze(0), x.permute(1, 0), x.flatten(), x.narrow(1, 0, 2), x.reshape(-1)):
        x.zero_()
        v += 1
        assert x.sum().item() == v.numel()
    e = pf.zeros(3, 1).expand(3, 4)
    assert e.shape == (3, 4) and e.stride() == (1, 0)


# ---- operators

BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.mark.parametrize("op", BINARY, ids=lambda f: f.__name__)
def test_binary_operators(op):
    a, b = array(3, 4), array(4, seed=1)
    x, y = pf.tensor(a), pf.tensor(b)
    np.testing.assert_allclose(op(x, y).numpy(), op(a, b), rtol=1e-6)
    np.testing.assert_allclose(op(x, 2.0).numpy(), op(a, np.float32(2)), rtol=1e-6)
    np.testing.assert_allclose(op(2.0, x).numpy(), op(np.float32(2), a), rtol=1e-6)
    np.testing.assert_allclose(op(x, np.float32(2)).numpy(), op(a, np.float32(2)), rtol=1e-6)


@pytest.mark.parametrize("op", [operator.floordiv, operator.mod, operator.pow], ids=lambda f: f.__name__)
def test_integer_like_operators(op):
    a, b = np.array([7.0, -7, 5]), np.array([2.0, 2, 3])
    x, y = pf.tensor(a), pf.tensor(b)
    np.testing.assert_allclose(op(x, y).numpy(), op(a, b))
    np.testing.assert_allclose(op(x, 2).numpy(), op(a, 2))
    np.testing.assert_allclose(op(2, y).numpy(), op(2, b))


@pytest.mark.parametrize("op, f", [(operator.iadd, operator.add), (operator.isub, operator.sub), (operator.imul, operator.mul), (operator.itruediv, operator.truediv)])
def test_in_place_operators_keep_identity(op, f):
    a = array(3)
    x = pf.tensor(a)
    same = x
    x = op(x, 3.0)
    assert x is same
    np.testing.assert_allclose(same.numpy(), f(a, np.float32(3)), rtol=1e-6)


def test_in_place_methods():
    x = pf.tensor([1.0, 4.0])
    assert x.add_(1) is x and x.tolist() == [2, 5]
    assert x.mul_(2).sub_(1, alpha=2).sqrt_() is x
    np.testing.assert_allclose(x.numpy(), np.sqrt(np.array([2.0, 8.0], np.float32)))
    assert x.fill_(3).zero_().tolist() == [0, 0] and x.copy_([5, 6]).tolist() == [5, 6] and x.clamp_(max=5.5).tolist() == [5, 5.5]
    assert pf.add(x, 1, alpha=2).tolist() == [7, 7.5]


def test_bool_operators():
    a, b = pf.tensor([True, True, False]), pf.tensor([True, False, False])
    assert (a & b).tolist() == [True, False, False] and (a | b).tolist() == [True, True, False]
    assert (a ^ b).tolist() == [False, True, False] and (~a).tolist() == [False, False, True] and (a & True).tolist() == a.tolist()


def test_unary_operators_and_matmul():
    a, b = array(3, 4), array(4, 2)
    x = pf.tensor(a)
    np.testing.assert_array_equal((-x).numpy(), -a)
    np.testing.assert_array_equal(abs(x).numpy(), abs(a))
    np.testing.assert_allclose((x @ pf.tensor(b)).numpy(), a @ b, rtol=1e-5)


def test_promotion():
    i, f, h, b = pf.tensor([1]), pf.tensor([1.0]), pf.tensor([1.0], dtype=pf.float16), pf.tensor([True])
    assert (i + f).dtype == pf.float32 and (i + 1.5).dtype == pf.float32 and (h + 1.5).dtype == pf.float16 and (h + f).dtype == pf.float32
    assert (i / i).dtype == pf.float32 and (b + b).dtype == pf.bool and (b + 1).dtype == pf.int64 and (i > 0).dtype == pf.bool
    assert pf.promote_types(pf.float16, pf.bfloat16) == pf.float32 and pf.promote_types("uint8", "int8") == pf.int16
    assert i.sum().dtype == pf.int64 and b.sum().item() == 1


# ---- conversions


@pytest.mark.parametrize("name, dtype", [("float", pf.float32), ("double", pf.float64), ("half", pf.float16), ("bfloat16", pf.bfloat16),
                                         ("long", pf.int64), ("int", pf.int32), ("short", pf.int16), ("bool", pf.bool)])
def test_casts(name, dtype):
    x = pf.tensor([0.0, 1.75, -2.5], dtype=pf.float64 if dtype != pf.float64 else pf.float32)
    y = getattr(x, name)()
    assert y.dtype == dtype and getattr(y, name)() is y
    assert x.to(dtype).dtype == dtype and x.type(dtype).dtype == dtype and x.to(pf.zeros(1, dtype=dtype)).dtype == dtype and x.to(dtype=dtype).dtype == dtype
    if not dtype.is_floating_point:
        assert y.tolist() == ([False, True, True] if dtype == pf.bool else [0, 1, -2])


def test_to_keeps_identity_and_copies():
    x = pf.ones(2)
    assert x.to("cpu") is x and x.cpu() is x and x.contiguous() is x and x.to(pf.float32) is x
    y = x.to(pf.float32, copy=True)
    y += 1
    assert x.tolist() == [1, 1] and x.type() == "torch.FloatTensor"
    assert x.clone() is not x and x.detach().data_ptr() == x.data_ptr()


@pytest.mark.parametrize("dtype", FLOATS + INTS + [pf.bool])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_pickle_and_deepcopy(dtype, shape):
    x = pf.ones(shape).to(dtype)
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.dtype == dtype and y.shape == shape and y.tolist() == x.tolist()
    if dtype.is_floating_point:
        x.requires_grad_()
        assert pickle.loads(pickle.dumps(x)).requires_grad and copy.deepcopy(x).requires_grad


def test_pickle_of_a_view():
    x = pf.arange(6).view(2, 3).T
    assert pickle.loads(pickle.dumps(x)).tolist() == x.tolist()
    y = copy.copy(x)
    y += 1
    assert x.tolist() == y.tolist()


# ---- methods that dispatch on arguments


def test_max_min_forms():
    a = array(3, 4)
    x = pf.tensor(a)
    assert x.max().item() == a.max() and x.min().item() == a.min()
    m = x.max(1)
    np.testing.assert_array_equal(m.values.numpy(), a.max(1))
    np.testing.assert_array_equal(m.indices.numpy(), a.argmax(1))
    values, indices = pf.min(x, dim=0, keepdim=True)
    assert values.shape == (1, 4) and indices.tolist() == [a.argmin(0).tolist()]
    np.testing.assert_array_equal(pf.max(x, pf.zeros(4)).numpy(), np.maximum(a, 0))
    np.testing.assert_array_equal(pf.max(input=x, other=pf.zeros(4)).numpy(), np.maximum(a, 0))


def test_reduction_arguments():
    a = array(2, 3, 4)
    x = pf.tensor(a)
    for dim, axis in ((None, None), (1, 1), ((0, 2), (0, 2)), ([-1], (-1,)), (-3, 0)):
        np.testing.assert_allclose(x.sum(dim=dim).numpy(), a.sum(axis=axis), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(x.mean(dim, keepdim=True).numpy(), a.mean(axis=axis, keepdims=True), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(pf.var(x, dim).numpy(), a.var(axis=axis, ddof=1), rtol=1e-4)
        np.testing.assert_allclose(x.std(dim, correction=0).numpy(), a.std(axis=axis), rtol=1e-4)
    assert x.var(unbiased=False).item() == pytest.approx(float(a.var()), rel=1e-5)
    assert x.sum(dtype=pf.float64).dtype == pf.float64


def test_named_results():
    values, indices = pf.topk(pf.tensor([3.0, 1.0, 2.0]), 2)
    assert values.tolist() == [3, 2] and indices.tolist() == [0, 2]
    s = pf.tensor([3.0, 1.0, 2.0]).sort(descending=True)
    assert s.values.tolist() == [3, 2, 1] and s.indices.tolist() == [0, 2, 1] and pf.argsort(pf.tensor([3, 1, 2])).tolist() == [1, 2, 0]


def test_comparing_helpers():
    x = pf.tensor([1.0, float("nan")])
    assert not pf.allclose(x, x) and pf.allclose(x, x, equal_nan=True) and pf.allclose(pf.ones(2), pf.ones(2) + 1e-9)
    assert not pf.allclose(pf.ones(2), pf.tensor([1.0, float("inf")])) and pf.equal(pf.ones(2), pf.ones(2)) and not pf.equal(pf.ones(2), pf.ones(1))


def test_split_and_chunk():
    x = pf.arange(10)
    assert [p.tolist() for p in x.split(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [len(p) for p in pf.split(x, [1, 2, 7])] == [1, 2, 7] and [len(p) for p in x.chunk(3)] == [4, 4, 2]


def test_public_functions_are_documented():
    missing = [n for n in dir(pf) if not n.startswith("_") and callable(getattr(pf, n)) and not isinstance(getattr(pf, n), type) and not getattr(pf, n).__doc__]
    assert missing == []


def test_negative_entries_of_a_tensor_index_count_from_the_end():
    x = pf.arange(6).reshape(3, 2)
    assert x[pf.tensor([2, -1, 0, -3])].tolist() == [[4, 5], [4, 5], [0, 1], [0, 1]]
    assert x[:, [-1]].tolist() == [[1], [3], [5]]
    assert x[pf.tensor([[-1], [0]], dtype=pf.int32)].shape == (2, 1, 2)
    w = pf.ones(3, requires_grad=True)
    (w[[-1, -1, 0]] * pf.tensor([1.0, 2.0, 4.0])).sum().backward()
    assert w.grad.tolist() == [4, 0, 3]


def test_memory_format():
    x = pf.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)
    y = x.to(memory_format=pf.channels_last)
    assert y.stride() == (60, 1, 15, 3) and y.tolist() == x.tolist()
    assert y.is_contiguous(memory_format=pf.channels_last) and not y.is_contiguous()
    assert x.is_contiguous() and not x.is_contiguous(memory_format=pf.channels_last)
    assert y.contiguous(memory_format=pf.channels_last) is y and x.contiguous(memory_format=pf.contiguous_format) is x
    assert y.contiguous().stride() == x.stride()
    with pytest.raises(ValueError, match=r"contiguous: channels_last needs images; got \(2, 3\)"):
        pf.ones(2, 3).contiguous(memory_format=pf.channels_last)
    model = pf.nn.Sequential(pf.nn.Conv2d(3, 8, 3), pf.nn.BatchNorm2d(8)).to(memory_format=pf.channels_last)
    assert model[0].weight.is_contiguous(memory_format=pf.channels_last) and model[0].weight.stride() == (27, 1, 9, 3)
    assert model(x.float().to(memory_format=pf.channels_last)).shape == (2, 8, 2, 3)
