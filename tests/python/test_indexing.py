"""x[...] and x[...] = v with tensors, lists, arrays and bools, against NumPy, and functions that write by index."""
import os

import numpy as np
import pytest

import pyflame as pf

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7.5
ROWS, COLUMNS = np.array([[1], [0]]), np.array([2, 0, -1])
MASK = CUBE > 1

# Indices in which NumPy and PyTorch agree; arrays become tensors.
KEYS = [
    (np.array([1, 0, 1]),),
    (np.array([[1, 0], [-1, -2]]),),
    (ROWS, COLUMNS),
    (slice(None), np.array([2, 0]), np.array([3, 1])),
    (np.array([1, 0]), slice(None), np.array([3, 1])),  # apart: their shape comes first
    (np.array([1, 0]), None, np.array([2, 1])),
    (Ellipsis, np.array([3, 0])),
    (np.array([1, 0]), Ellipsis, np.array([3, 1])),
    (slice(None), None, np.array([0, 2]), slice(1, None, 2)),
    (None, np.array([1]), Ellipsis),
    (ROWS, slice(1, 3), np.array([0])),
    (MASK,),
    (MASK[:, :, 0],),
    (slice(None), MASK[0]),
    (slice(None), slice(None), MASK[0, 0]),
    (MASK[:, 0, 0], np.array([1])),
    (np.array([1]), MASK[0, :, 1]),
    (np.zeros((2, 3, 4), bool),),
    (np.zeros(0, np.int64),),
    (slice(None), np.zeros(0, np.int64)),
]


def as_tensors(key):
    return tuple(pf.tensor(k) if isinstance(k, np.ndarray) else k for k in key)


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_reads_like_numpy(key):
    x = pf.tensor(CUBE, requires_grad=True)
    got, want = x[as_tensors(key)], CUBE[key]
    np.testing.assert_array_equal(got.detach().numpy(), want)
    assert got.shape == want.shape
    weights = np.random.default_rng(0).standard_normal(want.shape).astype(np.float32)
    (got * pf.tensor(weights)).sum().backward()
    expected = np.zeros_like(CUBE)
    np.add.at(expected, key, weights)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_writes_like_numpy(key, transposed):
    want = CUBE.copy()
    values = np.random.default_rng(0).standard_normal(want[key].shape).astype(np.float32)
    x = pf.tensor(CUBE.transpose(2, 0, 1).copy()).permute(1, 2, 0) if transposed else pf.tensor(CUBE)
    x[as_tensors(key)] = pf.tensor(values)
    # Of several values for one place, the last one counts, as in NumPy.
    want[key] = values
    np.testing.assert_array_equal(x.numpy(), want)
    x[as_tensors(key)] = 2.5
    want[key] = 2.5
    np.testing.assert_array_equal(x.numpy(), want)


def test_the_last_of_several_values_counts():
    x = pf.zeros(3)
    x[pf.tensor([0, 2, 0])] = pf.tensor([1.0, 2.0, 3.0])
    assert x.tolist() == [3.0, 0.0, 2.0]
    many = pf.zeros(7, 3)
    many[pf.arange(1000) % 7] = pf.arange(3000.0).reshape(1000, 3)
    assert many[:, 0].tolist() == [3.0 * (1000 - 1 - (999 - k) % 7) for k in range(7)]


def test_gradients_of_writes():
    x, v = pf.tensor(CUBE[0], requires_grad=True), pf.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = x * 1.0
    y[pf.tensor([2, 0])] = v
    weights = pf.arange(12.0).reshape(3, 4)
    (y * weights).sum().backward()
    assert x.grad.tolist() == [[0.0] * 4, [4.0, 5.0, 6.0, 7.0], [0.0] * 4]
    assert v.grad.tolist() == [8.0, 10.0, 12.0, 14.0]
    y = x * 1.0
    y[y > 0] = 0.0
    assert y.detach().numpy().max() <= 0
    mask = pf.tensor(MASK[1])
    z = pf.index_put(x, (mask,), x[mask] * 2, accumulate=True)
    (grad,) = pf.autograd.grad(z.sum(), x)
    np.testing.assert_array_equal(grad.numpy(), 1 + 2.0 * MASK[1])


