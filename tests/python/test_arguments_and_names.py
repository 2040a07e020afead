"""Arguments have the effect that PyTorch gives them or are refused, errors begin with the name of the function that was called, and functions of PyTorch's programs
are there."""
import subprocess
import sys

import numpy as np
import pyflame as pf
import pytest
from pyflame import func
from pyflame.nn import functional as F
from pyflame.nn.functional_linear_loss import LinearCrossEntropyOptions
from pyflame.nn.utils import parametrizations

D = pf.tensor([1.0, 2, 3, 4, 5, 6])


def near(a, b, tolerance=1e-6):
    np.testing.assert_allclose(a.detach().numpy(), b, rtol=tolerance, atol=tolerance)


# ---- arguments


def test_a_constructor_refuses_keywords_that_it_does_not_have():
    # In a process of its own: an error that leaves C++ unseen would end the process.
    code = "import pyflame as pf\ntry:\n    pf.Tensor(2, 3, device='cpu')\nexcept TypeError as error:\n    print('refused', error)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("refused"), done.stderr


def test_a_planner_of_a_checkpoint_is_refused(tmp_path):
    from pyflame.distributed import checkpoint

    state = {"x": pf.ones(2)}
    for write in (checkpoint.save, checkpoint.async_save):
        with pytest.raises(NotImplementedError, match="checkpoint.*: planner"):
            write(state, checkpoint_id=tmp_path / "c", planner=object(), no_dist=True)
    checkpoint.save(state, checkpoint_id=tmp_path / "c", no_dist=True)
    with pytest.raises(NotImplementedError, match="checkpoint.load: planner"):
        checkpoint.load(state, checkpoint_id=tmp_path / "c", planner=object(), no_dist=True)


@pytest.mark.parametrize("make", [pf.signal.windows.hann, pf.signal.windows.kaiser, pf.signal.windows.exponential, pf.hann_window, pf.kaiser_window])
def test_windows_are_strided(make):
    near(make(5, layout=pf.strided), make(5).numpy())
    with pytest.raises(ValueError, match="layout"):
        make(5, layout=pf.sparse_coo)


@pytest.mark.parametrize("make", [pf.fft.fftfreq, pf.fft.rfftfreq])
def test_frequencies_are_strided(make):
    near(make(5, layout=pf.strided), make(5).numpy())
    with pytest.raises(ValueError, match="layout"):
        make(5, layout=pf.sparse_coo)


@pytest.mark.parametrize("chunk_size", [1, 2, 5, 9])
def test_vmap_in_chunks_gives_the_whole(chunk_size):
    x = pf.randn(3, 5)

    def f(row):
        return row * row, {"sum": row.sum()}

    a, d = func.vmap(f, 1, (1, {"sum": 0}), chunk_size=chunk_size)(x)
    near(a, x.numpy() ** 2)
    near(d["sum"], x.numpy().sum(0), 1e-5)


def test_vmap_computes_a_chunk_before_the_next():
    from pyflame import _C

    sizes, whole = [], _C.synchronize
    _C.synchronize = lambda *a: (sizes.append(len(seen)), whole(*a))[1]
    seen = []
    try:
        func.vmap(lambda x: (seen.append(1), x * 2)[1], chunk_size=2)(pf.arange(5.0))
    finally:
        _C.synchronize = whole
    assert sizes == [2, 4, 5]


@pytest.mark.parametrize("chunk_size", [0, -1, 1.5])
def test_a_chunk_has_at_least_one_entry(chunk_size):
    for f in (func.vmap, func.jacrev, func.jacfwd):
        with pytest.raises(ValueError, match=f"{f.__name__}: chunk_size"):
            f(lambda x: x, chunk_size=chunk_size)


