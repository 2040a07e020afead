"""Transformer (Vaswani et al., 2017): encoder, decoder and their layers."""
from __future__ import annotations

import copy

from .. import _C
from . import functional as F
from . import init
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .multihead_attention import MultiheadAttention
from .normalization import LayerNorm

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from .._annotations import DType, Device
    from ._annotations import AttentionActivation


def activation_of(activation, op="activation"):
    """The function of a name, 'relu' or 'gelu'; a function is itself."""
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"{op}: unknown activation; got '{activation}'; expected 'relu', 'gelu' or a function")
    return F.relu if activation == "relu" else F.gelu


def _copies(op, layer, n):
    if not isinstance(layer, Module):
        raise TypeError(f"{op}: the layer is not a Module; got {type(layer).__name__}; expected a layer of which copies are made")
    if not hasattr(n, "__index__"):
        raise TypeError(f"{op}: num_layers is not an integer; got {n!r}; expected a number of layers")
    if n < 0:
        raise ValueError(f"{op}: num_layers is negative; got {n}; expected 0 or more")
    return ModuleList([copy.deepcopy(layer) for _ in range(n)])


def _causal_mask(size, device=None, dtype=None):
    return _C.triu(_C.full((size, size), float("-inf"), dtype=dtype, device=device), 1)


class _Layer(Module):
    """What the layers of encoder and decoder share: the feed-forward block, and where its norms are."""

    def _make(self, d_model, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, norms, where):
        self.linear1 = Linear(d_model, dim_feedforward, bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **where)
        self.norm_first = norm_first
        for i in range(1, norms + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where))
        for i in range(1, norms + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = activation_of(activation, type(self).__name__)

    def _around(self, x, norm, block):
        """A block with its residual connection, and the norm before or after."""
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _attend(self, attention, x, memory, mask, padding, is_causal):
        """What x attends to in memory. The names of the arguments are those that PyTorch passes, so that wrappers and hooks find them."""
        return attention(x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal and mask is not None)[0]

    def _feed_forward(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward block, each with dropout, a residual connection and a LayerNorm: [T, N, E] ([N, T, E] with batch_first; [T, E]
    without a batch) -> the same.

    - d_model: the size E of a position. nhead: heads of the attention, which divide E. dim_feedforward: the width of the feed-forward block.
    - dropout: the probability of each dropout. activation: "relu", "gelu" or a function of a tensor, in the feed-forward block.
    - layer_norm_eps: the eps of the norms. norm_first puts the norms before the blocks. bias: whether linear layers and norms have one.
    - batch_first: the batch is the first dim. device, dtype: of the parameters; the current ones unless given.

    Raises ValueError where nhead does not divide d_model and for a dropout outside of 0 to 1; RuntimeError for the name of an unknown activation. A call
    raises ValueError for an input of another rank or last size.
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: AttentionActivation = F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where)
        self._make(d_model, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, 2, where)

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        def attention(x):
            return self.dropout1(self._attend(self.self_attn, x, x, src_mask, src_key_padding_mask, is_causal))

        x = self._around(src, self.norm1, attention)
        return self._around(x, self.norm2, lambda y: self.dropout2(self._feed_forward(y)))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output and a feed-forward block: tgt [T, N, E], memory [S, N, E] -> [T, N, E]; with batch_first [N, T, E]
    and [N, S, E].

    The arguments are those of TransformerEncoderLayer. ValueError unless nhead divides d_model; RuntimeError for an unknown activation. forward raises
    ArgumentError for an E other than d_model, and TypeError for another dtype than that of the parameters. Vaswani et al., 2017.
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: AttentionActivation = F.relu,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where)
        self._make(d_model, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, 3, where)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
                memory_is_causal: bool = False) -> Tensor:
        def to_itself(x):
            return self.dropout1(self._attend(self.self_attn, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))

        def to_memory(x):
            return self.dropout2(self._attend(self.multihead_attn, x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))

        x = self._around(tgt, self.norm1, to_itself)
        x = self._around(x, self.norm2, to_memory)
        return self._around(x, self.norm3, lambda y: self.dropout3(self._feed_forward(y)))


class TransformerEncoder(Module):
    """Copies of an encoder layer, one after the other, then norm. enable_nested_tensor and mask_check change nothing.

    encoder_layer: the layer that is copied. num_layers: how many copies.

    Raises TypeError where encoder_layer is no Module or num_layers no int, and ValueError for a negative num_layers. A call raises ValueError for an input that does not fit the layer.
    """

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies("TransformerEncoder", encoder_layer, num_layers), num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None) -> Tensor:
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=bool(is_causal), src_key_padding_mask=src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a decoder layer, one after the other, then norm. decoder_layer: the one that is copied num_layers times. norm: a module, or None.

    Raises TypeError where decoder_layer is no Module or num_layers no int, and ValueError for a negative num_layers. A call raises ValueError for an input that does not fit the layer.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies("TransformerDecoder", decoder_layer, num_layers), num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                        memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=bool(tgt_is_causal), memory_is_causal=memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder: src [S, N, E], tgt [T, N, E] -> [T, N, E]; with batch_first [N, S, E] and [N, T, E]; also without a batch.
    num_encoder_layers, num_decoder_layers: how many of each; custom_encoder, custom_decoder: modules in their place. The other arguments are those of
    TransformerEncoderLayer.

    ValueError unless nhead divides d_model. forward raises RuntimeError for an E other than d_model and for batches that differ, and TypeError for
    another dtype than that of the parameters. Vaswani et al., 2017.
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, dim_feedforward: int = 2048,
                 dropout: float = 0.1, activation: AttentionActivation = F.relu, custom_encoder: Module | None = None, custom_decoder: Module | None = None,
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}

        def layer(kind):
            return kind(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, **where)

        def norm():
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)

        self.encoder = custom_encoder if custom_encoder is not None else TransformerEncoder(layer(TransformerEncoderLayer), num_encoder_layers, norm())
        self.decoder = custom_decoder if custom_decoder is not None else TransformerDecoder(layer(TransformerDecoderLayer), num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self):
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Device | None = None, dtype: DType | None = None) -> Tensor:
        """[sz, sz] with -inf where a key comes after the query, otherwise 0."""
        return _causal_mask(sz, device, dtype)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(f"Transformer: the batches differ; got src {tuple(src.shape)} and tgt {tuple(tgt.shape)}; expected the same size of dim {batch}")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(f"Transformer: the last sizes do not fit; got src {tuple(src.shape)} and tgt {tuple(tgt.shape)}; expected d_model {self.d_model}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal)
