"""Attention with scores and masks that Python functions give, by PyTorch's names. A function is called once, with index tensors that broadcast to
[B, H, Q, K], so it is written with operators of tensors, as for PyTorch. All scores [B, H, Q, K] are in memory."""
from __future__ import annotations

import math

from ... import _C, _refused

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, overload

    from ..._C import Tensor
    from ..._annotations import Device, Shape
    from .._annotations import Size

    # Functions of the indices batch, head, query and key; a score comes before them.
    MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """A mask_mod that hides nothing. batch, head, token_q and token_kv: indices, of which only the device counts.

    Raises AttributeError for a batch that is no tensor.
    """
    return _C.ones((), dtype=_C.bool_, device=batch.device)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """A mask_mod (b, h, q_idx, kv_idx) that shows what all of mask_mods show: the & of their results, which are bool tensors.

    RuntimeError for no functions.
    """
    return _joined("and_masks", mask_mods, lambda a, b: a & b)


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """A mask_mod (b, h, q_idx, kv_idx) that shows what at least one of mask_mods shows: the | of their results, which are bool tensors.

    RuntimeError for no functions.
    """
    return _joined("or_masks", mask_mods, lambda a, b: a | b)


def _joined(op, mask_mods, join):
    if not mask_mods or not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"{op}: not functions; got {mask_mods!r}; expected at least one function (b, h, q_idx, kv_idx) of a bool")

    def joined(b, h, q_idx, kv_idx):
        shown = mask_mods[0](b, h, q_idx, kv_idx)
        for mod in mask_mods[1:]:
            shown = join(shown, mod(b, h, q_idx, kv_idx))
        return shown

    return joined


def _indices(sizes, device):
    """One index tensor for each dim of [B, H, Q, K]."""
    return [_C.arange(n, device=device).view(*(n if i == dim else 1 for i in range(4))) for dim, n in enumerate(sizes)]