def test_randomness_of_jacfwd():
    def noisy(x):
        return x * pf.rand(3)

    with pytest.raises(RuntimeError, match="jacfwd: the function drew random numbers"):
        func.jacfwd(noisy)(pf.ones(3))
    with pytest.raises(NotImplementedError, match="jacfwd: .*'different'"):
        func.jacfwd(noisy, randomness="different")(pf.ones(3))
    with pytest.raises(RuntimeError, match="jacfwd: no such randomness"):
        func.jacfwd(noisy, randomness="other")
    pf.manual_seed(3)
    same = func.jacfwd(noisy, randomness="same")(pf.ones(3))
    pf.manual_seed(3)
    near(same, np.diag(pf.rand(3).numpy()))
    near(func.jacfwd(lambda x: x * 2, randomness="different")(pf.ones(2)), np.eye(2) * 2)


def test_tensordot_writes_to_out():
    a, b, out = pf.ones(2, 3), pf.ones(3, 4), pf.zeros(2, 4)
    assert pf.tensordot(a, b, 1, out=out) is out
    near(out, np.full((2, 4), 3.0))


# ---- orthogonal without a base


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
def test_orthogonal_by_householder_without_a_base(shape):
    pf.manual_seed(0)
    m = pf.nn.Module()
    m.weight = pf.nn.Parameter(pf.randn(*shape, dtype=pf.float64))
    w = m.weight.detach().numpy().copy()
    parametrizations.orthogonal(m, orthogonal_map="householder", use_trivialization=False)
    q = m.weight.detach().numpy()
    q, w = (np.swapaxes(t, -2, -1) if shape[-2] < shape[-1] else t for t in (q, w))
    near(pf.tensor(np.swapaxes(q, -2, -1) @ q), np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1])), 1e-10)
    r = np.swapaxes(q, -2, -1) @ w  # the QR decomposition whose R has a positive diagonal
    assert (np.diagonal(r, axis1=-2, axis2=-1) > 0).all() and np.abs(np.tril(r, -1)).max() < 1e-10
    before = m.weight.detach().numpy().copy()
    m.weight = pf.tensor(before)  # an orthogonal matrix keeps its value
    near(m.weight, before, 1e-10)


@pytest.mark.parametrize("name", ["matrix_exp", "cayley"])
def test_orthogonal_by_other_maps_without_a_base_maps_the_weight(name):
    m = pf.nn.Linear(3, 3, bias=False)
    a = np.tril(m.weight.detach().numpy().astype(np.float64))
    a = a - a.T
    parametrizations.orthogonal(m, orthogonal_map=name, use_trivialization=False)
    want = pf.linalg.matrix_exp(pf.tensor(a)).numpy() if name == "matrix_exp" else np.linalg.solve(np.eye(3) - a / 2, np.eye(3) + a / 2)
    near(m.weight, want, 1e-5)
    with pytest.raises(NotImplementedError, match="orthogonal: use_trivialization=False"):
        m.weight = pf.eye(3)


# ---- errors begin with the function's name


@pytest.mark.parametrize("name, call", [
    ("index_reduce", lambda: pf.zeros(3, 4).index_reduce(0, pf.tensor([0]), pf.zeros(1, 3), "mean")),
    ("index_reduce", lambda: pf.zeros(3, 4).index_reduce(5, pf.tensor([0]), pf.zeros(1, 4), "prod")),
    ("index_reduce", lambda: pf.zeros(3).index_reduce(0, pf.tensor([7]), pf.zeros(1), "amax").tolist()),
    ("index_fill", lambda: pf.zeros(3).index_fill(0, pf.tensor([0.5]), 1.0)),
    ("scatter_reduce", lambda: pf.zeros(3).scatter_reduce(0, pf.tensor([0.5]), pf.ones(1), "sum")),
    ("bucketize", lambda: pf.bucketize(pf.tensor([1]), pf.tensor([1j, 2]))),
    ("mse_loss", lambda: F.mse_loss(pf.tensor([1]), pf.tensor([2]))),
    ("mse_loss", lambda: pf.nn.MSELoss()(pf.tensor([1]), pf.tensor([2]))),
    ("mse_loss", lambda: F.mse_loss(pf.tensor([True]), pf.tensor([True]), "sum")),
    ("l1_loss", lambda: F.l1_loss(pf.tensor([1]), pf.tensor([2]))),
])
def test_errors_begin_with_the_name(name, call):
    with pytest.raises((TypeError, ValueError, IndexError, RuntimeError), match=f"^{name}: "):
        call()


