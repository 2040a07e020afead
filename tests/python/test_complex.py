"""Complex tensors against NumPy: creation, exchange, arithmetic, functions, gradients; and what they are not."""
import cmath
import copy
import pickle
import warnings

import numpy as np
import pytest

import pyflame as pf

RNG = np.random.default_rng(0)


def numbers(*shape, dtype=np.complex64):
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


A, B = numbers(4, 5), numbers(4, 5)
C, D = numbers(4, 5, dtype=np.complex128), numbers(4, 5, dtype=np.complex128)
REAL = RNG.standard_normal((4, 5)).astype(np.float32)


def close(got, want):
    got = got.detach().numpy()
    assert got.dtype == want.dtype and got.shape == want.shape
    eps = 1e-5 if want.dtype in (np.complex64, np.float32) else 1e-12
    np.testing.assert_allclose(got, want, rtol=eps, atol=eps)


def test_creation_and_exchange():
    z = pf.tensor([1 + 2j, 3])
    assert z.dtype == pf.complex64 and z.tolist() == [1 + 2j, 3] and z[0].item() == 1 + 2j and complex(z[1]) == 3
    assert pf.tensor(A).dtype == pf.complex64 and pf.tensor(C).dtype == pf.complex128
    assert (pf.tensor(C).numpy() == C).all() and (pf.from_numpy(A.copy()).numpy() == A).all()
    assert (np.from_dlpack(pf.tensor(A)) == A).all() and (pf.from_dlpack(A.copy()).numpy() == A).all()
    assert (pickle.loads(pickle.dumps(pf.tensor(A))).numpy() == A).all() and (copy.deepcopy(pf.tensor(C)).numpy() == C).all()
    assert pf.zeros(2, dtype=pf.complex64).tolist() == [0, 0] and pf.full((2,), 1 - 1j).tolist() == [1 - 1j] * 2
    assert pf.ones(2, dtype=pf.cdouble).dtype == pf.complex128 and pf.full((1,), 2j, dtype=pf.complex128).tolist() == [2j]
    assert pf.zeros(0, dtype=pf.complex64).tolist() == []
    for make, variance in ((pf.randn, 1.0), (pf.rand, 2 / 3)):
        drawn = make(20000, dtype=pf.complex64).numpy()
        assert abs(np.mean(np.abs(drawn) ** 2) - variance) < 0.05


def test_memory_is_shared_with_numpy_and_views():
    a = A.copy()
    z = pf.from_numpy(a)
    z *= 1j
    np.testing.assert_allclose(a, A * 1j)
    pairs = pf.view_as_real(z)
    assert pairs.shape == (4, 5, 2) and pf.view_as_complex(pairs).shape == (4, 5)
    pairs[0, 0, 1] = 7
    assert a[0, 0].imag == 7
    z.real = 1.0
    z.imag[1] = 2.0
    assert (a.real == 1).all() and (a[1].imag == 2).all()


def test_printing():
    assert repr(pf.tensor([1 + 2j, -0.5j])) == "tensor([ 1.0000+2.0000j, -0.0000-0.5000j], dtype=pyflame.complex64)"
    assert str(pf.complex64) == "pyflame.complex64" and pf.complex64.is_complex and pf.complex128.itemsize == 16


def test_promotion():
    z, w = pf.tensor(A), pf.tensor(C)
    x = pf.tensor(REAL)
    assert (z + x).dtype == pf.complex64 and (z + x.double()).dtype == pf.complex128 and (x + w).dtype == pf.complex128
    assert (x + 1j).dtype == pf.complex64 and (x.double() * 1j).dtype == pf.complex128 and (pf.arange(3) * 1j).dtype == pf.complex64
    assert (x + pf.tensor(1j, dtype=pf.complex128)).dtype == pf.complex64 and (z * pf.tensor(2.0, dtype=pf.float64)).dtype == pf.complex64
    assert z.to(pf.complex128).dtype == pf.complex128 and x.to(pf.complex64).dtype == pf.complex64 and z.bool().all()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert (z.float().numpy() == A.real).all()
    assert "discards the imaginary part" in str(caught[0].message)


