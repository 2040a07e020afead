"""Weights that stay in GGUF's blocks of a few bits."""
from .. import _C


class PackedWeight:
    """A matrix of `shape` in rows of blocks. blocks: uint8 (rows, bytes of a row); type: GGUF's name of the blocks' type."""

    def __init__(self, blocks, type, columns):
        self.blocks, self.type, self.shape = blocks, type, (blocks.shape[0], columns)
        self._tiles = None

    def linear(self, x, bias=None):
        """x (..., columns) times the transposed matrix, plus bias."""
        if self._tiles is None:  # made once; rows alone are looked up in the blocks
            self._tiles = _C.weight_tiles(self.blocks, self.type)
        return _C.quantized_linear(x, self._tiles, self.type, bias, tiled_rows=self.shape[0])

    def rows(self, ids):
        """The rows of these numbers, float32 (n, columns)."""
        return _C.decode_blocks(_C.index_select(self.blocks, 0, ids), self.type)

    def decoded(self):
        return _C.decode_blocks(self.blocks, self.type)

    @staticmethod
    def cat(weights):
        """The rows of several matrices of one type."""
        return PackedWeight(_C.cat([w.blocks for w in weights], dim=0), weights[0].type, weights[0].shape[1])