@pytest.mark.parametrize("temperature", [-1.0, 0.0, float("nan")])
def test_temperatures_are_positive(temperature):
    p = pf.tensor([0.3, 0.7])
    for make in (pf.distributions.RelaxedBernoulli, pf.distributions.RelaxedOneHotCategorical):
        with pytest.raises(ValueError, match="^Relaxed.*: the temperature is not positive"):
            make(temperature, probs=p)
        make(temperature, probs=p, validate_args=False)
        make(pf.tensor(0.5), probs=p)


def test_a_cluster_has_hidden_features():
    with pytest.raises(ValueError, match="AdaptiveLogSoftmaxWithLoss: cluster 1 has no hidden features"):
        pf.nn.AdaptiveLogSoftmaxWithLoss(4, 20, [5, 10], div_value=4.0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_linear_cross_entropy_without_gradients_has_no_grad_fn(reduction):
    options = LinearCrossEntropyOptions(batch_chunk_size=2)
    x, w, t = pf.randn(5, 3), pf.randn(4, 3), pf.tensor([0, 1, 2, 3, 0])
    loss = F.linear_cross_entropy(x, w, t, reduction=reduction, options=options)
    assert loss.grad_fn is None and not loss.requires_grad
    near(loss, F.cross_entropy(F.linear(x, w), t, reduction=reduction).numpy(), 1e-5)
    asked = F.linear_cross_entropy(x, w.requires_grad_(), t, reduction=reduction, options=options)
    assert asked.requires_grad
    with pf.no_grad():
        assert not F.linear_cross_entropy(x, w, t, reduction=reduction, options=options).requires_grad


# ---- functions


@pytest.mark.parametrize("reduce, plain, begun", [
    ("sum", [3, 0, 18], [5, 2, 20]), ("mean", [1.5, np.nan, 4.5], [2.5, 2, 5]), ("max", [2, -np.inf, 6], [2, 2, 6]),
    ("min", [1, np.inf, 3], [1, 2, 2]), ("prod", [2, 1, 360], [4, 2, 720]),
])
def test_segment_reduce(reduce, plain, begun):
    lengths = pf.tensor([2, 0, 4])
    near(pf.segment_reduce(D, reduce, lengths=lengths), plain)
    near(pf.segment_reduce(D, reduce, lengths=lengths, initial=2.0), begun)
    near(pf.segment_reduce(D, reduce, offsets=pf.tensor([0, 2, 2, 6])), plain)
    near(pf.segment_reduce(pf.stack([D, D], 1), reduce, lengths=lengths), np.stack([plain, plain], 1))


def test_segment_reduce_along_a_later_axis():
    near(pf.segment_reduce(pf.arange(12.0).reshape(2, 6), "sum", lengths=pf.tensor([[2, 4], [3, 3]]), axis=1), [[1, 14], [21, 30]])


def test_segment_reduce_gradients_are_shared_among_equals():
    x = pf.tensor([1.0, 3, 3, 2, 5, 5], requires_grad=True)
    pf.segment_reduce(x, "max", lengths=pf.tensor([3, 3])).sum().backward()
    near(x.grad, [0, 0.5, 0.5, 0, 0.5, 0.5])
    y = pf.tensor([1.0, 2, 3], dtype=pf.float64, requires_grad=True)
    for reduce in ("sum", "mean", "prod"):
        assert pf.autograd.gradcheck(lambda t, r=reduce: pf.segment_reduce(t, r, lengths=pf.tensor([2, 1]), initial=2.0), (y,))


@pytest.mark.parametrize("arguments, text", [
    ({}, "neither or both"), ({"lengths": pf.tensor([2, 1])}, "the lengths do not fit"), ({"lengths": pf.tensor([2, -1, 5])}, "the lengths do not fit"),
    ({"offsets": pf.tensor([0, 7])}, "the lengths do not fit"), ({"indices": pf.tensor([0])}, "indices"), ({"lengths": pf.tensor([[6]])}, "the lengths do not fit"),
    ({"lengths": pf.tensor([6.0])}, "dtype"), ({"lengths": pf.tensor([6]), "axis": 3}, "axis"),
])
def test_segment_reduce_refuses(arguments, text):
    with pytest.raises((RuntimeError, TypeError, IndexError, NotImplementedError), match=f"^segment_reduce: .*{text}"):
        pf.segment_reduce(D, "sum", **arguments)


def test_segment_reduce_refuses_integers_and_other_reductions():
    with pytest.raises(TypeError, match="segment_reduce: .*floating"):
        pf.segment_reduce(pf.tensor([1, 2]), "sum", lengths=pf.tensor([2]))
    with pytest.raises(RuntimeError, match="segment_reduce: unknown reduction"):
        pf.segment_reduce(D, "median", lengths=pf.tensor([6]))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolution_is_that_of_its_dims(dims):
    x, w, b = pf.randn(2, 4, *[6] * dims), pf.randn(4, 2, *[3] * dims), pf.randn(4)
    plain, transposed = getattr(F, f"conv{dims}d"), getattr(F, f"conv_transpose{dims}d")
    near(pf.convolution(x, w, b, [2] * dims, [1] * dims, [1] * dims, False, [0] * dims, 2), plain(x, w, b, 2, 1, 1, 2).numpy())
    near(pf.convolution(x, w, None, [2], [1], [1], True, [1], 2), transposed(x, w, None, 2, 1, 1, 2, 1).numpy())


def test_transposed_volumes_with_an_output_padding_of_the_stride():
    """A depth that only output_padding reaches: the values of the other dims in their place, and a gradient of the input's shape."""
    x, w = pf.randn(1, 2, 4, 5, 3, dtype=pf.float64, requires_grad=True), pf.randn(2, 3, 2, 3, 2, dtype=pf.float64, requires_grad=True)
    arguments = {"stride": 1, "dilation": 2, "padding": (1, 0, 0), "output_padding": (1, 0, 0)}
    turned = {"stride": 1, "dilation": 2, "padding": (0, 0, 1), "output_padding": (0, 0, 1)}
    y = F.conv_transpose3d(x, w, **arguments)
    near(F.conv_transpose3d(x.detach().permute(0, 1, 4, 3, 2), w.detach().permute(0, 1, 4, 3, 2), **turned).permute(0, 1, 4, 3, 2), y.detach().numpy())
    g = pf.randn(*y.shape, dtype=y.dtype)
    y.backward(g)
    assert x.grad.shape == x.shape and w.grad.shape == w.shape
    near((x.grad * x.detach()).sum(), (g * y.detach()).sum().item())  # y is linear in x
    near((w.grad * w.detach()).sum(), (g * y.detach()).sum().item())


def test_attention_takes_a_float32_mask_of_other_queries():
    q, k, v = (pf.randn(1, 2, 4, 8, dtype=pf.float64) for _ in range(3))
    mask = pf.randn(4, 4)
    near(F.scaled_dot_product_attention(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask.double()).numpy())


def test_tensors_of_one_element_are_numbers():
    n = pf.tensor([2, 3]).max()
    assert pf.arange(n).tolist() == [0, 1, 2] and pf.arange(n - 1, n * 2, pf.tensor(2)).tolist() == [2, 4] and pf.arange(pf.tensor(1.5)).dtype == pf.float32
    assert pf.full((2,), n).tolist() == [3, 3] and pf.ones(1).new_full((2,), pf.tensor(0.5)).tolist() == [0.5, 0.5]
    assert pf.zeros(n).shape == (3,) and pf.ones(2).repeat(n).shape == (6,) and pf.ones(1).new_zeros(n).shape == (3,)
    for wrong in (lambda: pf.arange(pf.ones(2)), lambda: pf.full((2,), pf.ones(3)), lambda: pf.zeros(pf.tensor(1.5)), lambda: pf.zeros(pf.tensor([1, 2]))):
        with pytest.raises(TypeError, match="wrong arguments|not sizes"):
            wrong()


def test_dtypes_of_two_arguments_are_promoted_as_in_arithmetic():
    wide, whole = pf.tensor(-2.0, dtype=pf.float64), pf.tensor([1, 2])
    assert pf.copysign(whole, wide).dtype == pf.float64 and pf.copysign(whole.float(), wide).dtype == pf.float32
    assert pf.xlogy(pf.ones(2), -wide).dtype == pf.float32 and pf.ldexp(-wide, whole).dtype == pf.float64
    assert pf.block_diag(pf.tensor(1.0, dtype=pf.float64), pf.ones(2, 2)).dtype == pf.float32
    near(pf.lerp(pf.tensor([5], dtype=pf.uint8), pf.tensor([3], dtype=pf.uint8), 0.5), [4])
    assert pf.searchsorted(whole, pf.tensor([1.5, 2.5])).tolist() == [1, 2] and pf.bucketize(pf.tensor([1.5]), whole).tolist() == [1]
    assert pf.histc(pf.tensor([1.0, 2.0, 3.0]), 3, 2, 2).tolist() == [1, 1, 1]
    near(pf.special.shifted_chebyshev_polynomial_t(pf.tensor([0, 1]), 3), [-1, 1])


def test_arguments_without_a_meaning_are_refused():
    for wrong, error, text in ((lambda: pf.isclose(pf.ones(2), pf.ones(2), rtol=-1), ValueError, "isclose: a negative tolerance"), (lambda: pf.ones(2).tile(-1), ValueError, "tile: a negative number"),
                               (lambda: pf.norm(pf.ones(0), -1), ValueError, "norm: no elements")):
        with pytest.raises(error, match=text):
            wrong()


def test_decompositions_of_nan_and_of_one_triangle():
    with pytest.raises(pf.linalg.LinAlgError, match="not positive-definite"):
        pf.linalg.cholesky(pf.tensor([[float("nan")]]))
    assert pf.linalg.cholesky_ex(pf.tensor([[4.0, 0], [0, float("nan")]])).info.item() == 2
    x = pf.randn(3, 3, dtype=pf.float64, requires_grad=True)
    pf.linalg.eigh(x).eigenvectors.square()[0].sum().backward()
    near(x.grad, x.grad.mT.numpy())
    near(pf.linalg.solve_triangular(input=pf.eye(2), B=pf.ones(2, 1), upper=True), [[1], [1]])


def test_convolution_refuses_other_ranks():
    with pytest.raises(RuntimeError, match="convolution: the input has 2 dims"):
        pf.convolution(pf.ones(2, 2), pf.ones(2, 2), None, [1], [0], [1], False, [0], 1)
    with pytest.raises(RuntimeError, match="convolution: output_padding"):
        pf.convolution(pf.ones(1, 1, 4), pf.ones(1, 1, 2), None, [1], [0], [1], False, [1], 1)


def test_gradient_edges_stand_for_their_tensors():
    from pyflame.autograd.graph import GradientEdge, get_gradient_edge

    x = pf.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    z = (y * y).sum()
    edge = get_gradient_edge(y)
    assert isinstance(edge, GradientEdge) and edge.node is not None and edge.output_nr == 0
    a, b = pf.autograd.grad(z, [edge, get_gradient_edge(x)])
    near(a, [6, 12])
    near(b, [18, 36])
    with pytest.raises(RuntimeError, match="get_gradient_edge: .*requires no gradient"):
        get_gradient_edge(pf.ones(2))


def test_memory_pools_say_what_to_do():
    with pytest.raises(NotImplementedError, match="cuda.MemPool: not available"):
        pf.cuda.MemPool()
    with pytest.raises(NotImplementedError, match="cuda.use_mem_pool: not available"):
        pf.cuda.use_mem_pool(None)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_complex_numbers_have_no_maximum(dims):
    x = pf.ones(1, 1, *[2] * dims, dtype=pf.complex64)
    with pytest.raises(NotImplementedError, match=f"max_pool{dims}d: complex numbers have no order; got .*complex64; expected a floating or integer dtype; hint: input.abs"):
        getattr(pf.nn.functional, f"max_pool{dims}d")(x, 2)
