"""Weights that stay in GGUF's blocks of a few bits."""
from .. import _C


class PackedWeight:
    """A matrix of `shape` in rows of blocks. blocks: uint8 (rows, bytes of a row); type: GGUF's name of the blocks' type."""

    def __init__(self, blocks, type, columns):
        self.blocks, self.type, self.shape = blocks, type, (blocks.shape[0], columns)
        self._tiles = None

    def to(self, device):
        """The same matrix on a device."""
        return self if self.blocks.device == device else PackedWeight(self.blocks.to(device), self.type, self.shape[1])

    def tile(self, keep_rows=False):
        """Puts the weights in the order of products, before the first one. keep_rows: rows() stays possible; otherwise the blocks' memory is given back."""
        self._tiles = _C.weight_tiles(self.blocks, self.type)
        if not keep_rows:
            self.blocks = None

    def linear(self, x, bias=None):
        """x (..., columns) times the transposed matrix, plus bias."""
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
