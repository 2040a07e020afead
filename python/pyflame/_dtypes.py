"""Names of dtypes that PyFlame does not have, so that programs can compare with them; limits of dtypes; layouts."""
from __future__ import annotations

from . import _C
from ._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._C import device, dtype
    from ._annotations import Device, Operand

__all__ = ["finfo", "iinfo", "can_cast", "result_type", "is_complex", "is_nonzero", "is_same_size", "is_signed", "is_inference", "is_storage", "is_distributed", "is_conj", "is_neg",
           "layout", "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged", "qscheme", "typename", "set_printoptions", "set_default_tensor_type",
           "set_default_device", "get_default_device"]


class _Absent:
    """The name of a dtype that no tensor has. Ops that are given it raise a TypeError."""

    def __init__(self, name, itemsize, floating, signed, complex):
        self.name, self.itemsize = name, itemsize
        self.is_floating_point, self.is_signed, self.is_complex = floating, signed, complex

    def __repr__(self):
        return f"pyflame.{self.name}"

    def __reduce__(self):
        return _absent, (self.name,)


def _absent(name):
    """The absent dtype of this name."""
    return ABSENT[name]


def _absent_dtypes():
    sizes = {"uint16": 2, "uint32": 4, "uint64": 8, "quint8": 1, "quint4x2": 1, "quint2x4": 1, "bits8": 1, "bits16": 2, "uint4": 1, "uint2": 1, "uint1": 1}
    signed = {"qint8": 1, "qint32": 4, "int4": 1, "int2": 1, "int1": 1}
    floats = {"float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1}
    complexes = {"complex32": 4, "complex64": 8, "complex128": 16}
    every = [(n, s, False, False, False) for n, s in sizes.items()] + [(n, s, False, True, False) for n, s in signed.items()]
    every += [(n, s, True, True, False) for n, s in floats.items()] + [(n, s, False, True, True) for n, s in complexes.items()]
    names = {entry[0]: _Absent(*entry) for entry in every if not hasattr(_C, entry[0])}
    for short, long in (("chalf", "complex32"), ("cfloat", "complex64"), ("cdouble", "complex128")):
        if long in names:
            names[short] = names[long]
    return names


ABSENT = _absent_dtypes()


def _to_complex(self):
    """The complex dtype whose parts have this dtype; of a complex dtype, itself. RuntimeError: there is none."""
    name = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}.get(self.name, self.name)
    if "complex" not in name:
        raise RuntimeError(f"dtype.to_complex: {self.name} has no complex dtype; expected float16, float32, float64 or a complex dtype")
    return getattr(_C, name, ABSENT.get(name))


def _to_real(self):
    """The dtype of the real and imaginary parts of a complex dtype: float32 for complex64, float64 for complex128. Another dtype is returned as it is."""
    return getattr(_C, {"complex64": "float32", "complex128": "float64"}.get(self.name, self.name), self)


_C.dtype.to_complex, _C.dtype.to_real = _to_complex, _to_real


class finfo:
    """The limits of a floating dtype: bits, eps, max, min, tiny, smallest_normal, resolution.

    A complex dtype has the limits of its parts. TypeError for dtypes of integers, for bool, and for anything that is no dtype.
    """

    # Digits of the fraction, the exponents of the largest and of the smallest normal number.
    _EXPONENTS = {"float64": (52, 1023, -1022), "float32": (23, 127, -126), "float16": (10, 15, -14), "bfloat16": (7, 127, -126),
                  "float8_e4m3fn": (3, 8, -6), "float8_e5m2": (2, 15, -14), "float8_e4m3fnuz": (3, 7, -7), "float8_e5m2fnuz": (2, 15, -15)}
    _RESOLUTION = {"float64": 1e-15, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}

    def __init__(self, type: dtype | None = None) -> None:
        dtype = _C.get_default_dtype() if type is None else type
        name = getattr(dtype, "name", str(dtype))
        name = {"complex64": "float32", "complex128": "float64"}.get(name, name)
        if name not in self._EXPONENTS:
            raise TypeError(f"finfo: not a floating dtype; got {dtype}; expected one; hint: iinfo")
        fraction, most, least = self._EXPONENTS[name]
        self.dtype, self.bits = name, 8 * getattr(_C, name).itemsize
        self.eps = 2.0**-fraction
        # The largest code of float8_e4m3fn is NaN.
        self.max = (2.0 - self.eps * (2 if name == "float8_e4m3fn" else 1)) * 2.0**most
        self.min, self.tiny, self.resolution = -self.max, 2.0**least, self._RESOLUTION.get(name, 1.0)
        self.smallest_normal = self.tiny

    def __repr__(self):
        return f"finfo(resolution={self.resolution}, min={self.min}, max={self.max}, eps={self.eps}, smallest_normal={self.smallest_normal}, tiny={self.tiny}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer dtype: bits is its width, min and max are its least and largest number, dtype is its name.

    type: a signed or unsigned integer dtype. TypeError for others.
    """

    def __init__(self, type: dtype) -> None:
        if _category(type) != 1:
            raise TypeError(f"iinfo: not an integer dtype; got {type}; expected one; hint: finfo")
        self.dtype, self.bits = type.name, 8 * type.itemsize
        self.min, self.max = (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1) if type.is_signed else (0, 2**self.bits - 1)

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


def _category(dtype):
    return 0 if dtype == _C.bool_ else 3 if dtype.name.startswith("complex") else 2 if dtype.is_floating_point else 1


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether a dtype can be cast to another one under the rules of promotion: never to a narrower category.

    from_ and to are dtypes: TypeError for anything else, also for the name of a dtype. Returns a bool.
    """
    return _category(from_) <= _category(to)


