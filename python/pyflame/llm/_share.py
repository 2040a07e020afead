"""What one rank of tensor parallelism has of a model (arXiv:1909.08053): which rows and columns of each weight. _layers.py has the weights and the sizes that are divided.

Query heads, and the rows of gate and up, are divided in order; o and down have the columns that belong to them, and one all_reduce after each adds the ranks' parts.
A rank has the key and value heads of its query heads. Where there are fewer of these than ranks, several ranks have the same one, as in vLLM.
Experts are divided in the same way, each of them: the router is whole, so all ranks choose the same experts."""
import dataclasses

from .. import _C, _numpy as np
from .. import distributed
from . import _layers
from ._packed import PackedWeight


def _taken(t, dim, ranges):
    """Parts of a tensor along a dim, as a copy: what is not taken may be freed."""
    parts = [t.narrow(dim, begin, end - begin) for begin, end in ranges]
    return parts[0].clone() if len(parts) == 1 else _C.cat(parts, dim=dim)


def _rows(t, ranges, bias=False):
    if isinstance(t, PackedWeight):
        return PackedWeight(_taken(t.blocks, len(t.shape) - 2, ranges), t.type, t.shape[-1])
    return _taken(t, t.dim() - (1 if bias else 2), ranges)


class Share:
    """The part of rank `rank` of `size`. group: the ProcessGroup of the ranks, once they are connected."""

    def __init__(self, rank, size):
        self.rank, self.size, self.group = rank, size, None

    # The division.

    def check(self, c):
        """ValueError where a model of this Config cannot be divided over so many ranks."""
        def refuse(what, got):
            divisors = [n for n in range(1, got + 1) if got % n == 0]
            raise ValueError(f"Engine: {what} cannot be divided; got {got} and tensor_parallel_size {self.size}; expected a divisor of {got}: {', '.join(map(str, divisors[:8]))}")

        e = c.experts
        for what, number in (("the query heads", c.heads), ("the rows of the feed-forward layers", c.inner), ("the rows of an expert", e and e.inner), ("the rows of the shared expert", e and e.shared)):
            if number and number % self.size:
                refuse(what, number)
        if c.kv_heads % self.size and self.size % c.kv_heads:
            raise ValueError(f"Engine: the key/value heads cannot be divided; got {c.kv_heads} and tensor_parallel_size {self.size}; expected a divisor of {c.kv_heads}, or a multiple of it")

    def config(self, c):
        """The Config of this rank's part. The size of the vocabulary stays that of the model."""
        n = self.size
        experts = c.experts and dataclasses.replace(c.experts, inner=c.experts.inner // n, shared=c.experts.shared // n)
        return dataclasses.replace(c, heads=c.heads // n, kv_heads=max(1, c.kv_heads // n), inner=c.inner // n, experts=experts)

    def _part(self, total):
        return self.rank * total // self.size, (self.rank + 1) * total // self.size

    def _ranges(self, c, names):
        """The (begin, end) of this rank's rows, or columns, of a weight that has these sizes (_layers.py) one after the other. None: it has all."""
        whole = _layers.sizes(c)
        if not all(name in _layers.DIVIDED and name in whole for name in names):
            return None
        ranges, at = [], 0
        for name in names:
            begin, end = self._part(whole[name])
            if name == "kv":
                begin = self.rank * c.kv_heads // self.size * c.head_dim
                end = begin + self.config(c).kv_heads * c.head_dim
            ranges.append((at + begin, at + end))
            at += whole[name]
        return ranges

    def tensor(self, c, name, t):
        """This rank's part of a tensor under a name of GGUF, or of one matrix of a stack. ValueError where packed weights cannot be divided."""
        base, _, kind = name.rpartition(".")
        weight, _ = _layers.of_gguf(base, c.architecture) or (None, None)
        if weight is None:
            return t
        if ranges := self._ranges(c, weight.rows):
            return _rows(t, ranges, kind == "bias")
        ranges = self._ranges(c, [weight.columns])
        if ranges is None:
            return t
        if kind == "bias":  # it is added once
            return t if self.rank == 0 else _C.zeros_like(t)
        return self._columns(name, t, ranges)

    def _columns(self, name, t, ranges):
        if not isinstance(t, PackedWeight):
            return _taken(t, t.dim() - 1, ranges)
        columns, block = t.shape[-1], _C._block_elements(t.type)
        if columns % (block * self.size):
            raise ValueError(f"Engine: packed weights cannot be divided within a block; got {columns} columns of {name} in blocks of {block} ({t.type}) and tensor_parallel_size {self.size}; "
                             f"expected a multiple of {block * self.size} columns; hint: dtype='bfloat16' (or 'float32') decodes the blocks when the model is loaded, or take fewer ranks")
        (begin, end), = ranges
        return t.part_of_columns(begin, end)

    def factors(self, c, weight, a, b):
        """This rank's part of an adapter's factors A (r, inputs) and B (outputs, r), arrays: its product with A of o and down is a part of the sum, as that with the weight is."""
        if ranges := self._ranges(c, weight.rows):
            return a, np.concatenate([b[begin:end] for begin, end in ranges])
        (begin, end), = self._ranges(c, [weight.columns])
        return a[:, begin:end], b

    # The embedding is whole on each rank, and the head is divided over the vocabulary. A look-up reads one row for each token, so dividing the embedding would save
    # memory but no time, and costs one more all_reduce. The head is read whole for each step: of a model with 1.2e9 weights and 128256 tokens of 2048 it is 21 %
    # of all bytes, and divided each rank reads 1/N of these. The ranks then exchange 4 bytes for each token of the vocabulary and row, 0.5 MB, against 525 MB (16 bit) that they read.
    # With tied weights the head is a part of the embedding's rows, which costs no memory.

    def head(self, output, tied):
        """This rank's rows of the weights of the logits."""
        begin, end = self._part(output.shape[0])
        if isinstance(output, PackedWeight):
            return _rows(output, [(begin, end)])
        return output[begin:end] if tied else output[begin:end].clone()

    # The exchange. All ranks call these in the same order, with the same shapes.

    def summed(self, y):
        """The sum of y over the ranks, in the order of the ranks."""
        y = y.contiguous()
        distributed.all_reduce(y, group=self.group)
        return y

    def gathered(self, logits, vocabulary):
        """The logits (rows, vocabulary) of the ranks' parts."""
        sizes = [(r + 1) * vocabulary // self.size - r * vocabulary // self.size for r in range(self.size)]
        rows, width = logits.shape[0], max(sizes)
        if logits.shape[1] < width:  # the parts of a collective have one shape
            logits = _C.cat([logits, _C.zeros(rows, width - logits.shape[1], dtype=logits.dtype, device=logits.device)], dim=1)
        whole = _C.empty(self.size, rows, width, dtype=logits.dtype, device=logits.device)
        distributed.all_gather_into_tensor(whole, logits.contiguous(), group=self.group)
        return _C.cat([whole[r, :, :n] for r, n in enumerate(sizes)], dim=1)