BINARY = [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("pow", np.power), ("eq", np.equal), ("ne", np.not_equal)]


@pytest.mark.parametrize("name, f", BINARY, ids=[n for n, _ in BINARY])
def test_binary(name, f):
    op = getattr(pf, name)
    for a, b in ((A, B), (C, D), (A, B[:1]), (A, REAL), (REAL, A), (A.T, B.T)):
        close(op(pf.tensor(np.ascontiguousarray(a)), pf.tensor(np.ascontiguousarray(b))), f(a, b))
    for number in (2, -1.5, 0.5 - 2j):
        close(op(pf.tensor(A), number), f(A, np.complex64(number)))
        close(op(number, pf.tensor(C)), f(np.complex128(number), C))


UNARY = ["abs", "angle", "conj", "exp", "log", "log2", "log10", "log1p", "expm1", "exp2", "sqrt", "reciprocal", "square", "sin", "cos", "tan", "sinh", "cosh", "tanh", "neg",
         "asin", "acos", "atan", "asinh", "acosh", "atanh", "sgn", "isnan", "isinf", "isfinite", "logical_not"]
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "neg": "negative"}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    f = (lambda z: (z / np.abs(z)).astype(z.dtype)) if name == "sgn" else getattr(np, NUMPY.get(name, name))
    for z in (A, C, C[:, ::2], C[:0]):
        close(getattr(pf, name)(pf.tensor(z.copy())), f(z))


def test_functions_at_special_values():
    for z in (0j, -1 + 0j, complex(-1, -0.0), 4 + 0j, -4 + 0j, 1e-30 + 1e-30j, 1e30 + 1e30j, 100 + 1j):
        for name in ("sqrt", "abs", "angle", "tanh"):
            with np.errstate(all="ignore"):
                close(getattr(pf, name)(pf.tensor([z])), getattr(np, name)(np.array([z], np.complex64)))


def _scattered(z):
    want = z.copy()
    want[0, :2] = z[1, :2]
    return want


def test_reductions_and_movement():
    for z in (A, C):
        t = pf.tensor(z)
        close(t.sum(), np.asarray(z.sum()))
        close(t.sum(0), z.sum(0))
        close(t.mean(1), z.mean(1))
        close(t.prod(1), z.prod(1))
        close(t.prod(), np.asarray(z.prod()))
        close(t.cumsum(1), np.cumsum(z, 1))
        close(t.var(1, correction=0), z.var(1))
        close(t.T.contiguous(), np.ascontiguousarray(z.T))
        close(pf.cat([t, t[:2]]), np.concatenate([z, z[:2]]))
        close(t[1:, 2], z[1:, 2])
        close(t.index_select(1, pf.tensor([3, 0])), z[:, [3, 0]])
        close(t.gather(1, pf.tensor([[0, 1], [4, 2]])), np.take_along_axis(z[:2], np.array([[0, 1], [4, 2]]), 1))
        put = t.clone()
        put[pf.tensor([2, 0])] = t[:2]
        put[t.real > 0] = 1j
        want = z.copy()
        want[[2, 0]] = z[:2]
        want[z.real > 0] = 1j
        close(put, want)
        close(t.scatter(1, pf.tensor([[0, 1]]), t[1:2, :2]), _scattered(z))
        close(pf.where(pf.tensor(z.real > 0), t, 1j), np.where(z.real > 0, z, z.dtype.type(1j)))
        close(t.flip(0), z[::-1].copy())
        close(pf.roll(t, 1, 0), np.roll(z, 1, 0))
        close(t.clone().fill_(2 - 1j), np.full_like(z, 2 - 1j))
        close(pf.nn.functional.pad(t, [1, 0]), np.pad(z, [(0, 0), (1, 0)]))


