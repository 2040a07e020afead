"""Tensors of files that are not in memory: rows of them are read when they are needed, as bytes or as float32."""
import json
import math
import os
import struct

import numpy as np

from . import _blocks

SAFETENSORS = {"F32": "F32", "F16": "F16", "BF16": "BF16"}  # dtypes of safetensors that have a type of GGUF


class Weight:
    """A tensor in a file, as rows of its last dim. shape; type: a name in _blocks.TYPES; plus: what is added to each number; source: what a report calls its type;
    rounds: may the numbers of raw() differ from those of rows()."""

    rounds = False

    def __init__(self, rows, type, shape, order=None, transposed=False, plus=0.0):
        self.source = type
        self._rows, self.type, self.shape, self._order, self._transposed, self.plus = rows, type, tuple(shape), order, transposed, plus

    @staticmethod
    def of_bytes(data, type, shape):
        """data: uint8, all bytes of the tensor; a view of the file."""
        return Weight(data.reshape(math.prod(shape[:-1]), -1), type, shape)

    @property
    def height(self):
        return math.prod(self.shape[:-1])

    @property
    def columns(self):
        return self.shape[-1]

    @property
    def bytes(self):
        return self._rows.size

    @property
    def as_is(self):
        """Are rows of the file rows of the tensor, so that its bytes need not be decoded."""
        return not self._transposed and not self.plus

    def raw(self, begin, end):
        """Rows as bytes, uint8 (rows, bytes of a row)."""
        return self._rows[begin:end] if self._order is None else self._rows[self._order[begin:end]]

    def rows(self, begin, end):
        """Rows as float32 (rows, columns)."""
        if self._transposed:
            size = _blocks.TYPES[self.type].size
            values = _blocks.decode(self._rows[:, begin * size:end * size], self.type).T
        else:
            values = _blocks.decode(self.raw(begin, end), self.type)
        return values + np.float32(self.plus) if self.plus else values

    def numbers(self):
        """All of it as float32, in its shape."""
        return self.rows(0, self.height).reshape(self.shape)

    def reordered(self, order):
        """The same with its rows in another order."""
        return Weight(self._rows.reshape(len(order), -1), self.type, self.shape, order, self._transposed, self.plus)

    def part(self, number):
        """One matrix of a stack of three dims."""
        rows = self.shape[1]
        return Weight(self._rows[number * rows:(number + 1) * rows], self.type, self.shape[1:])

    def reshaped(self, *shape):
        """The same numbers in a shape with the same last dim, whose rows are not in another order."""
        return Weight(self._rows, self.type, shape)

    # What _architectures.gguf_names calls.

    def dim(self):
        return len(self.shape)

    def t(self):
        return Weight(self._rows, self.type, self.shape[::-1], None, not self._transposed, self.plus)

    def contiguous(self):
        return self

    def float(self):
        return self

    def __add__(self, number):
        return Weight(self._rows, self.type, self.shape, self._order, self._transposed, self.plus + number)


class Stack(Weight):
    """Matrices of one shape and type as a tensor of three dims."""

    def __init__(self, parts):
        super().__init__(parts[0].raw(0, 0), parts[0].type, (len(parts), *parts[0].shape))
        self._parts, self.source, self.rounds = parts, parts[0].source, any(p.rounds for p in parts)

    def raw(self, begin, end):
        return self._joined("raw", begin, end)

    def rows(self, begin, end):
        return self._joined("rows", begin, end)

    def _joined(self, of_part, begin, end):
        rows, found = self.shape[1], []
        while begin < end:
            number, first = divmod(begin, rows)
            last = min(rows, first + end - begin)
            found.append(getattr(self._parts[number], of_part)(first, last))
            begin += last - first
        return np.concatenate(found)


def mapped(path):
    """The bytes of a file, read when they are needed."""
    return np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.zeros(0, np.uint8)


def of_safetensors(path):
    """{name: Weight} of a safetensors file. Tensors of other dtypes than float32, float16 and bfloat16 have the name of the dtype in place of a Weight. ValueError if it is damaged."""
    data = mapped(path)
    try:
        size = struct.unpack_from("<Q", data)[0]
        header = json.loads(bytes(data[8:8 + size])) if size <= len(data) - 8 else None
        if not isinstance(header, dict):
            raise ValueError("no header")
        weights, body = {}, data[8 + size:]
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if dtype not in SAFETENSORS:
                weights[name] = dtype
                continue
            count = math.prod(shape) if all(isinstance(d, int) and d > 0 for d in shape) else -1
            if not 0 <= begin <= end <= len(body) or end - begin != count * _blocks.TYPES[dtype].size:
                raise ValueError(f"the place of {name!r} is wrong")
            weights[name] = Weight.of_bytes(body[begin:end], dtype, shape or [1])
        return weights
    except (ValueError, KeyError, TypeError, struct.error, RecursionError) as e:
        raise ValueError(f"convert: '{path}' is damaged; got {type(e).__name__}: {e}; expected a safetensors file") from None


def write_safetensors(file, entries, write):
    """The head of a safetensors file, and then write(file, entry) for each (name, dtype, shape) of entries."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape in entries:
        size = math.prod(shape) * _blocks.TYPES[dtype].size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for entry in entries:
        write(file, entry[0])
