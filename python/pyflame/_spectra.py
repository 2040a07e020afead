"""Short-time Fourier transforms: fft of overlapping, windowed frames, and its inverse; and small functions of complex numbers."""
from . import _C
from ._C import Tensor
from ._public import method

__all__ = ["cdouble", "cfloat", "istft", "polar", "stft"]

cfloat, cdouble = _C.complex64, _C.complex128


def _chalf(self, memory_format=None):
    """Always a TypeError: the dtype complex32 is not available. cfloat() casts to complex64, cdouble() to complex128."""
    raise TypeError("chalf: complex32 is not available; got a cast to it; expected complex64 or complex128; hint: cfloat()")


_chalf.__name__ = "chalf"
Tensor.chalf = _chalf


def polar(abs, angle, *, out=None):
    """Complex numbers of their absolute values and angles in radians; both float32 or float64 (RuntimeError otherwise)."""
    if abs.dtype != angle.dtype or abs.dtype not in (_C.float32, _C.float64):
        raise RuntimeError(f"polar: expected both inputs to be float32 or both float64; got {abs.dtype} and {angle.dtype}")
    result = _C.complex(abs * _C.cos(angle), abs * _C.sin(angle))
    return result if out is None else out.copy_(result)


def _window(op, input, window, win_length, n_fft):
    """The window in the middle of n_fft elements; None for one of ones that fills them."""
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{op}: win_length out of range; got {win_length}; expected 0 < win_length <= n_fft = {n_fft}")
    if window is not None and (window.ndim != 1 or window.shape[0] != win_length):
        raise RuntimeError(f"{op}: the window is not a vector of win_length elements; got {tuple(window.shape)}; expected ({win_length},)")
    if win_length == n_fft:
        return window
    if window is None:
        window = _C.ones(win_length, dtype=_part(input), device=input.device)
    left = (n_fft - win_length) // 2
    return _C.pad(window, [left, n_fft - win_length - left])


def _part(x):
    return _C.float64 if x.dtype in (_C.float64, _C.complex128) else _C.float32 if x.is_complex() else x.dtype


def _continued(batch, half, mode):
    """Signals with `half` more samples at both ends, by a mode of pad."""
    n = batch.shape[1]
    if mode != "reflect" or half >= n:
        return _C.pad(batch.unsqueeze(0), [half, half], mode).squeeze(0)
    # Copies of parts; pad would read the whole signal by index.
    return _C.cat([batch[:, 1:half + 1].flip(1), batch, batch[:, n - 1 - half:n - 1].flip(1)], 1)


