"""PyTorch's old names of tensor types: FloatTensor(2, 3), LongTensor([1, 2]), isinstance(x, FloatTensor)."""
from . import _C
from ._C import Tensor

_NAMES = {"Double": _C.float64, "Float": _C.float32, "Half": _C.float16, "BFloat16": _C.bfloat16, "Long": _C.int64, "Int": _C.int32, "Short": _C.int16,
          "Char": _C.int8, "Byte": _C.uint8, "Bool": _C.bool_}
_made = {}


class _OldType(type):
    def __instancecheck__(cls, obj):
        return isinstance(obj, Tensor) and obj.type() == cls._type_name

    def __repr__(cls):
        return f"<class '{cls._type_name}'>"


def dtype_of(name):
    """The dtype of a name such as 'torch.FloatTensor'."""
    short = name.rpartition(".")[2]
    short = short[: -len("Tensor")] if short.endswith("Tensor") else short
    if short not in _NAMES:
        raise TypeError(f"no such type of tensors; got {name!r}; expected one such as 'torch.FloatTensor'")
    return _NAMES[short]


def _new(cls, *args, device=None):
    """A tensor of these sizes with arbitrary contents, or of data."""
    from . import _gpu

    place = _gpu.name_of() if cls._gpu else device
    with _C.device(place or _C.get_device()):
        return _C.empty(0, dtype=cls.dtype).new(*args)


def of_name(name, gpu=False):
    """The type of a name such as 'FloatTensor'. AttributeError for others."""
    if (name, gpu) not in _made:
        try:
            dtype = dtype_of(name)
        except TypeError:
            raise AttributeError(f"module 'pyflame' has no attribute '{name}'") from None
        full = f"torch.{'cuda.' if gpu else ''}{name}"
        doc = f"Tensors of {dtype.name}: of sizes, with arbitrary contents, or of data. isinstance() tells by dtype and device."
        _made[name, gpu] = _OldType(name, (), {"__new__": _new, "__doc__": doc, "dtype": dtype, "_type_name": full, "_gpu": gpu})
    return _made[name, gpu]