@pytest.mark.parametrize("shape", [(3, 5), (130, 64), (7, 700), (3, 1000), (2, 3, 513), (2, 40000)])
def test_sums_of_rows_have_the_bits_of_sums_of_parts(shape):
    """Both parts are summed as the elements are read, in the order in which they are summed alone."""
    z = pf.tensor(numbers(*shape))
    re, im = (pf.tensor(p.copy()) for p in (z.numpy().real, z.numpy().imag))
    for dims in ((-1,), tuple(range(len(shape)))):
        total = z.sum(dims).numpy()
        assert np.array_equal(total.real, re.sum(dims).numpy()) and np.array_equal(total.imag, im.sum(dims).numpy())
    both, squares = z.sum(-1), (z * z).sum(-1)  # the elements are also read by another formula
    assert np.array_equal(both.numpy().imag, im.sum(-1).numpy())
    assert np.allclose(squares.numpy(), (z.numpy().astype(np.complex128) ** 2).sum(-1), atol=1e-3, rtol=1e-4)
    scaled = (z.sum(-1, keepdim=True) * z).numpy()  # the sums are used in the same loop
    assert np.allclose(scaled, z.numpy().sum(-1, keepdims=True, dtype=np.complex128) * z.numpy(), atol=1e-3, rtol=1e-3)


def test_products():
    for a, b in ((numbers(3, 4, 6), numbers(3, 6, 2)), (numbers(4, 6), numbers(6)), (numbers(7, dtype=np.complex128), numbers(7, dtype=np.complex128))):
        close(pf.matmul(pf.tensor(a), pf.tensor(b)), np.asarray(np.matmul(a, b)))
    close(pf.einsum("ij,kj->ik", pf.tensor(A), pf.tensor(B)), A @ B.T)


def wirtinger(f, z, step=1e-6):
    """dL/dRe + i dL/dIm of a real function, by differences."""
    g = np.zeros_like(z)
    for at in np.ndindex(z.shape):
        for unit in (1, 1j):
            high, low = z.copy(), z.copy()
            high[at] += step * unit
            low[at] -= step * unit
            g[at] += unit * (f(high) - f(low)) / (2 * step)
    return g


