"""pyflame.fft, stft and istft against NumPy. The transforms themselves are in the case tables (testing/cases/complex.py)."""
import numpy as np
import pytest

import pyflame as pf

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6, 10)).astype(np.float32)
Z = (X + 1j * RNG.standard_normal(X.shape)).astype(np.complex64)
NORMS = (None, "ortho", "forward", "backward")


def close(got, want):
    np.testing.assert_allclose(got.numpy(), want.astype(got.numpy().dtype), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_dim(name, norm):
    x = X if name in ("rfft", "ihfft") else Z
    for n, dim in ((None, -1), (8, 1), (13, 2), (1, 0), (4, -3)):
        close(getattr(pf.fft, name)(pf.tensor(x), n, dim, norm), getattr(np.fft, name)(x.astype(np.complex128 if x is Z else float), n, dim, norm))
    if name not in ("rfft", "ihfft"):
        close(getattr(pf.fft, name)(pf.tensor(X), norm=norm), getattr(np.fft, name)(X.astype(float), norm=norm))
    close(getattr(pf.fft, name)(pf.arange(7)), getattr(np.fft, name)(np.arange(7)))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_dims(name, norm):
    x = X if name.startswith("r") else Z
    for s, dim in ((None, None), ((5, 12), (0, 2)), ((4, 7), (1, 0)), (None, (2, 0))):
        kw = {} if dim is None else {"axes": dim}
        close(getattr(pf.fft, name)(pf.tensor(x), s=s, norm=norm, **({} if dim is None else {"dim": dim})), getattr(np.fft, name)(x, s=s, norm=norm, **kw))


def test_hermitian_in_several_dims_is_the_inverse_of_its_inverse():
    for inverse, forward in (("ihfftn", "hfftn"), ("ihfft2", "hfft2")):
        close(getattr(pf.fft, forward)(getattr(pf.fft, inverse)(pf.tensor(X))), X)
    close(pf.fft.hfftn(pf.tensor(Z), dim=(0, 2)), np.fft.hfft(np.fft.fft(Z, axis=0), axis=2))
    close(pf.fft.ihfftn(pf.tensor(X), dim=(0, 2)), np.fft.ifft(np.fft.ihfft(X, axis=2), axis=0))


# 8 first: half a vector of 16 lanes; odd counts of groups; a radix once; primes by Rader's algorithm (n - 1 has small factors: 37, 251, 337) and by
# Bluestein's (47, 107, 1019); products of those.
LENGTHS = (5, 9, 11, 16, 24, 37, 40, 47, 72, 74, 81, 104, 107, 120, 125, 143, 144, 250, 251, 256, 288, 337, 343, 360, 500, 512, 625, 729, 1001, 1008, 1019, 1024, 2401, 4096)


@pytest.mark.parametrize("dtype, limit", [(np.complex64, 2e-6), (np.complex128, 1e-14)])
def test_lengths(dtype, limit):
    for n in LENGTHS:
        z = (RNG.standard_normal((2, n, 11)) + 1j * RNG.standard_normal((2, n, 11))).astype(dtype)
        for name in ("fft", "ifft"):
            want = getattr(np.fft, name)(z.astype(np.complex128), axis=1)
            size = np.sqrt((np.abs(want) ** 2).mean())
            columns = getattr(pf.fft, name)(pf.tensor(z), dim=1).numpy()
            assert np.abs(columns - want).max() < limit * size, (n, name)
            lines = getattr(pf.fft, name)(pf.tensor(np.ascontiguousarray(z.transpose(0, 2, 1)))).numpy()
            assert np.abs(lines.transpose(0, 2, 1) - want).max() < limit * size, (n, name)


@pytest.mark.parametrize("n", [65536, 65536 + 32, 90000, 3 << 16])
def test_long_lines_both_ways(n):
    z = (RNG.standard_normal((2, n)) + 1j * RNG.standard_normal((2, n))).astype(np.complex64)
    for name in ("fft", "ifft"):
        want = getattr(np.fft, name)(z.astype(np.complex128))
        got = getattr(pf.fft, name)(pf.tensor(z)).numpy()
        assert np.abs(got - want).max() < 3e-6 * np.sqrt((np.abs(want) ** 2).mean()), name


@pytest.mark.parametrize("shape, dim", [((3, 64, 40), 1), ((90000,), 0), ((40, 1009), 1)])
def test_bits_do_not_depend_on_the_number_of_threads(shape, dim):
    z = pf.tensor((RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(np.complex64))
    before = pf.get_num_threads()
    try:
        bits = []
        for threads in (1, 2):
            pf.set_num_threads(threads)
            bits.append(pf.fft.fft(z, dim=dim).numpy().tobytes())
    finally:
        pf.set_num_threads(before)
    assert bits[0] == bits[1]


def test_orders():
    for n in (1, 4, 5):
        close(pf.fft.fftfreq(n, 0.5), np.fft.fftfreq(n, 0.5))
        close(pf.fft.rfftfreq(n, 0.5), np.fft.rfftfreq(n, 0.5))
    for name in ("fftshift", "ifftshift"):
        for dim in (None, 0, (0, 2)):
            close(getattr(pf.fft, name)(pf.tensor(X), dim), getattr(np.fft, name)(X, dim))


def frames(x, n, hop, window):
    return np.stack([np.fft.rfft(x[:, k:k + n] * window) for k in range(0, x.shape[1] - n + 1, hop)], -1)


@pytest.mark.parametrize("n, hop, win, center, normalized", [(16, None, None, True, False), (16, 5, 12, True, True), (15, 4, 15, False, False), (8, 8, None, True, False)])
def test_stft_and_back(n, hop, win, center, normalized):
    x = RNG.standard_normal((2, 100)).astype(np.float32)
    window = np.hanning((win or n) + 2)[1:-1].astype(np.float32)
    got = pf.stft(pf.tensor(x), n, hop, win, pf.tensor(window), center=center, normalized=normalized, return_complex=True)
    padded = np.pad(x, [(0, 0), (n // 2, n // 2)], mode="reflect") if center else x
    left = (n - window.size) // 2
    close(got, frames(padded, n, hop or n // 4, np.pad(window, (left, n - window.size - left))) / (np.sqrt(n) if normalized else 1))
    pairs = pf.stft(pf.tensor(x), n, hop, win, pf.tensor(window), center=center, normalized=normalized, return_complex=False)
    assert pf.equal(pairs, pf.view_as_real(got))
    if center or win is None or win == n:
        back = pf.istft(got, n, hop, win, pf.tensor(window), center=center, normalized=normalized, length=90 if center else None)
        np.testing.assert_allclose(back.numpy(), x[:, :back.shape[1]], rtol=1e-3, atol=1e-4)
    one = pf.stft(pf.tensor(x[0]), n, hop, win, pf.tensor(window), center=center, normalized=normalized, return_complex=True)
    close(one, got[0].numpy())


def test_gradient_of_a_spectrum():
    x = pf.tensor(RNG.standard_normal(64), requires_grad=True)
    window = pf.tensor(np.hanning(16) + 0.1)
    spectrum = pf.stft(x, 16, 4, window=window, return_complex=True)
    (pf.istft(spectrum, 16, 4, window=window) ** 2).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy(), atol=1e-9)


def test_frequencies_of_nothing():
    assert pf.fft.fftfreq(0).shape == (0,)
    assert str(pf.fft.fftfreq(3, 0).tolist()) == "[nan, inf, -inf]" and str(pf.fft.rfftfreq(3, 0).tolist()) == "[nan, inf]"
