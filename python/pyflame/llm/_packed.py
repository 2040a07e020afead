"""Weights that stay in GGUF's blocks of a few bits."""
import numpy as np

from .. import _C

_TILE_ROWS = 8  # of the CPU's tiles


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


class PackedWeight:
    """A matrix of `shape`, or a stack of them, in rows of blocks. blocks: uint8 (.., rows, bytes of a row); type: GGUF's name of the blocks' type."""

    def __init__(self, blocks, type, columns):
        self.blocks, self.type, self.shape = blocks, type, (*blocks.shape[:-1], columns)
        self._tiles = None

    def to(self, device):
        """The same matrix on a device."""
        return self if self.blocks.device == device else PackedWeight(self.blocks.to(device), self.type, self.shape[-1])

    def moved(self, device):
        """The same matrix on a device, in the order that tile() has made on this one."""
        other = PackedWeight.__new__(PackedWeight)
        other.type, other.shape = self.type, self.shape
        other.blocks, other._tiles = (None if x is None else x.to(device) for x in (self.blocks, self._tiles))
        return other

    @property
    def device(self):
        return (self._tiles if self.blocks is None else self.blocks).device

    @property
    def nbytes(self):
        """Of the blocks or the tiles, whichever products read."""
        return (self.blocks if self._tiles is None else self._tiles).numel()

    def _rows(self):
        return self.blocks.reshape(-1, self.blocks.shape[-1])

    def tile(self, keep_rows=False):
        """Puts the weights in the order of products, before the first one. keep_rows: rows() stays possible; otherwise the blocks' memory is given back."""
        if len(self.shape) == 3 and self.shape[1] % _TILE_ROWS:
            return  # a tile would belong to two matrices; products read rows of blocks then
        self._tiles = _C.weight_tiles(self._rows(), self.type)
        if not keep_rows:
            self.blocks = None

    def linear(self, x, bias=None):
        """x (..., columns) times the transposed matrix, plus bias."""
        return _C.quantized_linear(x, self._tiles, self.type, bias, tiled_rows=self.shape[0])

    def grouped(self, x, ends):
        """Groups of rows of x (rows, columns), each times one transposed matrix of the stack: (rows, rows of a matrix). ends: int32, the rows up to each group's end."""
        if self._tiles is None:
            return _C.quantized_grouped_mm(x, self._rows(), self.type, ends)
        return _C.quantized_grouped_mm(x, self._tiles, self.type, ends, tiled_rows=self.shape[0] * self.shape[1])

    def rows(self, ids):
        """The rows of these numbers, float32 (n, columns)."""
        return _C.decode_blocks(_C.index_select(self.blocks, 0, ids), self.type)

    def decoded(self):
        return _C.decode_blocks(self._rows(), self.type).reshape(self.shape)

    @staticmethod
    def stack(weights):
        """Matrices of one type as a stack."""
        return PackedWeight(_C.stack([w.blocks for w in weights]), weights[0].type, weights[0].shape[1])

    @staticmethod
    def cat(weights):
        """The rows of several matrices, or of those of several stacks, of one type."""
        return PackedWeight(_C.cat([w.blocks for w in weights], dim=-2), weights[0].type, weights[0].shape[-1])