W = numbers(6, dtype=np.complex128)
LOSSES = {name: (lambda z, name=name: (getattr(z, name)() * pf.tensor(W)).real.sum()) for name in UNARY if name not in ("abs", "angle", "isnan", "isinf", "isfinite", "logical_not")}
LOSSES |= {
    "abs": lambda z: z.abs().sum(), "angle": lambda z: z.angle().sum(), "mul": lambda z: (z * z.conj() * z * pf.tensor(W)).imag.sum(), "div": lambda z: (pf.tensor(W) / z).real.sum(),
    "pow": lambda z: (z ** (0.5 + 1j)).real.sum(), "number to": lambda z: ((2 + 1j) ** z).imag.sum(), "matmul": lambda z: (z.reshape(2, 3) @ z.reshape(3, 2)).real.sum(), "prod": lambda z: z.prod().real,
    "view": lambda z: (pf.view_as_real(z) * pf.arange(12.0, dtype=pf.float64).reshape(6, 2)).sum(), "parts": lambda z: (pf.complex(z.imag, z.real * 2) * pf.tensor(W)).real.sum(),
    "movement": lambda z: (pf.cat([z[1:], z[:1] * 2]) * pf.tensor(W)).real.sum(), "sum": lambda z: z.sum().abs(), "where": lambda z: pf.where(z.real > 0, z, z * 1j).imag.sum(),
    "fft": lambda z: (pf.fft.fft(z) * pf.tensor(W)).real.sum(), "irfft": lambda z: (pf.fft.irfft(z) * pf.arange(10.0, dtype=pf.float64)).sum(),
    "hfft": lambda z: (pf.fft.hfft(z, 9) * pf.arange(9.0, dtype=pf.float64)).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name):
    z0 = numbers(6, dtype=np.complex128)
    z = pf.tensor(z0, requires_grad=True)
    LOSSES[name](z).backward()
    np.testing.assert_allclose(z.grad.numpy(), wirtinger(lambda v: LOSSES[name](pf.tensor(v)).item(), z0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["exp", "mul", "abs", "matmul", "sqrt", "fft", "div"])
def test_second_gradients(name):
    z0 = numbers(6, dtype=np.complex128)
    direction = pf.tensor(numbers(6, dtype=np.complex128))

    def along(z):
        g, = pf.autograd.grad(LOSSES[name](z), z, create_graph=True)
        return (g * direction.conj()).real.sum()

    z = pf.tensor(z0, requires_grad=True)
    value = along(z)
    if value.requires_grad:
        value.backward()
    want = wirtinger(lambda v: along(pf.tensor(v, requires_grad=True)).item(), z0)
    np.testing.assert_allclose(np.zeros(6) if z.grad is None else z.grad.numpy(), want, rtol=1e-5, atol=1e-5)


def test_a_chain_of_formulas_is_one_loop():
    a, b = pf.tensor(numbers(1000)), pf.tensor(numbers(1000))
    text = pf.explain(lambda: (a * b).exp() * a.conj())
    assert " in 1 step on cpu" in text, text


@pytest.mark.parametrize("name, input_shape, weight_shape, arguments", [
    ("conv1d", (2, 4, 9), (6, 2, 3), {"groups": 2, "padding": 1}), ("conv1d", (4, 9), (6, 4, 3), {"stride": 2}), ("conv2d", (2, 2, 5, 6), (3, 2, 3, 2), {"padding": "same"}),
    ("conv3d", (1, 2, 3, 4, 3), (3, 2, 2, 2, 2), {}), ("conv_transpose1d", (2, 4, 5), (4, 3, 3), {"stride": 2}), ("conv_transpose2d", (1, 2, 3, 4), (2, 3, 2, 2), {"padding": 1}),
    ("conv_transpose3d", (1, 2, 2, 3, 2), (2, 3, 2, 2, 2), {})])
def test_convolutions(name, input_shape, weight_shape, arguments):
    """A complex number is the real matrix [[re, -im], [im, re]], of channels; so are the gradients."""
    rng, transposed = np.random.default_rng(1), "transpose" in name
    f = getattr(pf.nn.functional, name)
    parts = [pf.tensor(rng.standard_normal((2, *shape)), requires_grad=True) for shape in (input_shape, weight_shape, (weight_shape[1 if transposed else 0],))]
    x, w, b = (pf.complex(p[0], p[1]) for p in parts)
    y = f(x, w, b, **arguments)
    real = lambda u, v: f(u, v, **arguments)  # noqa: E731
    shape = (-1, *(1,) * (len(weight_shape) - 2))
    re = real(x.real, w.real) - real(x.imag, w.imag) + b.real.reshape(*shape)
    im = real(x.real, w.imag) + real(x.imag, w.real) + b.imag.reshape(*shape)
    assert y.dtype == pf.complex128
    np.testing.assert_allclose(y.detach().numpy(), re.detach().numpy() + 1j * im.detach().numpy(), atol=1e-12)
    for got, want in zip(pf.autograd.grad((y.abs() ** 2).sum(), parts, retain_graph=True), pf.autograd.grad((re * re + im * im).sum(), parts)):
        np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-11)


def test_random_parts():
    pf.manual_seed(0)
    x = pf.empty(4000, dtype=pf.complex128)
    assert x.uniform_(-1, 3) is x
    for part in (x.real, x.imag):
        assert -1 <= part.min().item() and part.max().item() < 3 and abs(part.mean().item() - 1) < 0.1
    x.normal_(1j, 2)
    assert abs((x - 1j).abs().square().mean().item() - 4) < 0.4 and abs(x.imag.mean().item() - 1) < 0.1
    layer = pf.nn.Conv2d(2, 3, 3, dtype=pf.complex64)
    assert layer(pf.ones(1, 2, 4, 4, dtype=pf.complex64)).shape == (1, 3, 2, 2) and layer.weight.imag.abs().max().item() > 0


def of_parts(f):
    """f as a function of real tensors [.., 2], which gradcheck takes."""
    return lambda *xs: pf.view_as_real(f(*map(pf.view_as_complex, xs)))


def parts(z):
    return pf.view_as_real(z).detach().clone().requires_grad_()