def test_lists_arrays_bools_and_numbers():
    x = pf.tensor(CUBE)
    for key in ([1, 0], np.array([1, 0]), range(2), [True, False], np.array([False, True]), [[0, 1], [1, 1]]):
        np.testing.assert_array_equal(x[key].numpy(), CUBE[np.asarray(key)])
    np.testing.assert_array_equal(x[0, :, [0, 1]].numpy(), CUBE[0][:, [0, 1]])  # an integer is a view; NumPy broadcasts it
    assert x[True].shape == (1, 2, 3, 4) and x[False].shape == (0, 2, 3, 4) and x[:, True].shape == (2, 1, 3, 4)
    assert x[[]].shape == (0, 3, 4) and x[pf.tensor(True)].shape == (1, 2, 3, 4) and pf.tensor(5)[True].tolist() == [5]
    assert x[pf.tensor([1, 0], dtype=pf.uint8)].shape == (1, 3, 4)  # bytes are a mask
    assert x[np.array(1)].shape == x[np.int64(1)].shape == (3, 4)
    row = x[pf.tensor(1)]  # a view, as with a number
    row.zero_()
    assert x.numpy()[1].max() == 0
    x[True] = 1.0
    x[False] = 2.0
    assert x.numpy().min() == x.numpy().max() == 1


def test_bad_indices_are_found_when_the_work_runs():
    x = pf.zeros(4, 5)
    for key in ((pf.arange(3) + 2,), (pf.arange(3) + 2, pf.zeros(3, dtype=pf.int64)), (pf.arange(2), pf.arange(2) + 4)):
        with pytest.raises(IndexError, match="index out of range"):
            x[key].tolist()
    for call in (lambda: pf.scatter(x, 0, pf.arange(5).reshape(1, 5) + 1, 1.0), lambda: pf.index_copy(x, 0, pf.arange(3) + 2, pf.ones(3, 5))):
        with pytest.raises(IndexError, match="index out of range"):
            call().tolist()


def test_writes_in_place_keep_the_tensor():
    index = pf.tensor([[0, 2, 1], [2, 1, 0]])
    for name, args in [("scatter_", (1, index, 5.0)), ("scatter_add_", (1, index, pf.ones(2, 3))), ("scatter_reduce_", (1, index, pf.ones(2, 3), "prod")),
                       ("index_copy_", (1, index[0], pf.ones(2, 3))), ("index_fill_", (1, index[0], 3)), ("index_add_", (1, index[0], pf.ones(2, 3))),
                       ("index_reduce_", (1, index[0], pf.ones(2, 3), "amax")), ("index_put_", ((index[0, :2],), pf.ones(3))), ("put_", (index, pf.ones(2, 3))),
                       ("masked_scatter_", (index > 0, pf.ones(9)))]:
        x = pf.zeros(4, 3)[:2] if "index_put" not in name else pf.zeros(4, 3)
        other = pf.zeros(4, 3)[: x.shape[0]]
        assert getattr(x, name)(*args) is x
        if hasattr(pf, name[:-1]):
            np.testing.assert_array_equal(x.numpy(), getattr(pf, name[:-1])(other, *args).numpy())


def test_writing_from_the_tensor_itself():
    x = pf.arange(6.0)
    x[pf.tensor([5, 0, 1, 2, 3, 4])] = x
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 0.0]
    i = pf.tensor([1, 2, 0])
    i[i] = i
    assert i.tolist() == [0, 1, 2]


@pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1", reason="windows of one op are cut everywhere")
def test_counting_a_mask_is_a_sync_point():
    x = pf.ones(8)
    assert "sync point" in pf.explain(lambda: x[x > 0] * 2)
    text = pf.explain(lambda: x.masked_fill_(x > 0, 3.0))
    assert "nonzero" not in text
    x[x > 0] = 4.0  # a number needs no count
    assert x.tolist() == [4.0] * 8


