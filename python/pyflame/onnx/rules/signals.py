"""Rules of signal processing."""
import numpy as np

import pyflame as pf

from ..table import op
from ..values import dtype_of, to_tensor


def _window(first, second, third):
    def make(node):
        dtype, periodic = dtype_of(node.attr("output_datatype", 1), str(node)), node.attr("periodic", 1)

        def run(size):
            size = int(size)
            x = 2 * np.pi * np.arange(size) / (size if periodic else size - 1)
            return to_tensor((first - second * np.cos(x) + third * np.cos(2 * x)).astype(np.float64)).to(dtype=dtype)

        return run

    return make


op("HannWindow", host=(0,))(_window(0.5, 0.5, 0.0))
op("HammingWindow", host=(0,))(_window(25 / 46, 21 / 46, 0.0))
op("BlackmanWindow", host=(0,))(_window(0.42, 0.5, 0.08))


@op("MelWeightMatrix", host=(0, 1, 2, 3, 4))
def mel_weights(node):
    dtype = dtype_of(node.attr("output_datatype", 1), str(node))

    def mel(hertz):
        return 2595 * np.log10(1 + np.asarray(hertz, np.float64) / 700)

    def run(bins, length, rate, low, high):
        bins, length = int(bins), int(length)
        edges = np.arange(bins + 2, dtype=np.float64) * (mel(high) - mel(low)) / (bins + 2) + mel(low)
        edges = ((length + 1) * (700 * (10 ** (edges / 2595) - 1)) // int(rate)).astype(np.int64)
        result = np.zeros((length // 2 + 1, bins))
        for k in range(bins):
            a, b, c = edges[k:k + 3]
            if b == a:
                result[b, k] = 1
            else:
                result[a:b + 1, k] = (np.arange(a, b + 1) - a) / (b - a)
            if c != b:
                result[b:c, k] = (c - np.arange(b, c)) / (c - b)
        return to_tensor(result).to(dtype=dtype)

    return run


def _matrix(count, rows, sign, dtype, device):
    """cos and sin of the discrete Fourier transform."""
    angle = 2 * np.pi * (np.outer(np.arange(count), np.arange(rows)) % count) / count
    return pf.tensor(np.cos(angle), device=device).to(dtype=dtype), pf.tensor(sign * np.sin(angle), device=device).to(dtype=dtype)


def _dft(x, axis, length, inverse, onesided):
    """The transform of the pairs (re, im) in the last dim, as matrix products."""
    x = x.movedim(axis, -2)
    size = x.shape[-2]
    length = size if length is None else length
    if length < size:
        x = x.narrow(-2, 0, length)
    elif length > size:
        x = pf.nn.functional.pad(x, [0, 0, 0, length - size])
    cos, sin = _matrix(length, length // 2 + 1 if onesided and not inverse else length, 1.0 if inverse else -1.0, x.dtype, x.device)
    re = x.select(-1, 0)
    if x.shape[-1] == 1:
        y = pf.stack([pf.matmul(re, cos), pf.matmul(re, sin)], -1)
    else:
        im = x.select(-1, 1)
        y = pf.stack([pf.matmul(re, cos) - pf.matmul(im, sin), pf.matmul(re, sin) + pf.matmul(im, cos)], -1)
    if inverse:
        y = y / length
    return y.movedim(-2, axis)


def _full_spectrum(x, axis, length):
    """The other half of a one-sided spectrum."""
    count = x.shape[axis]
    total = 2 * (count - 1) if length is None else length
    x = x.movedim(axis, 0)
    rest = pf.flip(x.narrow(0, 1, total - count), (0,))
    rest = rest * pf.tensor(np.array([1.0, -1.0], np.float32), device=x.device).to(dtype=x.dtype)
    return pf.cat([x, rest], 0).movedim(0, axis)


def _transform(x, axis, length, inverse, onesided):
    if inverse and onesided:
        x = _full_spectrum(x, axis, length)
        return _dft(x, axis, length, True, False).narrow(-1, 0, 1)
    return _dft(x, axis, length, inverse, onesided)


@op("DFT", since=20, host=(1, 2))
def dft(node):
    inverse, onesided = node.attr("inverse", 0), node.attr("onesided", 0)

    def run(x, length=None, axis=-2):
        return _transform(x, int(axis) % x.dim(), None if length is None else int(length), inverse, onesided)

    return run


@op("DFT", host=(1,))
def dft_17(node):
    axis, inverse, onesided = node.attr("axis", 1), node.attr("inverse", 0), node.attr("onesided", 0)
    return lambda x, length=None: _transform(x, axis % x.dim(), None if length is None else int(length), inverse, onesided)


@op("STFT", host=(1, 3))
def stft(node):
    onesided = node.attr("onesided", 1)

    def run(x, step, window=None, length=None):
        step, length = int(step), window.shape[0] if length is None else int(length)
        count = (x.shape[1] - length) // step + 1
        index = np.arange(count)[:, None] * step + np.arange(length)
        frames = x.index_select(1, pf.tensor(index.reshape(-1), device=x.device)).reshape(x.shape[0], count, length, x.shape[2])
        if window is not None:
            frames = frames * window.reshape(1, 1, -1, 1)
        return _dft(frames, 2, None, False, onesided)

    return run
