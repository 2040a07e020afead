"""Weights of 8 or 4 bits with scales in folders of Hugging Face's layout, one matrix at a time: integers in GGUF's blocks, 8-bit floats in rows with their scales, others
decoded to floats.

fp8: numbers of 8 bits (F8_E4M3 or F8_E5M2, arXiv:2209.05433) times a scale for the matrix, for each row, or for each block of it: quant_method 'fp8', and
'compressed-tensors' with format 'float-quantized'. compressed-tensors also has integers: 'int-quantized' (8 bits), and 'pack-quantized', where words of 32 bits
hold 8 numbers of 4 bits or 4 of 8 bits, each plus half of its range, with a scale for each group of a row.

The files are mapped here, so that one matrix at a time is in memory twice."""
import json
import math
import os

import numpy as np

from .. import _C, tensor
from . import _loading
from ._errors import Values
from ._packed import PackedWeight, blocks_of_4_bits, blocks_of_8_bits, float8_rows, float8_type

_MOST_HEADER = 100 << 20
# Types of safetensors that are numbers of NumPy. BF16 is read as 16 bits.
_KINDS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64, "I32": np.int32, "I8": np.int8, "U8": np.uint8, "F8_E4M3": np.uint8, "F8_E5M2": np.uint8}
_FORMATS = {"float-quantized": (8, "float"), "naive-quantized": (8, "float"), "int-quantized": (8, "int"), "pack-quantized": (4, "int")}


_FP8 = {"F8_E4M3": _C.float8_e4m3fn, "F8_E5M2": _C.float8_e5m2}
_LARGEST = {"F8_E4M3": (0x7E, 448.0), "F8_E5M2": (0x7B, 57344.0)}  # the code of the largest finite number, and this number


class Form:
    """What quantization_config says. kind: 'fp8', 'int8' or 'packed'; bits; block: the size of a block of fp8, or None; group: of a row, or None."""

    def __init__(self, kind, bits=8, block=None, group=None):
        self.kind, self.bits, self.block, self.group = kind, bits, block, group


def _refused(folder, method, got, expected):
    return NotImplementedError(f"llm: '{folder}' has {method} weights of a kind that is not available; got {got}; expected {expected}")


def _block_size(folder, method, value):
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and n > 0 for n in value):
        raise _refused(folder, method, f"a block of {value!r}", "two positive numbers")
    return tuple(value)


def form_of(config, folder):
    """The Form of a quantization_config that this file reads, or None. NotImplementedError for a kind of it that cannot be read."""
    method = config.get("quant_method") if isinstance(config, dict) else None
    if method == "fp8":
        return Form("fp8", block=_block_size(folder, method, config.get("weight_block_size")))
    if method != "compressed-tensors":
        return None
    v = Values(config, "quantization_config")
    name = v.get("format", str, "no format")
    groups = v.get("config_groups", dict, {})
    if name not in _FORMATS or len(groups) != 1:
        raise _refused(folder, method, f"format {name!r} with {len(groups)} groups of layers", f"one group, and one of {', '.join(_FORMATS)}")
    weights = Values(Values(next(iter(groups.values())), "config_groups").get("weights", dict), "weights")
    bits, kind, strategy = weights.get("num_bits", int), weights.get("type", str, "int"), weights.get("strategy", str, "tensor")
    good_bits = (4, 8) if name == "pack-quantized" else (_FORMATS[name][0],)
    strategies = ("group", "channel") if name == "pack-quantized" else ("tensor", "channel") + (("block",) if kind == "float" else ())
    if bits not in good_bits or kind != _FORMATS[name][1] or strategy not in strategies or not weights.get("symmetric", bool, True):
        raise _refused(folder, method, f"{bits} bits, type {kind!r}, strategy {strategy!r}, symmetric {weights.get('symmetric', bool, True)}",
                       f"{' or '.join(map(str, good_bits))} bits of type {_FORMATS[name][1]!r}, symmetric, by {' or '.join(strategies)}")
    block = _block_size(folder, method, weights.values.get("block_structure")) if strategy == "block" else None
    return Form("packed" if name == "pack-quantized" else "fp8" if kind == "float" else "int8", bits, block, weights.size("group_size") if strategy == "group" else None)