def test_nothing_is_scattered():
    src = pf.ones(2, 1, requires_grad=True)
    pf.scatter(pf.zeros(2, 3), 1, pf.zeros(2, 0, dtype=pf.int64), src).sum().backward()
    assert src.grad.tolist() == [[0.0], [0.0]]


def test_the_angle_of_the_origin_has_gradient_zero():
    y, x = pf.zeros(1, requires_grad=True), pf.zeros(1, requires_grad=True)
    pf.atan2(y, x).sum().backward()
    assert y.grad.item() == x.grad.item() == 0


def scattered(x, index, src, how):
    """scatter along dim 1 of [A, N, B], one source after the other."""
    y = x.copy()
    for a in range(index.shape[0]):
        for d in range(index.shape[1]):
            row = y[a, index[a, d], np.arange(index.shape[2])]
            y[a, index[a, d], np.arange(index.shape[2])] = src[a, d] if how == "replace" else row + src[a, d]
    return y


@pytest.mark.parametrize("shape", [(1, 300, 700), (2, 512, 260), (1, 20000, 40), (3, 70, 1030)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8])
@pytest.mark.parametrize("threads", [1, 3])
def test_scattered_lines_that_are_far_apart(shape, dtype, threads):
    rng = np.random.default_rng(1)
    x, src = (rng.integers(-99, 99, shape).astype(dtype) for _ in range(2))
    index = rng.integers(0, shape[1], shape)
    before = pf.get_num_threads()
    pf.set_num_threads(threads)
    try:
        for how, call in (("replace", lambda: pf.tensor(x).scatter(1, pf.tensor(index), pf.tensor(src))), ("sum", lambda: pf.tensor(x).scatter_add(1, pf.tensor(index), pf.tensor(src)))):
            np.testing.assert_array_equal(call().numpy(), scattered(x, index, src, how))
        number = pf.tensor(x).scatter(1, pf.tensor(index), 7).numpy()
        np.testing.assert_array_equal(number, scattered(x, index, np.full_like(src, 7), "replace"))
    finally:
        pf.set_num_threads(before)


@pytest.mark.parametrize("position", [0, 123456, 299999])
@pytest.mark.parametrize("bad", [-1, 600, 2**40, -(2**63)])
def test_a_bad_index_among_many(position, bad):
    """Of a line, of a line of integers that the threads share, and of lines that are far apart."""
    index = np.zeros(300000, np.int64)
    index[position] = bad
    for call in (
        lambda: pf.zeros(600).scatter(0, pf.tensor(index), pf.ones(300000)),
        lambda: pf.zeros(600, dtype=pf.int64).scatter_add(0, pf.tensor(index), pf.ones(300000, dtype=pf.int64)),
        lambda: pf.zeros(600, 500).scatter(0, pf.tensor(index.reshape(600, 500)), pf.ones(600, 500)),
        lambda: pf.zeros(600).gather(0, pf.tensor(index)),
    ):
        with pytest.raises(IndexError, match=f"index out of range; got {bad}"):
            call().numpy()
    assert pf.ones(3).sum().item() == 3


@pytest.mark.parametrize("dtype", [pf.int64, pf.int32, pf.int8, pf.uint8])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_integers_of_one_long_line(dtype, threads):
    rng = np.random.default_rng(2)
    index, src = rng.integers(0, 1000, 400000), rng.integers(0, 99, 400000)
    want = np.bincount(index, src, 1000).astype(np.int64)
    before = pf.get_num_threads()
    pf.set_num_threads(threads)
    try:
        got = pf.ones(1000, dtype=dtype).scatter_add(0, pf.tensor(index), pf.tensor(src).to(dtype))
        assert pf.bincount(pf.tensor(index)).tolist() == np.bincount(index).tolist()
    finally:
        pf.set_num_threads(before)
    assert got.tolist() == pf.tensor(want + 1).to(dtype).tolist()
