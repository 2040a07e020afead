"""Multi-head attention."""
from __future__ import annotations

from .. import _C
from . import init
from ._arguments import _integers, _probability
from .functional_attention import Masks, Projections, attend
from .linear import Linear
from .module import Module
from .parameter import Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor
    from .._annotations import DType, Device


class MultiheadAttention(Module):
    """Multi-head attention with a packed input projection, or one for each input where kdim or vdim differ. Inputs are [B, T, E] with batch_first,
    otherwise [T, B, E]; without a batch, [T, E]. A call returns (output, weights): the output has the shape of the query, and the weights are [B, T, S], the
    mean over the heads (average_attn_weights=False: [B, heads, T, S]), for S keys. need_weights=False gives None in their place, which is faster.

    - embed_dim: the size E of queries and results; num_heads divides it. kdim, vdim: the sizes of keys and values; E unless given.
    - dropout: the probability with which weights of the attention become 0 in training. bias: of the projections.
    - add_bias_kv: a learned key and value are added to the sequence; add_zero_attn: a key and a value of zeros.
    - device, dtype: of the parameters; the current ones unless given.

    Masks: True in a bool attn_mask or key_padding_mask means "may not be seen" (as in PyTorch, and the opposite of
    scaled_dot_product_attention); a float attn_mask is added to the scores.

    Raises ValueError where num_heads does not divide embed_dim, for sizes that are too small and a dropout outside of 0 to 1; TypeError for sizes that are no
    integers. A call raises ValueError for a query of another rank or last size, keys and values that do
    not fit, and masks of another shape; RuntimeError for masks of integers; TypeError for another dtype than the parameters' and for what is
    no tensor.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False,
                 kdim: int | None = None, vdim: int | None = None, batch_first: bool = False, device: Device | None = None, dtype: DType | None = None) -> None:
        super().__init__()
        _integers("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        _integers("MultiheadAttention", **{name: v for name, v in (("kdim", kdim), ("vdim", vdim)) if v is not None})
        for name, v, least in (("embed_dim", embed_dim, 1), ("num_heads", num_heads, 1), ("kdim", kdim, 0), ("vdim", vdim, 0)):
            if v is not None and v < least:
                raise ValueError(f"MultiheadAttention: {name} is too small; got {v}; expected {least} or more")
        _probability("MultiheadAttention", "dropout", dropout)
        if embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: num_heads must divide embed_dim; got embed_dim {embed_dim}, num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim, self.add_zero_attn = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.head_dim = embed_dim // num_heads

        def empty(*shape):
            return Parameter(_C.empty(*shape, dtype=dtype, device=device))

        for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v"):
            self.register_parameter(name, None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device=device, dtype=dtype)
        if self._qkv_same_embed_dim:
            self.in_proj_weight = empty(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (empty(embed_dim, n) for n in (embed_dim, self.kdim, self.vdim))
        if bias:
            self.in_proj_bias = empty(3 * embed_dim)
        if add_bias_kv:
            self.bias_k, self.bias_v = empty(1, 1, embed_dim), empty(1, 1, embed_dim)
        self._reset_parameters()

    def _reset_parameters(self):
        for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if w is not None:
                init.xavier_uniform_(w)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for b in (self.bias_k, self.bias_v):
            if b is not None:
                init.xavier_normal_(b)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
                attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(output, weights). weights are None without need_weights, which is faster. is_causal hides later keys; with an attn_mask, it says that the mask
        does so."""
        p = Projections(self.in_proj_weight, (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight), self.in_proj_bias, self.bias_k, self.bias_v,
                        self.out_proj.weight, self.out_proj.bias)
        masks = Masks(attn_mask, key_padding_mask, is_causal)
        return attend("MultiheadAttention", query, key, value, self.num_heads, p, masks, self.dropout if self.training else 0.0, need_weights,
                      average_attn_weights, self.batch_first, self.add_zero_attn)