def test_running_products():
    z = C.copy()
    z[1, 2] = z[3, 2] = 0
    for shape, dim in (((4, 5), 0), ((4, 5), -1), ((0, 3), 0), ((20,), 0)):
        close(pf.tensor(np.resize(z, shape)).cumprod(dim), np.cumprod(np.resize(z, shape), dim))
    close(pf.tensor(z[0, 0]).cumprod(0), z[0, 0])
    close(pf.cumprod(pf.tensor(REAL), 0, dtype=pf.complex128), np.cumprod(REAL.astype(np.complex128), 0))
    x, w = pf.tensor(z, requires_grad=True), pf.tensor(D)
    x.cumprod(0).backward(w)
    for i, j in ((0, 2), (1, 2), (3, 2), (2, 0)):  # the derivative by one element: the products with 1 in its place, from there on
        ones = z.copy()
        ones[i, j] = 1
        np.testing.assert_allclose(x.grad[i, j].item(), (D * np.cumprod(ones, 0).conj())[i:, j].sum(), rtol=1e-12)
    f, y = of_parts(lambda x: x.cumprod(1)), parts(pf.tensor(C[:2, :3]))
    assert pf.autograd.gradcheck(f, (y,)) and pf.autograd.gradgradcheck(f, (y,))


def test_logarithms_of_sums_of_exponentials():
    a, b = pf.tensor(C, requires_grad=True), pf.tensor(3 * D, requires_grad=True)
    close(pf.exp(pf.logaddexp(a, b)), np.exp(C) + np.exp(3 * D))
    close(pf.exp(pf.logcumsumexp(a, 1)), np.cumsum(np.exp(C), 1))
    close(pf.exp(pf.tensor(C[0, 0]).logcumsumexp(0)), np.exp(C[0, 0]))
    close(pf.logaddexp(pf.tensor(REAL), pf.tensor(A)).exp(), np.exp(REAL) + np.exp(A))
    close(pf.logcumsumexp(pf.tensor(C + 800), 0) - 800, np.log(np.cumsum(np.exp(C), 0)))
    inf = float("inf")
    low = pf.tensor([complex(-inf, 0), complex(-inf, 0), 1 + 2j])
    assert low.logcumsumexp(0).tolist() == [complex(-inf, 0), complex(-inf, 0), 1 + 2j]
    assert pf.logaddexp(pf.tensor([complex(inf, 0)]), low[:1]).tolist() == [complex(inf, 0)]
    for f, args in ((pf.logaddexp, (a, b)), (lambda x: pf.logcumsumexp(x, 0), (a,))):
        assert pf.autograd.gradcheck(of_parts(f), tuple(map(parts, args)))
    a.logcumsumexp(1).backward(pf.tensor(D))
    assert pf.isfinite(a.grad).all()


