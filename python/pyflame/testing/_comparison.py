"""assert_close, as torch.testing has it."""
import math

from .. import _C
from .._C import Tensor
from .._dtypes import finfo, iinfo
from .._elementwise import isclose

_TOLERANCE = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7)}


def _fail(where, text, msg):
    text = f"assert_close: {where}{text}"
    raise AssertionError(msg(text) if callable(msg) else msg or text)


def _compare(a, e, where, rtol, atol, equal_nan, checks, msg):
    if a.shape != e.shape:
        _fail(where, f"the shapes differ; got {tuple(a.shape)}; expected {tuple(e.shape)}", msg)
    if checks["check_dtype"] and a.dtype != e.dtype:
        _fail(where, f"the dtypes differ; got {a.dtype}; expected {e.dtype}", msg)
    if checks["check_device"] and a.device != e.device:
        _fail(where, f"the devices differ; got {a.device}; expected {e.device}", msg)
    if checks["check_stride"] and a.stride() != e.stride():
        _fail(where, f"the strides differ; got {a.stride()}; expected {e.stride()}", msg)
    e = e.to(a.device)
    if rtol is None:
        found = [_TOLERANCE.get(t.dtype.name, (0.0, 0.0)) for t in (a, e)]
        rtol, atol = (max(f[i] for f in found) for i in (0, 1))
    a, e = a.detach().to(_C.promote_types(a.dtype, e.dtype)), e.detach().to(_C.promote_types(a.dtype, e.dtype))
    exact = a.dtype == _C.bool_
    wrong = _C.logical_not(_C.eq(a, e) if exact else isclose(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan))
    count = int(wrong.sum().item())
    if count:
        most = "" if exact else f"; the greatest difference is {float((a.double() - e.double()).abs().nan_to_num(nan=float('inf')).max().item()):g}"
        _fail(where, f"{count} of {a.numel()} elements differ{most}; allowed: {atol:g} + {rtol:g} * |expected|", msg)


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True, check_dtype=True, check_layout=True, check_stride=False, msg=None):
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere, and shapes, dtypes and devices are the same. Tolerances follow the dtype
    unless both are given. Tensors, numbers, arrays, and nested lists, tuples and dicts of them.

    equal_nan: NaN equals NaN. check_device, check_dtype, check_stride: whether these must be the same. msg: the text of the error, in place of what
    differs. allow_subclasses and check_layout are accepted for PyTorch's programs and change nothing.
    """
    if (rtol is None) != (atol is None):
        raise ValueError("assert_close: rtol and atol go together; expected both or none")
    checks = {"check_device": check_device, "check_dtype": check_dtype, "check_stride": check_stride}
    _walk(actual, expected, "", rtol, atol, equal_nan, checks, msg)


def _walk(a, e, where, *rest):
    msg = rest[-1]
    if isinstance(e, dict) and isinstance(a, dict):
        if set(a) != set(e):
            _fail(where, f"the keys differ; got {sorted(map(str, a))}; expected {sorted(map(str, e))}", msg)
        for key in e:
            _walk(a[key], e[key], f"at {key!r}: ", *rest)
    elif isinstance(e, (list, tuple)) and isinstance(a, (list, tuple)):
        if len(a) != len(e):
            _fail(where, f"the lengths differ; got {len(a)}; expected {len(e)}", msg)
        for i, (one, other) in enumerate(zip(a, e)):
            _walk(one, other, f"at {i}: ", *rest)
    else:
        if isinstance(a, Tensor) != isinstance(e, Tensor):
            _fail(where, f"the types differ; got {type(a).__name__}; expected {type(e).__name__}", msg)
        if isinstance(a, Tensor):
            _compare(a, e, where, *rest)
        elif a is not e:
            one, other = (_C.tensor(x, dtype=_C.float64) if isinstance(x, float) else _C.tensor(x) for x in (a, e))
            _compare(one, other, where, *rest)


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """assert_close of values alone, under PyTorch's older name.

    actual, expected: tensors, or what pf.tensor takes. rtol, atol: both or none. equal_nan: NaN equals NaN. msg: the text of the error.
    """
    as_tensor = [x if isinstance(x, Tensor) else _C.tensor(x) for x in (actual, expected)]
    assert_close(*as_tensor, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=False, check_dtype=False, msg=msg or None)


def make_tensor(*shape, dtype, device, low=None, high=None, requires_grad=False, noncontiguous=False, exclude_zero=False, memory_format=None):
    """A tensor of uniform random numbers in [low, high).

    shape: numbers, or a sequence of them. low, high: -9 and 9 unless given, -9 and 10 for integers; numbers that an integer dtype does not have are left out. The parts of
    complex numbers are drawn each by itself. requires_grad: not of integers and bools. noncontiguous: every second element along the last dim of a wider tensor, where there
    is more than one element. exclude_zero: 1, or the smallest normal number of a floating dtype, in the place of 0. memory_format: of the result.
    ValueError for an empty range, and for arguments that exclude each other.
    """
    shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    whole = not (dtype.is_floating_point or dtype.is_complex)
    if requires_grad and whole:
        raise ValueError(f"make_tensor: integers and bools have no gradients; got requires_grad=True with {dtype}; expected a floating or complex dtype")
    if noncontiguous and memory_format is not None:
        raise ValueError("make_tensor: noncontiguous and memory_format exclude each other; got both; expected one")
    low, high = _range(dtype, low, high, whole)
    apart = noncontiguous and math.prod(shape) > 1
    drawn = _drawn((*shape[:-1], 2 * shape[-1]) if apart else shape, dtype, device, low, high, whole)
    if exclude_zero:
        drawn = _C.where(drawn == 0, _C.tensor(1 if whole else finfo(dtype).tiny, dtype=dtype, device=device), drawn)
    if apart:
        drawn = drawn[..., ::2]
    elif memory_format is not None:
        drawn = drawn.contiguous(memory_format=memory_format)
    return drawn.requires_grad_() if requires_grad else drawn


def _range(dtype, low, high, whole):
    low, high = -9 if low is None else low, (10 if whole else 9) if high is None else high
    if whole:
        least, most = (0, 1) if dtype == _C.bool_ else (iinfo(dtype).min, min(iinfo(dtype).max, 2**63 - 2))
        low, high = max(math.ceil(low), least), min(math.ceil(high), most + 1)
    if not low < high:
        raise ValueError(f"make_tensor: an empty range; got low {low} and high {high} for {dtype}; expected low < high")
    return low, high


def _drawn(shape, dtype, device, low, high, whole):
    if whole:
        return _C.randint(low, high, shape, device=device).to(dtype)
    if dtype.is_complex:
        return _C.view_as_complex(_C.rand((*shape, 2), dtype=dtype.to_real(), device=device) * (high - low) + low)
    dtype, wanted = _C.float32 if dtype.itemsize == 1 else dtype, dtype
    return (_C.rand(shape, dtype=dtype, device=device) * (high - low) + low).to(wanted)