def result_type(tensor1: Operand, tensor2: Operand) -> dtype:
    """The dtype of tensor1 + tensor2 by PyTorch's rules of promotion. Both are tensors or numbers.

    A number or a tensor without dims does not change the dtype of a tensor with dims, unless its category (bool, integer, floating, complex) is
    above. No element is read.

    Returns a dtype. TypeError for anything else than a tensor or a number.
    """

    def sample(x):
        return _C.zeros([0] * min(x.ndim, 1), dtype=x.dtype, device=x.device) if isinstance(x, Tensor) else x

    a, b = sample(tensor1), sample(tensor2)
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a = _C.tensor(a, device="cpu")
    return (a + b).dtype


def is_complex(input: Tensor) -> bool:
    """A bool: whether the elements of the input are complex numbers. It depends on the dtype alone, not on imaginary parts.

    TypeError for what is not a tensor.
    """
    return input.dtype.name.startswith("complex")


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero. RuntimeError unless there is exactly one."""
    if input.numel() != 1:
        raise RuntimeError(f"is_nonzero: not one element; got shape {tuple(input.shape)}; expected exactly one element")
    return bool(input)


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """A bool: whether two tensors have the same shape. Dtypes, devices and strides do not count, and nothing broadcasts.

    TypeError where one of them is not a tensor.
    """
    return input.shape == other.shape


def is_signed(input: Tensor) -> bool:
    """A bool: whether the dtype of the input has negative numbers. False for bool and for unsigned integers. TypeError for what is not a tensor."""
    return input.dtype.is_signed


def is_inference(input: Tensor) -> bool:
    """A bool: whether the tensor was made under inference_mode. False for a tensor that requires a gradient. TypeError for what is not a tensor."""
    return False if input.requires_grad or input.grad_fn is not None else input._is_inference()


def is_storage(obj: object) -> bool:
    """A bool: whether obj is a Storage, which Tensor.storage() returns. False for any other object, also for a tensor. It raises nothing."""
    from ._tensor_methods import Storage

    return isinstance(obj, Storage)


def is_distributed(input: object) -> bool:
    """Always False: a tensor is in one process. pyflame.distributed divides modules over processes. It raises nothing, whatever the argument is."""
    return False


def is_conj(input: object) -> bool:
    """Always False. conj() computes the conjugate; no tensor only has a mark that it is one. It raises nothing, whatever the argument is."""
    return False


def is_neg(input: object) -> bool:
    """Always False. neg() computes the negative; no tensor only has a mark that it is one. It raises nothing, whatever the argument is."""
    return False


class layout:
    """How the elements of a tensor are kept: strided, the only one there is. The others are names.

    layout(name) raises no error: any name gives a layout, but tensors have only strided.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self):
        return f"pyflame.{self._name}"

    def __reduce__(self):
        return self._name


strided = layout("strided")
sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc, jagged = (
    layout(name) for name in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
)
qscheme = type("qscheme", (), {"__doc__": "The type of PyTorch's ways of quantizing, for programs that name it. PyFlame quantizes no tensors and has none of them. TypeError where it is called with an argument."})


def typename(obj: object) -> str:
    """The name of a tensor's type, such as 'torch.FloatTensor', or of a class with its module.

    It raises nothing: any other object gives the name of its class.
    """
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__qualname__ if kind.__module__ in ("", "builtins") else f"{kind.__module__}.{kind.__qualname__}"


_PROFILES = {"default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, 2**62, 3, 80)}


def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None, linewidth: int | None = None,
                     profile: str | None = None, sci_mode: bool | None = None) -> None:
    """How tensors are printed. precision: digits after the point. threshold: the number of elements above which a middle is left out, also inf; edgeitems: how many
    are then shown at each end. linewidth: characters in a line. None leaves these as they are. profile: 'default', 'short' or 'full', which sets these four; what is
    given besides it goes first.

    sci_mode: scientific notation, True: always, False: never, None: by the numbers. It is set by each call. ValueError for an unknown profile."""
    import math

    now = list(_C._print_options())
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions: no such profile; got {profile!r}; expected 'default', 'short' or 'full'")
        now[:4] = _PROFILES[profile]
    if threshold is not None and math.isinf(threshold):
        threshold = 2**62
    given = (precision, threshold, edgeitems, linewidth)
    now[:4] = [old if new is None else int(new) for old, new in zip(now, given)]
    _C._set_printoptions(*now[:4], None if sci_mode is None else bool(sci_mode))


def set_default_tensor_type(t: type | str) -> None:
    """The dtype and device of a type such as pf.DoubleTensor or 'torch.cuda.FloatTensor' for new tensors.

    TypeError for anything that is no such type, also for a dtype, and for types of integers. DeviceError where there is no GPU for a type of the GPU.
    """
    name = t if isinstance(t, str) else getattr(t, "_type_name", None)
    if name is None:
        raise TypeError(f"set_default_tensor_type: not a type of tensors; got {t!r}; expected one such as pyflame.FloatTensor, or its name")
    from . import _gpu, _old_types

    _C.set_default_dtype(_old_types.dtype_of(name))
    if ".cuda." in name:
        _C.set_device(_gpu.name_of())


def set_default_device(device: Device | None) -> None:
    """Sets the device on which new tensors are made where no device is given. None is the CPU. ArgumentError for an unknown device."""
    _C.set_device("cpu" if device is None else device)


def get_default_device() -> device:
    """The device on which new tensors are made where no device is given, as a device object. It takes no arguments and raises nothing."""
    return _C.device(_C.get_device())


def check_layout(op: str, given: object) -> None:
    """ArgumentError for a layout that tensors cannot have."""
    if given not in (None, strided):
        raise _C.ArgumentError(f"{op}: layout is not available; got {given}; expected pyflame.strided or None")