ERRORS = {
    "comparison": (TypeError, "lt: not available for complex tensors; got", lambda z: z < z),
    "maximum": (TypeError, "maximum: not available", lambda z: pf.maximum(z, z)),
    "sort": (TypeError, "sort: not available", lambda z: z.sort()),
    "products by index": (TypeError, "scatter_reduce: 'prod' is not available", lambda z: z.scatter_reduce(0, pf.tensor([0]), z, "prod")),
    "floor": (TypeError, "floor: not available", lambda z: z.floor()),
    "softmax": (TypeError, "softmax: needs a floating dtype; got complex64", lambda z: z.softmax(0)),
    "logaddexp2": (TypeError, "logaddexp2: not available", lambda z: pf.logaddexp2(z, z)),
    "backward": (RuntimeError, "a gradient can be made up for a real output only", lambda z: (z.requires_grad_() * 2).sum().backward()),
    "imag of real": (TypeError, "imag: not complex", lambda z: pf.ones(2).imag),
    "view_as_real": (TypeError, "view_as_real: not complex", lambda z: pf.view_as_real(pf.ones(2))),
    "view_as_complex": (ValueError, "the last dim is not of two parts", lambda z: pf.view_as_complex(pf.ones(3))),
    "view_as_complex strides": (ValueError, "do not lie in pairs", lambda z: pf.view_as_complex(pf.ones(2, 3).T)),
    "view_as_complex dtype": (TypeError, "not that of parts", lambda z: pf.view_as_complex(pf.ones(2, dtype=pf.int64))),
    "complex dtypes": (TypeError, "complex: dtypes differ", lambda z: pf.complex(pf.ones(2), pf.ones(2).double())),
    "complex of integers": (TypeError, "complex: the dtype is not that of parts", lambda z: pf.complex(pf.arange(2), pf.arange(2))),
    "polar": (RuntimeError, "polar: expected both inputs", lambda z: pf.polar(pf.ones(2), pf.arange(2))),
    "number in a real tensor": (TypeError, "a complex number for a real dtype", lambda z: pf.ones(2).fill_(1j)),
    "in place": (RuntimeError, "can't be cast to float32", lambda z: pf.ones(2).add_(z)),
    "chalf": (TypeError, "complex32 is not available", lambda z: z.chalf()),
    "complex32": (TypeError, "not a dtype of PyFlame; got pyflame.complex32", lambda z: pf.zeros(1, dtype=pf.complex32)),
    "rank": (ValueError, "too many dimensions", lambda z: pf.view_as_real(pf.ones(*[1] * 8, dtype=pf.complex64))),
    "fft n": (RuntimeError, "invalid number of data points; got 0", lambda z: pf.fft.fft(z, 0)),
    "fft norm": (RuntimeError, "invalid normalization mode; got 'x'", lambda z: pf.fft.fft(z, norm="x")),
    "fft dim": (IndexError, "dim out of range; got 1", lambda z: pf.fft.fft(z, dim=1)),
    "fft of a number": (IndexError, "a tensor without dims", lambda z: pf.fft.fft(z[0])),
    "fft half": (RuntimeError, "unsupported dtype", lambda z: pf.fft.fft(pf.ones(2, dtype=pf.float16))),
    "rfft": (RuntimeError, "expects a real input tensor", lambda z: pf.fft.rfft(z)),
    "irfft": (RuntimeError, "invalid number of data points; got 0", lambda z: pf.fft.irfft(z[:1])),
    "fftn dims": (RuntimeError, "must be unique", lambda z: pf.fft.fftn(z, dim=(0, 0))),
    "fftn sizes": (RuntimeError, "not one size for each dim", lambda z: pf.fft.fftn(z, s=(1, 2), dim=(0,))),
    "fftn more sizes": (RuntimeError, "more sizes than dims", lambda z: pf.fft.fftn(z, s=(1, 2))),
    "rfftn": (RuntimeError, "must transform at least one axis", lambda z: pf.fft.rfftn(pf.ones(2), dim=())),
    "stft": (RuntimeError, "requires the return_complex parameter", lambda z: pf.stft(pf.ones(10), 4)),
    "stft n_fft": (RuntimeError, "n_fft out of range; got 99", lambda z: pf.stft(pf.ones(10), 99, center=False, return_complex=True)),
    "stft hop": (RuntimeError, "hop_length is not positive", lambda z: pf.stft(pf.ones(10), 4, 0, return_complex=True)),
    "stft rank": (RuntimeError, "expected a 1-D or 2-D tensor", lambda z: pf.stft(pf.ones(1, 1, 9), 4, return_complex=True)),
    "stft win_length": (RuntimeError, "win_length out of range", lambda z: pf.stft(pf.ones(10), 4, win_length=5, return_complex=True)),
    "stft window": (RuntimeError, "the window is not a vector", lambda z: pf.stft(pf.ones(10), 4, window=pf.ones(3), return_complex=True)),
    "stft onesided": (RuntimeError, "cannot have onesided output", lambda z: pf.stft(pf.ones(10, dtype=pf.complex64), 4, onesided=True)),
    "stft align": (RuntimeError, "align_to_window should only", lambda z: pf.stft(pf.ones(10), 4, align_to_window=True, return_complex=True)),
    "istft real": (RuntimeError, "requires a complex-valued input", lambda z: pf.istft(pf.ones(3, 4), 4)),
    "istft size": (RuntimeError, "the number of frequencies does not fit", lambda z: pf.istft(pf.ones(5, 4, dtype=pf.complex64), 4, onesided=True)),
    "istft hop": (RuntimeError, "hop_length out of range", lambda z: pf.istft(pf.ones(3, 4, dtype=pf.complex64), 4, 9)),
    "istft empty": (RuntimeError, "istft: no transforms; got shape (3, 0)", lambda z: pf.istft(pf.ones(3, 0, dtype=pf.complex64), 4)),
    "istft window": (RuntimeError, "the sum of the squared windows is 0", lambda z: pf.istft(pf.ones(3, 4, dtype=pf.complex64), 4, window=pf.zeros(4))),
    "istft complex": (RuntimeError, "cannot have onesided input", lambda z: pf.istft(pf.ones(3, 4, dtype=pf.complex64), 4, return_complex=True)),
    "part in place": (NotImplementedError, "writing one part of a complex tensor", lambda z: pf.real(z.requires_grad_() * 1).fill_(1.0)),
}


