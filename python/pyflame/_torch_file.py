"""Writes files that torch.load reads: a zip archive with a pickle of the structure and the bytes of each storage.

Only data is written: tensors, numbers, text, bytes, None, and dicts, lists, tuples and sets of them. So the pickle is written here, instruction by
instruction, with the few names that PyTorch's own weights_only reader allows."""
import io
import struct
import zipfile

from . import _C
from ._C import Tensor
from .io import check_whole

_STORAGES = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage", "int64": "LongStorage",
    "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage", "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage",
}  # fmt: skip
_MARK, _TUPLE, _STOP = b"(", b"t", b"."


class _Pickler:
    """Pickle protocol 2 of a structure. `storages` collects the tensors, in the order of their keys."""

    def __init__(self, fail):
        self.out, self.storages, self.keys, self.open, self.fail = io.BytesIO(), [], {}, set(), fail

    def dump(self, obj):
        self.out.write(b"\x80\x02")
        self.write(obj, [])
        self.out.write(_STOP)
        return self.out.getvalue()

    def write(self, obj, path):
        if isinstance(obj, Tensor):
            check_whole("save", obj)
            self.tensor(obj)
        elif obj is None or obj is True or obj is False:
            self.out.write({None: b"N", True: b"\x88", False: b"\x89"}[obj])
        elif type(obj).__module__ == "numpy" and getattr(obj, "ndim", 1) == 0 and hasattr(obj, "item"):
            self.write(obj.item(), path)
        elif isinstance(obj, str):
            data = obj.encode("utf-8", "surrogatepass")
            self.out.write(b"X" + struct.pack("<I", len(data)) + data)
        elif isinstance(obj, int):
            self.integer(int(obj))
        elif isinstance(obj, float):
            self.out.write(b"G" + struct.pack(">d", obj))
        elif isinstance(obj, complex):
            self.name("__builtin__", "complex")
            self.out.write(b"G" + struct.pack(">d", obj.real) + b"G" + struct.pack(">d", obj.imag) + b"\x86R")
        elif isinstance(obj, bytes):  # as protocol 2 has it: the text of the bytes, and a call that turns it back
            self.name("_codecs", "encode")
            self.write(obj.decode("latin-1"), path)
            self.write("latin1", path)
            self.out.write(b"\x86R")
        elif isinstance(obj, _C.dtype):
            self.name("torch", obj.name)
        elif isinstance(obj, (dict, list, tuple, set, frozenset)):
            self.container(obj, path)
        else:
            self.fail(obj, path)

    def integer(self, value):
        if -(2**31) <= value < 2**31:
            self.out.write(b"J" + struct.pack("<i", value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.out.write(b"\x8a" + bytes([len(data)]) + data)

    def name(self, module, name):
        self.out.write(f"c{module}\n{name}\n".encode())

    def container(self, obj, path):
        if id(obj) in self.open:
            raise ValueError(f"save: the structure contains itself; got it again at {'.'.join(path)}")
        self.open.add(id(obj))
        if isinstance(obj, dict):
            if type(obj).__name__ == "OrderedDict":
                self.name("collections", "OrderedDict")
                self.out.write(b")R(")
            else:
                self.out.write(b"}(")
            for k, v in obj.items():
                self.write(k, path + ["key"])
                self.write(v, path + [str(k)])
            self.out.write(b"u")
        else:
            of_set = isinstance(obj, (set, frozenset))
            if of_set:
                self.name("__builtin__", "set")
            self.out.write(_MARK if isinstance(obj, tuple) else b"](")
            for i, v in enumerate(obj):
                self.write(v, path + [str(i)])
            self.out.write(_TUPLE if isinstance(obj, tuple) else b"e")
            if of_set:
                self.out.write(b"\x85R")
        self.open.discard(id(obj))

    def tensor(self, t):
        parameter = type(t).__name__ == "Parameter"
        if parameter:
            self.name("torch._utils", "_rebuild_parameter")
            self.out.write(_MARK)
        typed = t.dtype.name in _STORAGES  # 8-bit floats have no storages of their own: the dtype is an argument
        self.name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
        self.out.write(_MARK)
        self.out.write(_MARK)  # the storage's id
        self.write("storage", [])
        self.name(*(("torch", _STORAGES[t.dtype.name]) if typed else ("torch.storage", "UntypedStorage")))
        self.write(self.key_of(t), [])
        self.write("cpu", [])
        self.write(t.numel(), [])
        self.out.write(_TUPLE + b"Q")
        strides, step = [], 1
        for size in reversed(t.shape):
            strides.insert(0, step)
            step *= max(size, 1)
        for value in (0, tuple(t.shape), tuple(strides), bool(t.requires_grad) and not parameter):
            self.write(value, [])
        self.name("collections", "OrderedDict")
        self.out.write(b")R")
        if not typed:
            self.name("torch", t.dtype.name)
        self.out.write(_TUPLE + b"R")
        if parameter:
            self.write(bool(t.requires_grad), [])
            self.name("collections", "OrderedDict")
            self.out.write(b")R" + _TUPLE + b"R")

    def key_of(self, t):
        # Tied weights are written once.
        same = (t.data_ptr(), tuple(t.shape), tuple(t.stride()), t.dtype.name) if t.numel() else id(t)
        if same not in self.keys:
            self.keys[same] = str(len(self.storages))
            self.storages.append(t)
        return self.keys[same]


def write(obj, file, fail):
    """Writes obj to a binary file that can be sought. fail(value, path) is called for what is not data."""
    pickler = _Pickler(fail)
    structure = pickler.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", structure)
        archive.writestr("archive/byteorder", "little")
        for key, t in enumerate(pickler.storages):
            with archive.open(f"archive/data/{key}", "w", force_zip64=t.nbytes >= 2**31) as part:
                part.write(memoryview(_bytes_of(t)))
        archive.writestr("archive/version", "3\n")


def _bytes_of(t):
    t = t.detach().cpu().contiguous()
    of_the_size = {"bfloat16": _C.int16}.get(t.dtype.name) or (None if t.dtype.name in _STORAGES else _C.uint8)
    if of_the_size:  # NumPy has no such dtype
        t = t.view(of_the_size)
    return t.numpy().reshape(-1).view("uint8")
