"""Matrix products: how exact float32 is, and what libraries compute after a product. On the device of PYFLAME_TEST_DEVICE, sizes small
enough for the emulator and, on a real GPU, such that its library takes them."""
import os

import numpy as np
import pytest

import pyflame as pf

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
REAL = DEVICE == "cuda" or "PYFLAME_TEST_REAL_GPU" in os.environ
F = pf.nn.functional
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="PYFLAME_TEST_DEVICE names no GPU")


@pytest.fixture
def precision():
    yield pf.set_float32_matmul_precision
    pf.set_float32_matmul_precision("highest")


def random(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def test_the_setting(precision):
    assert pf.get_float32_matmul_precision() == "highest"
    for each in ("high", "medium", "highest"):
        precision(each)
        assert pf.get_float32_matmul_precision() == each
    with pytest.raises(ValueError, match="set_float32_matmul_precision.*got 'tf32'.*'highest', 'high' or 'medium'"):
        precision("tf32")
    with pytest.raises(TypeError):
        precision(1)
    assert pf.get_float32_matmul_precision() == "highest"


def test_the_cpu_does_not_heed_it(precision):
    a, b = pf.tensor(random(65, 300)), pf.tensor(random(300, 33))
    exact = (a @ b).tolist()
    precision("high")
    assert (a @ b).tolist() == exact
    assert "precision=0" in pf.explain(lambda: a @ b)


@on_gpu
def test_float32_is_rounded_only_on_request(precision):
    n = 512 if REAL else 40
    a, b = random(n, n), random(n, n, seed=1)
    exact, size = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    x, y = (pf.tensor(t).to(DEVICE) for t in (a, b))

    def error():
        return (np.abs((x @ y).cpu().numpy() - exact) / size).max()

    first = error()
    assert first < 1e-6
    precision("high")
    rounded = error()
    assert "precision=1" in pf.explain(lambda: x @ y)
    assert rounded < 2**-10
    if DEVICE == "cuda":
        assert rounded > 10 * first, "nothing was rounded"
    precision("highest")
    assert error() == first, "the setting is part of what is cached"


@on_gpu
def test_gradients_and_other_dtypes(precision):
    precision("high")
    x, w = pf.tensor(random(48, 32)).to(DEVICE), pf.tensor(random(16, 32)).to(DEVICE)
    w.requires_grad_(True)
    text = pf.explain(lambda: F.linear(x, w).sum().backward())
    assert text.count("precision=1") == text.count("precision=") == 2
    for dtype in (pf.float64, pf.bfloat16):
        assert "precision=0" in pf.explain(lambda: x.to(dtype) @ x.to(dtype).T)


ACTIVATIONS = {
    "bias": lambda y, r: y,
    "relu": lambda y, r: F.relu(y),
    "gelu": lambda y, r: F.gelu(y),
    "gelu_tanh": lambda y, r: F.gelu(y, approximate="tanh"),
    "silu": lambda y, r: F.silu(y),
    "residual": lambda y, r: y + r,
    "residual_relu": lambda y, r: F.relu(r + y),
    "gelu_tanh_residual": lambda y, r: F.gelu(y, approximate="tanh") + r,
}


@on_gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"] if REAL else ["bfloat16", "float32"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_follows_a_product(name, dtype):
    """Forward and all gradients of two layers, with and without gradients, against float64 on the CPU."""
    rows, inner, outer = (512, 1024, 2048) if REAL else (24, 40, 64)
    values = [random(rows, inner, seed=1), random(outer, inner, seed=2) / inner**0.5, random(outer, seed=3), random(inner, outer, seed=4) / outer**0.5,
              random(inner, seed=5), random(rows, outer, seed=6)]
    if "relu" in name:  # small integers, whose sums are exact: no rounding decides which side of the kink a value is on
        values = [np.clip(np.rint(random(*v.shape, seed=i)), -1, 1) for i, v in enumerate(values)]
    rounded = [pf.tensor(v).to(getattr(pf, dtype)) for v in values]

    def run(tensors):
        leaves = [t.detach().requires_grad_(True) for t in tensors]
        x, w, b, v, c, r = leaves
        y = F.linear(ACTIVATIONS[name](F.linear(x, w, b), r), v, c)
        y.backward(pf.ones_like(y))
        with pf.no_grad():
            z = ACTIVATIONS[name](F.linear(x, w, b), r)
        return [t.detach().cpu().to(pf.float64).numpy() for t in (y, z, *(leaf.grad for leaf in leaves if leaf.grad is not None))]

    eps = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-24}[dtype]
    for got, want in zip(run([t.to(DEVICE) for t in rounded]), run([t.to(pf.float64) for t in rounded]), strict=True):
        scale = np.sqrt((want**2).mean())
        assert np.abs(got - want).max() <= (40 if dtype != "float32" else 400) * eps * max(scale, np.abs(want).max() / 8), name


@pytest.mark.skipif(DEVICE != "cuda", reason="PYFLAME_TEST_DEVICE is not cuda")
@pytest.mark.parametrize("name,groups", [("bias", 1), ("relu", 1), ("gelu_tanh", 1), ("residual", 1), ("residual_relu", 1), ("gelu", 2), ("silu", 2)])
def test_the_library_does_it(name, groups):
    x, w, b, r = (pf.tensor(random(*s)).to(pf.bfloat16).to(DEVICE) for s in ((4096, 1024), (2048, 1024), (2048,), (4096, 2048)))
    with pf.no_grad():
        text = pf.explain(lambda: ACTIVATIONS[name](F.linear(x, w, b), r))
    assert text.count("gpu.blas") >= 1 and "gpu.loop" not in text if groups == 1 else "gpu.loop" in text, text


@pytest.mark.skipif(DEVICE != "cpu", reason="the CPU's kernel for vectors")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("kept", [False, True])
def test_a_vector_times_a_matrix_and_what_follows_are_one_step(dtype, transposed, batch, kept):
    x, w = random(*batch, 1, 70).astype(dtype), random(*batch, 70, 300).astype(dtype)
    b = random(300).astype(dtype)
    px, pb = pf.tensor(x), pf.tensor(b)
    pw = pf.tensor(np.ascontiguousarray(w.swapaxes(-1, -2))).transpose(-1, -2) if transposed else pf.tensor(w)

    def step():
        product = px @ pw
        result = pf.relu(product + pb)
        return (result, product) if kept else result

    if os.environ.get("PYFLAME_WINDOW") != "1":  # in windows of one op nothing follows
        assert "cpu.gemv, matmul with epilogue" in pf.explain(step)
    got = step()
    result, product = got if kept else (got, None)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(result.numpy(), np.maximum(x @ w + b, 0), rtol=tolerance, atol=10 * tolerance)
    if kept:
        np.testing.assert_allclose(product.numpy(), x @ w, rtol=tolerance, atol=10 * tolerance)