@pytest.mark.parametrize("what", ERRORS)
def test_errors(what):
    error, text, call = ERRORS[what]
    with pytest.raises(error) as raised:
        call(pf.tensor([1 + 2j, 3]))
    assert text in str(raised.value)


def test_files(tmp_path):
    pf.save({"z": pf.tensor(A)}, str(tmp_path / "z.safetensors"))
    assert (pf.load(str(tmp_path / "z.safetensors"))["z"].numpy() == A).all()


def test_linspace_keeps_fractions():
    np.testing.assert_allclose(pf.linspace(4.3, -3, 3, dtype=pf.complex64).numpy(), np.linspace(4.3, -3, 3), rtol=1e-6)


def test_functions_near_their_singularities():
    """What cancels or overflows when it is written down plainly; expected is what NumPy says, unless it is given."""
    near_minus_one = -0.9999977 + 3.0103893e-06j
    for name, z, expected in (("log1p", near_minus_one, None), ("arctanh", near_minus_one, None), ("arctan", 1e-4 + 1.0001j, None), ("tanh", 30 + 1j, None),
                              ("log", 1 + 1e-5j, 5e-11 + 1e-5j), ("log1p", 1e200 + 1e200j, 460.863592 + 0.785398163j)):
        got = getattr(pf, name)(pf.tensor([z], dtype=pf.complex128)).numpy()[0]
        expected = getattr(np, name)(np.complex128(z)) if expected is None else expected
        np.testing.assert_allclose([got.real, got.imag], [expected.real, expected.imag], rtol=1e-6, err_msg=f"{name}({z})")


def test_functions_of_infinities_and_zeros():
    inf, nan = float("inf"), float("nan")
    z = lambda *parts: pf.tensor([complex(*parts)], dtype=pf.complex64)  # noqa: E731
    for got, expected in ((pf.exp(z(inf, 0)), complex(inf, 0)), (z(1, 0) / z(inf, 0), 0), (z(inf, 0) ** 0, 1), (z(nan, 0) ** 0, 1), (pf.sinh(z(100, 0)), complex(inf, 0)),
                          (pf.tanh(z(inf, 0)), 1), (pf.sigmoid(z(-inf, 0)), 0), (pf.reciprocal(z(inf, 1)), 0), (pf.atanh(z(inf, 1)), complex(0, np.pi / 2))):
        np.testing.assert_allclose(got.numpy(), [expected], rtol=1e-6)
    assert pf.abs(z(inf, nan)).item() == inf and pf.sqrt(z(1, inf)).numpy()[0] == complex(inf, inf)


@pytest.mark.parametrize("name", ["asin", "acos", "asinh", "acosh"])
@pytest.mark.parametrize("z", [2 + 0j, complex(2, -0.0), -2 + 0j, complex(-2, -0.0), 2j, complex(-0.0, 2), -2j, complex(-0.0, -2), 0.3 + 0.4j, -0.3 - 0.4j])
def test_gradients_on_a_branch_cut(name, z):
    """The slope on the side of the cut that the sign of zero says: differences along the cut stay on that side."""
    h = 1e-5
    along = (lambda s: complex(z.real + s, z.imag)) if abs(z.real) > 1e-3 else (lambda s: complex(z.real, z.imag + s))
    step = 1 if abs(z.real) > 1e-3 else 1j
    f = getattr(cmath, name)
    slope = (f(along(h)) - f(along(-h))) / (2 * h * step)
    x = pf.tensor(z, dtype=pf.complex128, requires_grad=True)
    y = getattr(x, name)()
    y.backward(pf.ones_like(y))
    assert abs(x.grad.item() - slope.conjugate()) < 1e-8
