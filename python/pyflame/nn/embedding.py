"""Tables of vectors that are looked up by index."""
from __future__ import annotations

from .. import _C
from .._grad_mode import no_grad
from . import functional as F
from . import init
from ._arguments import _integers
from .module import Module
from .parameter import Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from .._C import Tensor
    from .._annotations import DType, Device


class _Table(Module):
    """What Embedding and EmbeddingBag share: the table and its options."""

    def _make(self, num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, _freeze, device, dtype):
        if padding_idx is not None:
            _integers(type(self).__name__, padding_idx=padding_idx)
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise IndexError(f"{type(self).__name__}: padding_idx is out of range; got {padding_idx}; expected within {num_embeddings} rows")
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = max_norm, norm_type, scale_grad_by_freq, sparse
        if _weight is not None:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise ValueError(f"{type(self).__name__}: the weight does not fit; got shape {tuple(_weight.shape)}; expected {(num_embeddings, embedding_dim)}")
            self.weight = Parameter(_weight, requires_grad=not _freeze)
            return
        self.weight = Parameter(_C.empty(num_embeddings, embedding_dim, dtype=dtype, device=device), requires_grad=not _freeze)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    @classmethod
    def _pretrained(cls, embeddings, freeze, **options):
        if embeddings.ndim != 2:
            raise ValueError(f"{cls.__name__}.from_pretrained: not a table; got shape {tuple(embeddings.shape)}; expected 2 dimensions")
        table = cls(*embeddings.shape, _weight=embeddings, **options)
        table.weight.requires_grad_(not freeze)
        return table

    def extra_repr(self) -> str:
        s = f"{self.num_embeddings}, {self.embedding_dim}"
        padding, options = [("padding_idx", None)], [("max_norm", None), ("norm_type", 2), ("scale_grad_by_freq", False), ("sparse", False), ("mode", None)]
        for name, otherwise in options + padding if hasattr(self, "mode") else padding + options:
            if getattr(self, name, None) != otherwise:
                s += f", {name}={getattr(self, name)!r}"
        return s


class Embedding(_Table):
    """Rows of a table by integer index: [...] -> [..., embedding_dim].

    - num_embeddings: the rows of the table, so indices are from 0 to num_embeddings - 1. embedding_dim: the length of a row.
    - padding_idx: a row that is 0 at first and gets no gradient.
    - max_norm: rows that are looked up are shortened to this norm, in place; norm_type: which norm.
    - scale_grad_by_freq: gradients are divided by how often the row was looked up. sparse is accepted; the gradient is dense.
    - device, dtype: of the table; the current ones unless given.

    Raises IndexError for a padding_idx that is no row; ValueError for a negative size, a dtype that is not floating or complex, and a _weight of another
    shape. A call raises TypeError for indices that are not int64 or int32, and IndexError for an index that is no row,
    at the latest when the result is computed.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        self._make(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
                        scale_grad_by_freq: bool = False, sparse: bool = False) -> Embedding:
        """An Embedding whose weight is embeddings, [num_embeddings, embedding_dim]. freeze: whether the weight gets no gradients. The other arguments are
        those of Embedding. ValueError unless embeddings has 2 dims.
        """
        return cls._pretrained(embeddings, freeze, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)

    def forward(self, input: Tensor) -> Tensor:
        if self.max_norm is None and not self.scale_grad_by_freq:
            return _C.embedding(input, self.weight, self.padding_idx)
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the rows of each bag of indices: [B, N], or [n] with offsets [B] -> [B, embedding_dim]. mode is "sum",
    "mean" or "max". With include_last_offset, the last offset says where the last bag ends. Indices equal to padding_idx do not count. The other arguments are
    those of Embedding.

    Raises IndexError for a padding_idx that is no row, and ValueError for an unknown mode. A call raises ValueError for offsets with [B, N] and missing offsets with [n];
    TypeError for indices that are not int64 or int32; NotImplementedError for per_sample_weights with another mode than 'sum'. An index
    that is no row, and offsets that do not ascend or lie beyond the indices, are an IndexError when the result is computed.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 mode: Literal["sum", "mean", "max"] = "mean", sparse: bool = False, _weight: Tensor | None = None, include_last_offset: bool = False,
                 padding_idx: int | None = None, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__()
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"EmbeddingBag: unknown mode; got {mode!r}; expected 'sum', 'mean' or 'max'")
        self.mode, self.include_last_offset = mode, include_last_offset
        self._make(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, False, device, dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                        mode: Literal["sum", "mean", "max"] = "mean", sparse: bool = False, include_last_offset: bool = False,
                        padding_idx: int | None = None) -> EmbeddingBag:
        """An EmbeddingBag whose weight is embeddings, [num_embeddings, embedding_dim]. freeze: whether the weight gets no gradients. The other arguments are
        those of EmbeddingBag. ValueError unless embeddings has 2 dims.
        """
        return cls._pretrained(embeddings, freeze, max_norm=max_norm, norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, mode=mode, sparse=sparse,
                               include_last_offset=include_last_offset, padding_idx=padding_idx)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse, per_sample_weights,
                               self.include_last_offset, self.padding_idx)
