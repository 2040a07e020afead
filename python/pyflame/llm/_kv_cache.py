"""What the engine's cache stores keys and values as (kv_cache_dtype, with vLLM's names), and how they are rounded to 8 bits.

Each key and each value of a head has a scale of its own, a float32 beside the pages, which is found when it is written: nothing is calibrated, and a
large value changes the rounding of its own row alone. So D elements of a head take D + 4 bytes instead of 2 D or 4 D."""
from .. import _C
from .._dtypes import finfo

NAMES = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2", "int8")
_LEAST = 2.0**-100  # what is less than this in a whole row is as good as 0; a scale of 0 cannot divide


def check_name(op, name):
    """ValueError where there is no such kv_cache_dtype."""
    if not isinstance(name, str) or name not in NAMES:
        raise ValueError(f"{op}: there is no such kv_cache_dtype; got {name!r}; expected one of {', '.join(map(repr, NAMES))}")


def format_of(name, device):
    """The dtype of 8 bits of a kv_cache_dtype on a device; None for 'auto', where keys and values have the model's dtype. 8-bit floats have the device's own format."""
    if name in ("auto", "int8"):
        return _C.int8 if name == "int8" else None
    from ..float8 import formats  # it needs pyflame.nn, and most models have no such cache

    wide, narrow = formats(device)
    return narrow if name == "fp8_e5m2" else wide


def row_bytes(name, head_dim, dtype):
    """The bytes of a key of one head, and as many has its value. dtype: the model's."""
    return (4 if dtype == _C.float32 else 2) * head_dim if name == "auto" else head_dim + 4


def quantized(x, dtype):
    """x (..., D) as (codes of `dtype`, their scales float32 (...)), so that x is about codes * scales[..., None].

    scale = max |x| / the format's largest value. |x - code * scale| is at most scale / 2 for int8; for 8-bit floats with f bits of fraction at most |x| 2^-(f + 1), or
    half of the smallest subnormal number times scale where that is more."""
    x, largest = x.float(), 127.0 if dtype == _C.int8 else finfo(dtype).max
    scales = x.abs().amax(-1).clamp(min=_LEAST) * (1.0 / largest)
    codes = (x / scales.unsqueeze(-1)).clamp(-largest, largest)
    return (codes.round() if dtype == _C.int8 else codes).to(dtype), scales


def dequantized(codes, scales, dtype):
    """The values of codes (..., D) with scales (...), as `dtype`."""
    return (codes.float() * scales.unsqueeze(-1)).to(dtype)