class BlockMask:
    """What a mask_mod shows, for flex_attention. shape: (B, H, Q, K); B and H may be 1 for all. The function is called again for each attention, with its indices.

    mask_mod: a function of (batch, head, query, key), indices, that gives True where a score counts. sizes: the shape. device: where masks are made. block_size: rows and columns of a block, a pair.

    Raises TypeError for a mask_mod that cannot be called, and ValueError for a block_size below 1. to_dense() and attention raise what mask_mod raises.
    """

    def __init__(self, mask_mod: MaskMod, sizes: Shape, device: Device | None, block_size: tuple[int, int]) -> None:
        if not callable(mask_mod):
            raise TypeError(f"BlockMask: mask_mod cannot be called; got {type(mask_mod).__name__}; expected a function of (b, h, q_idx, kv_idx)")
        if len(block_size) != 2 or not all(isinstance(n, int) and n > 0 for n in block_size):
            raise ValueError(f"BlockMask: the size of a block does not fit; got {block_size}; expected a positive int, or two of them")
        self.mask_mod, self.shape, self.device, self.BLOCK_SIZE = mask_mod, tuple(sizes), device, block_size
        self.seq_lengths = self.shape[2:]

    def to_dense(self) -> Tensor:
        """The blocks that show something, [B, H, blocks of Q, blocks of K], 1 or 0."""
        b, h, q, k = self.shape
        rows, columns = self.BLOCK_SIZE
        shown = create_mask(self.mask_mod, b, h, q, k, self.device).to(_C.float32)
        shown = _C.pad(shown, (0, -k % columns, 0, -q % rows))
        return shown.view(b, h, shown.shape[2] // rows, rows, shown.shape[3] // columns, columns).amax((3, 5)).to(_C.int32)

    def numel(self) -> int:
        """The number of scores that the mask covers, shown or hidden, an int: B * H * Q * K."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """How many of the blocks show nothing, in percent, a float. It calls mask_mod and reads the result from the device."""
        return 100.0 * (1 - self.to_dense().float().mean().item())

    def to(self, device: Device | None) -> BlockMask:
        """The mask for another device. What the function itself holds stays where it is."""
        return BlockMask(self.mask_mod, self.shape, device, self.BLOCK_SIZE)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, BLOCK_SIZE={self.BLOCK_SIZE})"


def create_mask(mod_fn: MaskMod | ScoreMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Device | None = None) -> Tensor:
    """The bool mask [B, H, Q_LEN, KV_LEN] of a mask_mod, or the float scores that a score_mod adds to zeros; B and H None count as 1.

    mod_fn: the mask_mod (4 arguments) or score_mod (5). Q_LEN, KV_LEN: the numbers of queries and keys.

    Raises TypeError for a function that cannot be called with so many arguments; ValueError for a negative length and a device that does not exist;
    AttributeError where the function returns no tensor.
    """
    import inspect

    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    at = _indices(sizes, device)
    wanted = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in inspect.signature(mod_fn).parameters.values())
    values = mod_fn(_C.zeros(sizes, device=device), *at) if wanted == 5 else mod_fn(*at)
    return values.expand(sizes)


def create_block_mask(mask_mod: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Device | None = None, BLOCK_SIZE: Size = 128,
                      _compile: bool = False) -> BlockMask:
    """A BlockMask of mask_mod(b, h, q_idx, kv_idx), which is true where a query sees a key. B and H None count as 1.

    Q_LEN, KV_LEN: the numbers of queries and keys. BLOCK_SIZE: a number, or one for queries and one for keys; it is what to_dense() and sparsity() count
    in, and changes no result. _compile changes nothing.

    Raises TypeError for a mask_mod that cannot be called, and ValueError for a BLOCK_SIZE that is not a positive int or two of them. The lengths are
    checked by flex_attention.
    """
    blocks = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(mask_mod, (B or 1, H or 1, Q_LEN, KV_LEN), device, blocks)


if TYPE_CHECKING:

    @overload
    def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None, block_mask: BlockMask | None = None,
                       scale: float | None = None, enable_gqa: bool = False, return_lse: Literal[False] = False, kernel_options: dict[str, Any] | None = None,
                       *, return_aux: None = None) -> Tensor: ...

    @overload
    def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None, block_mask: BlockMask | None = None,
                       scale: float | None = None, enable_gqa: bool = False, *, return_lse: Literal[True], kernel_options: dict[str, Any] | None = None,
                       return_aux: None = None) -> tuple[Tensor, Tensor]: ...

    @overload
    def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None, block_mask: BlockMask | None = None,
                       scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: dict[str, Any] | None = None, *,
                       return_aux: None = None) -> Tensor | tuple[Tensor, Tensor]: ...


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: ScoreMod | None = None, block_mask: BlockMask | None = None,
                   scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: dict[str, Any] | None = None, *,
                   return_aux: None = None) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(score_mod(query key^T scale), where block_mask shows it) value.

    query [B, Hq, Q, E], key [B, Hkv, K, E], value [B, Hkv, K, Ev]; the result is [B, Hq, Q, Ev]. score_mod(score, b, h, q_idx, kv_idx) gives the new
    scores; scale is 1 / sqrt(E) without one. enable_gqa: Hkv divides Hq, and Hq / Hkv queries share a key. return_lse: also the logarithms of the sums of
    exponentials of scores [B, Hq, Q]. A query that sees no key gives zeros. RuntimeError: block_mask is for other lengths. kernel_options changes nothing. return_aux is a NotImplementedError; return_lse does its work."""
    op = "flex_attention"
    if return_aux is not None:
        raise NotImplementedError(f"{op}: return_aux is not available; expected None; hint: return_lse=True")
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise ValueError(f"{op}: not 4 dims; got {tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}; expected [B, H, Q, E], [B, H, K, E] and [B, H, K, Ev]")
    b, h, q, e = query.shape
    k = key.shape[2]
    if h != key.shape[1]:
        if not enable_gqa or h % key.shape[1]:
            raise ValueError(f"{op}: heads do not fit; got {h} of query and {key.shape[1]} of key; expected the same number; hint: enable_gqa=True where one divides the other")
        key, value = (x.repeat_interleave(h // key.shape[1], 1) for x in (key, value))
    scores = (query @ key.mT) * (max(e, 1) ** -0.5 if scale is None else scale)
    at = _indices((b, h, q, k), query.device)
    if score_mod is not None:
        scores = score_mod(scores, *at)
    shown = None
    if block_mask is not None:
        if (q, k) != tuple(block_mask.shape[2:]):
            raise RuntimeError(f"{op}: block_mask does not fit; got one for {tuple(block_mask.shape[2:])} queries and keys; expected {(q, k)}; hint: create_block_mask with these lengths")
        shown = block_mask.mask_mod(*at)
        scores = _C.where(shown, scores, -math.inf)
    lse = _C.logsumexp(scores, -1)
    some = lse > -math.inf
    weights = _C.exp(scores - _C.where(some, lse, 0.0).unsqueeze(-1))
    out = (weights.to(value.dtype) @ value).to(query.dtype)
    return (out, lse.float()) if return_lse else out


__getattr__ = _refused.module("nn.attention.flex_attention", "flex_attention, create_block_mask and create_mask are")
