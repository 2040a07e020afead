"""Values of a graph: tensors, NumPy arrays on the host, and the element types of ONNX."""
import functools

import numpy as np

from .. import _C
from .._C import Tensor

# Number of TensorProto.DataType -> name, for all that a file may have.
NAMES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool", 10: "float16", 11: "float64",
         12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2",
         20: "float8_e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2"}
NUMBERS = {name: number for number, name in NAMES.items()}
_WIDER = {"int4": np.int8, "uint4": np.uint8, "int2": np.int8, "uint2": np.uint8}  # read as the next type that exists


_PLAIN = {np.dtype(n) for n in ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")}


def has_dtype(name):
    """Whether tensors have the element type of this name."""
    return isinstance(getattr(_C, "bool_" if name == "bool" else name, None), _C.dtype)


def dtype_of(number, what="Cast"):
    """The dtype for a number of TensorProto.DataType. TypeError where tensors do not have it."""
    name = NAMES.get(number, str(number))
    if not has_dtype(name):
        raise TypeError(f"onnx: tensors do not have this element type; got {name} in {what}; expected a dtype of PyFlame")
    return getattr(_C, "bool_" if name == "bool" else name)


def number_of(dtype):
    """The number of TensorProto.DataType for a dtype."""
    return NUMBERS[dtype.name]


@functools.lru_cache(None)
def numpy_dtype(number):
    """NumPy's type for a number of TensorProto.DataType."""
    return np.dtype(NAMES[number])


def array_of(package, proto, folder=""):
    """The values of a TensorProto as an array."""
    array = package.numpy_helper.to_array(proto, folder)
    wider = _WIDER.get(array.dtype.name)
    return array if wider is None else array.astype(wider)


def is_floating(array):
    """Whether an array has floating elements, bfloat16 among them."""
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


def to_tensor(value, device="cpu"):
    """A tensor with the values of an array; tensors, sequences and None stay as they are."""
    if isinstance(value, Tensor) or value is None or isinstance(value, list):
        return value
    array = np.asarray(value)
    if array.dtype in _PLAIN:
        return _C.tensor(array, device=device)
    if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2") and has_dtype(array.dtype.name):
        return _C.tensor(array.astype(np.float32), device=device).to(dtype=getattr(_C, array.dtype.name))
    if not has_dtype(array.dtype.name):
        raise TypeError(f"onnx: tensors do not have this element type; got {array.dtype.name}; expected a dtype of PyFlame")
    return _C.tensor(np.ascontiguousarray(array).reshape(array.shape), device=device)


def to_array(value):
    """The values on the host, as an array. A tensor's are waited for."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    if value.dtype == _C.bfloat16:
        value = value.float()
    return value.numpy()
