"""GGUF files, version 3: a reader whose tensors stay in the file, and a writer. The format: ggml's docs/gguf.md."""
import math
import struct

import numpy as np

from .._gguf_header import ARRAY as _ARRAY, BOOL as _BOOL, MAGIC, NUMBERS as _NUMBERS, STRING as _STRING, Reader
from . import _blocks
from ._weights import Weight, mapped

VERSION, ALIGNMENT = 3, 32
_UINT32, _INT32, _FLOAT32, _UINT64, _INT64 = 4, 5, 6, 10, 11


def _string(text):
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _kind(value):
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _UINT32 if 0 <= value < 1 << 32 else _UINT64 if value >= 0 else _INT32 if value >= -(1 << 31) else _INT64
    return _FLOAT32 if isinstance(value, float) else _STRING


def packed_value(value):
    """A value of metadata with its kind in front. Integers of lists are int32, as in the files of others; floats are float32."""
    if isinstance(value, (list, tuple)):
        kind = _STRING if value and isinstance(value[0], str) else _FLOAT32 if value and isinstance(value[0], float) else _INT32
        items = b"".join(map(_string, value)) if kind == _STRING else np.asarray(value, dtype="<f4" if kind == _FLOAT32 else "<i4").tobytes()
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + items
    kind = _kind(value)
    return struct.pack("<I", kind) + (_string(value) if kind == _STRING else struct.pack(_NUMBERS[kind], value))


def write(file, metadata, entries, write_tensor):
    """Writes a file. metadata: {key: value, or bytes that packed_value has made}; entries: (name, type, shape) of each tensor, outermost dim first;
    write_tensor(file, name) writes the tensor's bytes."""
    head = [MAGIC, struct.pack("<IQQ", VERSION, len(entries), len(metadata))]
    for key, value in metadata.items():
        head += [_string(key), value if isinstance(value, bytes) else packed_value(value)]
    at = 0
    for name, type_name, shape in entries:
        t = _blocks.TYPES[type_name]
        head += [_string(name), struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), t.number, at)]
        at += size_of(type_name, shape) + -size_of(type_name, shape) % ALIGNMENT
    head = b"".join(head)
    file.write(head + b"\0" * (-len(head) % ALIGNMENT))
    for name, type_name, shape in entries:
        write_tensor(file, name)
        file.write(b"\0" * (-size_of(type_name, shape) % ALIGNMENT))


def size_of(type_name, shape):
    """The bytes of a tensor."""
    t = _blocks.TYPES[type_name]
    return math.prod(shape) // t.elements * t.size


def read(path):
    """(metadata, the same as bytes for write(), {name: Weight}) of a file of version 2 or 3. Tensors of types that _blocks lacks have the number of their type in place of a Weight.
    ValueError if it is damaged."""
    data = mapped(path)
    r = Reader(data)
    try:
        magic, version = bytes(r.take(4)), r.number("<I")
        if magic != MAGIC or version not in (2, 3):
            raise ValueError(f"magic {magic!r}, version {version}")
        tensors, keys = r.number("<Q"), r.number("<Q")
        if tensors > len(data) or keys > len(data):
            raise ValueError(f"{tensors} tensors and {keys} keys")
        metadata, raw = {}, {}
        for _ in range(keys):
            key, begin = r.string(), r.at
            metadata[key] = r.value(r.number("<I"))
            raw[key] = bytes(data[begin:r.at])
        entries = []
        for _ in range(tensors):
            name, dims = r.string(), r.number("<I")
            if not 0 < dims <= 4:
                raise ValueError(f"a tensor of {dims} dims")
            shape = [r.number("<Q") for _ in range(dims)][::-1]
            entries.append((name, shape, r.number("<I"), r.number("<Q")))
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0:
            raise ValueError(f"an alignment of {alignment}")
        base, weights = r.at + -r.at % alignment, {}
        for name, shape, number, at in entries:
            t = _blocks.BY_NUMBER.get(number)
            if t is None:
                weights[name] = number
                continue
            if math.prod(shape) == 0 or shape[-1] % t.elements:
                raise ValueError(f"the shape of {name!r} is wrong")
            begin, size = base + at, size_of(t.name, shape)
            if begin + size > len(data):
                raise ValueError(f"the tensor {name!r} has {size} bytes at {begin}, and the file has {len(data)} bytes")
            weights[name] = Weight.of_bytes(data[begin:begin + size], t.name, shape)
        return metadata, raw, weights
    except (ValueError, KeyError, TypeError, OverflowError, struct.error) as e:
        raise ValueError(f"convert: '{path}' is damaged; got {type(e).__name__}: {e}; expected a GGUF file of version 2 or 3; hint: if the file is cut short, download it again") from None