@method
def stft(input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False, onesided=None, return_complex=None,
         align_to_window=None):
    """The transforms of frames of n_fft samples, one every hop_length (n_fft // 4): [B?, samples] -> complex [B?, frequencies, frames].

    A frame is multiplied with the window, which has win_length (n_fft) elements and zeros around it. center: frame t is around sample t * hop_length, of a
    signal that is continued by pad_mode at both ends. normalized: divided by the square root of n_fft. onesided: frequencies up to n_fft // 2 alone, the
    default for real signals. return_complex=False gives pairs [.., 2]. RuntimeError for arguments that do not fit.
    input: the samples, of a floating or complex dtype. align_to_window: without center, (n_fft - win_length) // 2 zeros are added at both ends of the signal, so that the first
    window begins at the first sample.
    """
    from . import fft

    if center and align_to_window:
        raise RuntimeError("stft: align_to_window should only be set when center = False; got both")
    if return_complex is None:
        if not input.is_complex() and not (window is not None and window.is_complex()):
            raise RuntimeError("stft: requires the return_complex parameter be given for real inputs; hint: return_complex=True")
        return_complex = True
    hop = n_fft // 4 if hop_length is None else hop_length
    if not (input.is_floating_point() or input.is_complex()) or input.ndim not in (1, 2):
        raise RuntimeError(f"stft: expected a 1-D or 2-D tensor of floats or complex numbers; got {input.dtype} of shape {tuple(input.shape)}")
    batch = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        batch = _continued(batch, n_fft // 2, pad_mode)
    length = batch.shape[1]
    win_length = n_fft if win_length is None else win_length
    if n_fft <= 0 or n_fft > length:
        raise RuntimeError(f"stft: n_fft out of range; got {n_fft}; expected 0 < n_fft <= {length}")
    if hop <= 0:
        raise RuntimeError(f"stft: hop_length is not positive; got {hop}; expected > 0")
    window = _window("stft", input, window, win_length, n_fft)
    if align_to_window and not center:
        left = (n_fft - win_length) // 2
        batch = _C.pad(batch, [left, left])
        length = batch.shape[1]
    frames = batch.unfold(1, n_fft, hop)
    if window is not None:
        frames = frames * window
    if onesided is None:
        onesided = not frames.is_complex()
    if onesided and frames.is_complex():
        raise RuntimeError("stft: cannot have onesided output if window or input is complex; hint: onesided=False")
    norm = "ortho" if normalized else None
    result = (fft.rfft if onesided else fft.fft)(frames, norm=norm).transpose(1, 2)
    result = result if input.ndim == 2 else result.squeeze(0)
    return result if return_complex else _C.view_as_real(result)


def _overlapped(frames, hop):
    """The sums of frames [B, frames, n] that begin hop elements after each other: [B, (frames - 1) * hop + n]."""
    batches, count, n = frames.shape
    steps = -(-n // hop)
    parts = _C.pad(frames, [0, steps * hop - n]).reshape(batches, count, steps, hop)
    total = None
    for k in range(steps):
        moved = _C.pad(parts[:, :, k], [0, 0, k, steps - 1 - k])
        total = moved if total is None else total + moved
    return total.reshape(batches, -1)[:, :(count - 1) * hop + n]


@method
def istft(input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None, return_complex=False):
    """The inverse of stft by adding overlapping frames: complex [B?, frequencies, frames] -> [B?, samples].

    The sum is divided by that of the squared windows, which must not be 0 anywhere (RuntimeError; it is read, so this is a sync point). length: of the result.
    input, n_fft, hop_length, win_length, window, center, normalized: what stft gave and what it was given. Without length, center leaves out n_fft // 2 samples at both ends.
    onesided: input has n_fft // 2 + 1 frequencies instead of n_fft; None: its size says it. return_complex: the result is complex, for input that is not onesided.
    """
    from . import fft

    hop = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    if not input.is_complex() or input.ndim not in (2, 3):
        raise RuntimeError(f"istft: requires a complex-valued input of 2 or 3 dims; got {input.dtype} of shape {tuple(input.shape)}; hint: view_as_complex()")
    if input.numel() == 0:
        raise RuntimeError(f"istft: no transforms; got shape {tuple(input.shape)}; expected at least one number of each dim")
    spectra = (input if input.ndim == 3 else input.unsqueeze(0)).transpose(1, 2)
    count, size = spectra.shape[1:]
    onesided = size != n_fft if onesided is None else onesided
    if size != (n_fft // 2 + 1 if onesided else n_fft):
        raise RuntimeError(f"istft: the number of frequencies does not fit; got {size} for n_fft {n_fft}; expected {n_fft // 2 + 1 if onesided else n_fft}")
    if not 0 < hop <= win_length:
        raise RuntimeError(f"istft: hop_length out of range; got {hop}; expected 0 < hop_length <= win_length = {win_length}")
    if onesided and return_complex:
        raise RuntimeError("istft: cannot have onesided input if the result is complex; hint: onesided=False")
    window = _window("istft", input, window, win_length, n_fft)
    if window is None:
        window = _C.ones(n_fft, dtype=_part(input), device=input.device)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = fft.ifft(spectra, norm=norm)
    else:
        frames = fft.irfft(spectra if onesided else spectra[..., :n_fft // 2 + 1], n=n_fft, norm=norm)
    total = _overlapped(frames * window, hop)
    weight = _overlapped((window * window).expand(1, count, n_fft), hop)
    start = n_fft // 2 if center else 0
    full = total.shape[1]
    end = start + length if length is not None else full - (n_fft // 2 if center else 0)
    total, weight = total[:, start:min(end, full)], weight[:, start:min(end, full)]
    if weight.numel() and float(weight.abs().min()) < 1e-11:
        raise RuntimeError("istft: the sum of the squared windows is 0 somewhere; expected windows that overlap; hint: a smaller hop_length")
    total = total / weight
    if end > full:
        total = _C.pad(total, [0, end - full])
    return total if input.ndim == 3 else total.squeeze(0)