def _paths(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return [os.path.join(folder, "model.safetensors")]
    try:
        with open(index, encoding="utf-8") as f:
            names = Values(json.load(f), "model.safetensors.index.json").get("weight_map", dict).values()
    except (ValueError, RecursionError) as e:
        raise ValueError(f"llm: '{index}' cannot be read; got {type(e).__name__}: {e}; expected JSON with a weight_map") from None
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            raise ValueError(f"llm: '{index}' names a file elsewhere; got {name!r}; expected names of files in the folder")
    return [os.path.join(folder, name) for name in dict.fromkeys(names)]


def _arrays(path):
    """(name, type, array) of the tensors of a safetensors file, mapped into memory. OSError, ValueError."""

    def damaged(got, expected):
        return ValueError(f"llm: '{path}' is damaged; got {got}; expected {expected}")

    try:
        size = os.path.getsize(path)
        data = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    except OSError as e:
        raise type(e)(e.errno, f"llm: cannot open the file; got {e.strerror}; expected safetensors", path) from None
    length = int.from_bytes(bytes(data[:8]), "little")
    if size < 8 or length > min(size - 8, _MOST_HEADER):
        raise damaged(f"{size} bytes and a header of {length}", "a header within the file")
    try:
        header = json.loads(bytes(data[8:8 + length]))
    except (ValueError, RecursionError) as e:
        raise damaged(f"{type(e).__name__} in the header", "JSON") from None
    if not isinstance(header, dict):
        raise damaged(f"a header of {type(header).__name__}", "names and entries")
    body = data[8 + length:]
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind, shape, place = (entry.get(k) for k in ("dtype", "shape", "data_offsets")) if isinstance(entry, dict) else (None, None, None)
        whole = all(isinstance(x, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in x) for x in (shape, place))
        if not isinstance(kind, str) or not whole or len(place) != 2:
            raise damaged(f"an entry of '{name[:80]}' that is not complete", "dtype, shape and two data_offsets")
        if kind not in _KINDS:
            yield name, kind, None
            continue
        bytes_needed = math.prod(shape) * np.dtype(_KINDS[kind]).itemsize
        if not place[0] <= place[1] <= len(body) or place[1] - place[0] != bytes_needed:
            raise damaged(f"'{name[:80]}' with shape {shape} of {kind} at {place[0]} to {place[1]} of {len(body)} bytes", f"{bytes_needed} bytes in the file")
        part = body[place[0]:place[1]]
        if part.ctypes.data % np.dtype(_KINDS[kind]).itemsize:
            part = part.copy()
        yield name, kind, part.view(_KINDS[kind]).reshape(shape)


def _float(kind, array):
    """float32, exactly."""
    if kind == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if kind in _FP8:
        return tensor(np.array(array), device="cpu").view(_FP8[kind]).float().numpy()
    return array.astype(np.float32)


def _unpacked(words, bits, columns):
    """Integers from words of 32 bits, the first in the lowest bits, less half of their range."""
    count = 32 // bits
    parts = words.view(np.uint32)[..., None] >> (np.arange(count, dtype=np.uint32) * np.uint32(bits)) & np.uint32((1 << bits) - 1)
    return parts.reshape(words.shape[0], -1)[:, :columns].astype(np.float32) - (1 << bits - 1)


def _scale_of_each(name, form, scale, shape):
    """Scales that can be multiplied with the matrix of this shape. ValueError."""
    rows, columns = shape
    if form.group is not None:
        groups = -(-columns // form.group)
        if scale.shape == (rows, groups):
            return np.repeat(scale, form.group, 1)[:, :columns]
        expected = (rows, groups)
    elif form.block is not None:
        expected = -(-rows // form.block[0]), -(-columns // form.block[1])
        if scale.shape == expected:
            return np.repeat(np.repeat(scale, form.block[0], 0)[:rows], form.block[1], 1)[:, :columns]
    elif scale.size == 1:
        return scale.reshape(1, 1)
    elif scale.shape in ((rows,), (rows, 1)):
        return scale.reshape(rows, 1)
    else:
        expected = f"one number, or {rows}"
    raise ValueError(f"llm: the weight '{name}' has scales that do not fit; got {scale.shape}; expected {expected} for a matrix of {shape}")


def type_name(form, kind, columns):
    """The name of the type of a matrix of 8-bit floats. It may be of no type, where rows or groups do not divide into units; the weights are decoded then."""
    group = form.block and form.block[1]
    return float8_type(kind, columns, group) or f"{kind}:{group or columns}"


def _float8_weight(form, kind, codes, scale):
    """A PackedWeight of 8-bit floats with scales that _scale_of_each takes. None where rows do not divide into its units, or where a number may not be finite."""
    rows, columns = codes.shape
    type, (last, largest) = float8_type(kind, columns, form.block and form.block[1]), _LARGEST[kind]
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(scale * np.float32(largest)).all() and ((codes & 0x7F) <= last).all()
    if type is None or not finite:
        return None
    of_rows = np.broadcast_to(scale.reshape(-1, 1), (rows, 1)) if form.block is None else np.repeat(scale, form.block[0], 0)[:rows]
    return PackedWeight(tensor(float8_rows(codes, of_rows), device="cpu"), type, columns)


def _weight(name, form, found, dtype):
    """The weight of a module (out, in): of dtype, or without one a PackedWeight of integers in GGUF's blocks or of 8-bit floats, else float32. found: {what: (type, array)}."""

    def wrong(what, got, expected):
        return ValueError(f"llm: the weight '{name}' {what}; got {got}; expected {expected}")

    given = [k for k in ("weight_scale", "weight_scale_inv") if k in found]
    if len(given) != 1:
        raise wrong("is not complete", " and ".join(given) or "no scale", "weight_scale or weight_scale_inv")
    if found.get("weight_zero_point") is not None and np.any(found["weight_zero_point"][1]):
        raise NotImplementedError(f"llm: the weight '{name}' has zero points, which are not available; got some that are not 0; expected symmetric weights")
    kind, array = found["weight_packed" if form.kind == "packed" else "weight"]
    kinds = {"packed": ("I32",), "int8": ("I8",), "fp8": tuple(_FP8)}[form.kind]
    if array.ndim != 2 or kind not in kinds:
        raise wrong("has a wrong form", f"shape {array.shape}, {kind}", f"a matrix of {' or '.join(kinds)}")
    if form.kind == "packed":
        shape = tuple(int(n) for n in found["weight_shape"][1].reshape(-1)) if "weight_shape" in found and found["weight_shape"][1].dtype.kind == "i" else ()
        if len(shape) != 2 or shape[0] != array.shape[0] or not 0 < shape[1] or -(-shape[1] * form.bits // 32) != array.shape[1]:
            raise wrong("has a weight_shape that does not fit", shape or "none", f"({array.shape[0]}, columns) for words of {array.shape}")
        if "weight_g_idx" in found:
            raise NotImplementedError(f"llm: the weight '{name}' has its groups in an order of their own, which is not available; got weight_g_idx; expected groups in order")
    else:
        shape = array.shape
    scale = _float(*found[given[0]])
    each = _scale_of_each(name, form, scale, shape)
    if dtype is None and form.kind == "fp8" and (kept := _float8_weight(form, kind, array, scale)) is not None:
        return kept
    values = _unpacked(array, form.bits, shape[1]) if form.kind == "packed" else _float(kind, array)
    if dtype is None and form.kind != "fp8" and values.shape[1] % 32 == 0 and (form.group or 32) % 32 == 0:
        with np.errstate(over="ignore"):
            halves = np.broadcast_to(each, values.shape)[:, ::32].astype(np.float16)
        if np.isfinite(halves).all():
            blocks = blocks_of_4_bits(values + 8, halves) if form.bits == 4 else blocks_of_8_bits(values, halves)
            return PackedWeight(tensor(blocks, device="cpu"), "Q4_0" if form.bits == 4 else "Q8_0", values.shape[1])
    w = values * each
    if not np.isfinite(w).all():
        raise wrong("is not finite", "NaN or infinity", "finite numbers")
    w = tensor(w, device="cpu")
    return w if dtype is None else w.to(dtype)


def read(folder, form, dtype):
    """The tensors of a folder on the CPU, by name; those with scales are as _weight makes them. OSError, ValueError, NotImplementedError."""
    found, modules = {}, {}
    for path in _paths(folder):
        for name, kind, array in _arrays(path):
            _loading.mapped(0 if array is None else array.nbytes)
            module, _, what = name.rpartition(".")
            if what.startswith("weight_") or (what == "weight" and (kind in _FP8 or kind == "I8")):
                modules.setdefault(module, {})[what] = kind, array
            elif kind in ("F64", "F32", "F16", "BF16"):
                found[name] = tensor(array.view(np.int16) if kind == "BF16" else np.array(array), device="cpu")
                if kind == "BF16":
                    found[name] = found[name].view(_C.bfloat16)
    wanted = "weight_packed" if form.kind == "packed" else "weight"
    for module in list(modules):
        parts = modules.pop(module)
        if any(array is None for _, array in parts.values()):
            raise NotImplementedError(f"llm: the weight '{module}' has a type that is not available; got {', '.join(sorted(kind for kind, array in parts.values() if array is None))}; expected one of {', '.join(_KINDS)}")
        if wanted not in parts:
            raise ValueError(f"llm: the weight '{module}' is not complete; got {', '.join(sorted(parts))} without numbers of few bits; expected {wanted} too")
        found[module + ".weight"] = _weight(module, form, parts, dtype)
    return found
