"""Weights that stay in GGUF's blocks of a few bits, or in rows of 8-bit floats with their scales."""
import math

from .. import _C, _numpy as np

_TILE_ROWS = 8  # of the CPU's tiles
_AT_ONCE = 1 << 22  # numbers that are in memory twice


def blocks_of_4_bits(q, scale, shift=None):
    """GGUF's blocks of 32 numbers: q (rows, columns), 0 to 15, with float16 scales (and shifts) for each 32 columns -> uint8 (rows, bytes of a row), an array.
    With shifts they are Q4_1, scale q + shift; without, Q4_0, scale (q - 8)."""
    rows, columns = q.shape
    parts = np.ascontiguousarray(q, np.uint8).reshape(rows, columns // 32, 2, 16)
    numbers = [np.ascontiguousarray(x)[..., None].view(np.uint8) for x in (scale, shift) if x is not None]
    return np.concatenate([*numbers, parts[:, :, 0] | parts[:, :, 1] << 4], 2).reshape(rows, -1)


def blocks_of_8_bits(q, scale):
    """The same for Q8_0: int8 numbers times a float16 scale for each 32 columns."""
    rows, columns = q.shape
    return np.concatenate([np.ascontiguousarray(scale)[..., None].view(np.uint8), np.ascontiguousarray(q, np.int8).view(np.uint8).reshape(rows, columns // 32, 32)], 2).reshape(rows, -1)


_UNIT = 16  # of rows of 8-bit floats: the number of codes, that of a scale's codes, and the bytes of all are multiples


def float8_type(kind, columns, group=None):
    """The name of the type of rows with so many 8-bit floats of a kind, F8_E4M3 or F8_E5M2, and a scale for each group of a row, or for the whole row. None: there is none."""
    group = None if group is None or group >= columns else group
    return None if columns % _UNIT or (group or 0) % _UNIT else kind if group is None else f"{kind}:{group}"


def float8_rows(codes, scales):
    """Rows of 8-bit floats: codes uint8 (rows, columns), scales float32 (rows, scales of a row) -> uint8 (rows, bytes of a row), an array."""
    rows, columns = codes.shape
    count = scales.shape[1]
    made = np.zeros((rows, columns + -(-4 * count // _UNIT) * _UNIT), np.uint8)
    made[:, :columns] = codes
    made[:, columns:columns + 4 * count] = np.ascontiguousarray(scales, np.float32).view(np.uint8)
    return made


def _in_order_of_products(shape):
    """Whether tile() puts a weight of this shape in the order of products. Otherwise a tile would belong to two matrices, and products read rows of blocks."""
    return len(shape) != 3 or shape[1] % _TILE_ROWS == 0


def nbytes_when_loaded(type, shape, stored, on_gpu):
    """The bytes that a weight of a GGUF file, of so many stored bytes, takes for its products on a GPU or on the CPU. 0: products do not take its blocks, which are decoded."""
    made = _C._bytes_of_products(type, math.prod(shape[:-1]), shape[-1], on_gpu) if len(shape) > 1 else 0
    return made if _in_order_of_products(shape) else min(made, stored)


def rows_in_halves(rows, heads):
    """Rows of heads from pairs (2i, 2i + 1) to halves (i, i + n/2)."""
    inner = rows.shape[1:]
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, *inner).transpose(1, 2).reshape(rows.shape[0], *inner)


class PairedRows:
    """Floats whose rows are those of so many heads in pairs. A network takes them in halves, one tensor at a time."""

    as_floats = True

    def __init__(self, tensor, heads):
        self._tensor, self._heads, self.shape = tensor, heads, tensor.shape

    def decoded(self, dtype=None):
        """The numbers with their rows in halves, of the dtype they have in the file, or of another one."""
        return rows_in_halves(self._tensor, self._heads) if dtype is None else rows_in_halves(self._tensor, self._heads).to(dtype)


class PackedWeight:
    """A matrix of `shape`, or a stack of them, in rows of blocks. blocks: uint8 (.., rows, bytes of a row); type: GGUF's name of the blocks' type, or one of float8_type();
    as_floats: a network decodes it when it takes it.

    What cat(), stack() and in_halves() make of others refers to the rows of these, which tile() reads where they are."""

    def __init__(self, blocks, type, columns, as_floats=False):
        self._set([(blocks, 0)], type, (*blocks.shape[:-1], columns), as_floats)

    def _set(self, pieces, type, shape, as_floats=False):
        self._pieces, self.type, self.shape, self.as_floats, self._tiles = pieces, type, shape, as_floats, None
        return self

    def _of(self, pieces, shape):
        """Other rows of the same type."""
        return PackedWeight.__new__(PackedWeight)._set(pieces, self.type, shape, self.as_floats)

    @property
    def blocks(self):
        """None where tile() has given them back."""
        if self._pieces is not None and (len(self._pieces) > 1 or self._pieces[0][1]):
            rows = [rows_in_halves(blocks, heads) if heads else blocks for blocks, heads in self._rows()]
            self._pieces = [((rows[0] if len(rows) == 1 else _C.cat(rows, dim=0)).reshape(*self.shape[:-1], -1), 0)]
        return None if self._pieces is None else self._pieces[0][0]

    def to(self, device):
        """The same matrix on a device."""
        return self if self.device == device else self._of([(blocks.to(device), heads) for blocks, heads in self._pieces], self.shape)

    def moved(self, device):
        """The same matrix on a device, in the order that tile() has made on this one."""
        other = self._of(self._pieces and [(blocks.to(device), heads) for blocks, heads in self._pieces], self.shape)
        other._tiles = None if self._tiles is None else self._tiles.to(device)
        return other

    @property
    def device(self):
        return (self._tiles if self._pieces is None else self._pieces[0][0]).device

    @property
    def nbytes(self):
        """Of the blocks or the tiles, whichever products read."""
        return sum(blocks.numel() for blocks, _ in self._pieces) if self._tiles is None else self._tiles.numel()

    def _rows(self):
        """(rows of blocks, heads) of the pieces: heads is 0, or the rows are in pairs."""
        return [(blocks.reshape(-1, blocks.shape[-1]), heads) for blocks, heads in self._pieces]

    def tile(self, keep_rows=False):
        """Puts the weights in the order of products, before the first one. keep_rows: rows() stays possible; otherwise the blocks' memory is given back."""
        if not _in_order_of_products(self.shape):
            return
        self._tiles = _C._weight_tiles_of(self._rows(), self.type)
        if not keep_rows:
            self._pieces = None

    def linear(self, x, bias=None):
        """x (..., columns) times the transposed matrix, plus bias."""
        return _C.quantized_linear(x, self._tiles, self.type, bias, tiled_rows=self.shape[0])

    def grouped(self, x, ends):
        """Groups of rows of x (rows, columns), each times one transposed matrix of the stack: (rows, rows of a matrix). ends: int32, the rows up to each group's end."""
        if self._tiles is None:
            return _C.quantized_grouped_mm(x, self.blocks.reshape(-1, self.blocks.shape[-1]), self.type, ends)
        return _C.quantized_grouped_mm(x, self._tiles, self.type, ends, tiled_rows=self.shape[0] * self.shape[1])

    def rows(self, ids):
        """The rows of these numbers, float32 (n, columns)."""
        return _C.decode_blocks(_C.index_select(self.blocks, 0, ids), self.type)

    def decoded(self, dtype=None):
        """The numbers, float32 or of a dtype. With a dtype, some of them at a time are in memory as float32."""
        rows = self.blocks.reshape(-1, self.blocks.shape[-1])
        if dtype in (None, _C.float32):
            return _C.decode_blocks(rows, self.type).reshape(self.shape)
        made = _C.empty(rows.shape[0], self.shape[-1], dtype=dtype, device=rows.device)
        step = max(1, _AT_ONCE // self.shape[-1])
        for begin in range(0, rows.shape[0], step):
            made[begin:begin + step] = _C.decode_blocks(rows[begin:begin + step], self.type).to(dtype)
            _C.cut()  # what has been computed is no longer in memory twice
        return made.reshape(self.shape)

    def in_halves(self, heads):
        """A matrix whose rows are those of so many heads, from pairs (2i, 2i + 1) to halves (i, i + n/2)."""
        return self._of([(self.blocks, heads)], self.shape)

    def _parts(self):
        """The pieces of each matrix of a stack."""
        if len(self._pieces) == self.shape[0]:
            return [[piece] for piece in self._pieces]
        return [[(matrix, 0)] for matrix in self.blocks]

    def part_of_columns(self, begin, end):
        """The matrix of these columns. They begin and end between blocks, or between groups of 8-bit floats."""
        columns, block, rows = self.shape[-1], _C._block_elements(self.type), self.blocks
        kind, _, group = self.type.partition(":")
        if not kind.startswith("F8_"):
            width = rows.shape[-1] * block // columns  # bytes of a block
            return PackedWeight(rows.narrow(-1, begin // block * width, (end - begin) // block * width).clone(), self.type, end - begin)
        each = int(group or columns)
        first, count = begin // each, -(-end // each) - begin // each
        zeros = _C.zeros(*self.shape[:-1], -4 * count % _UNIT, dtype=rows.dtype, device=rows.device)
        parts = [rows.narrow(-1, begin, end - begin), rows.narrow(-1, columns + 4 * first, 4 * count), zeros]
        return PackedWeight(_C.cat(parts, dim=-1), float8_type(kind, end - begin, int(group or end - begin)), end - begin)

    @staticmethod
    def stack(weights):
        """Matrices of one type as a stack."""
        return weights[0]._of([(w.blocks, 0) for w in weights], (len(weights), *weights[0].shape))

    @staticmethod
    def cat(weights):
        """The rows of several matrices, or of those of several stacks, of one type."""
        first = weights[0].shape
        pieces = sum((w._pieces for w in weights), []) if len(first) == 2 else [p for parts in zip(*(w._parts() for w in weights)) for own in parts for p in own]
        return weights[0]._of(pieces, (*first[:-2], sum(w.shape[-2] for w in weights), first[-1]))
