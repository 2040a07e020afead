"""Adam with moments of 8 bits in blocks, each with a scale, by the names of torchao.optim: Adam8bit, AdamW8bit and AdamWFp8.

A step decodes the moments, computes Adam's update in float32, and encodes them again, all in ops on the parameter's device. The second moment never becomes 0 by rounding:
an element whose second moment is 0 while its first is not would move by lr m / eps, which is far too much (Li et al., "Memory efficient optimizers with 4-bit states",
2023, section 4).
"""
from __future__ import annotations

import math

from .. import _C
from .._dtypes import finfo
from .adam import decayed
from .optimizer import Optimizer

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._annotations import Pair, Rate, State
    from .optimizer import ParamsT

_SMALLEST = 4096  # parameters with fewer elements keep moments of float32
_PIECE = 1 << 22  # elements of a parameter that one piece of a step updates
_POWERS = 7  # of ten, of the dynamic codes


class _Dynamic:
    """Codes uint8 for 256 numbers; the scale is the block's largest magnitude. Dettmers et al., "8-bit optimizers via block-wise quantization", 2021.

    The numbers, in the order of their codes, are 0, 1, and for each power of ten 10^(i-6), i from 0 to 6, the middles of 2^i equal parts of 0.1 to 1; these with both signs.
    Unsigned: twice as many parts and no signs. Codes are computed, not looked up, so that they are part of the loop around them."""

    dtype = _C.uint8

    def __init__(self, signed):
        self._signed = signed
        self._first = 1.0 if signed else 2.0  # parts of the lowest power

    @staticmethod
    def _inverse(i):
        """10^(6-i)."""
        return _C.exp2((_POWERS - 1 - i) * math.log2(10))

    def encode(self, x):
        """x: float32 [blocks, size] -> codes of the same shape, scale float32 [blocks, 1]."""
        amax = x.abs().amax(1, keepdim=True)
        y = x / _C.where(amax == 0, 1.0, amax)
        size = y.abs()
        i = (size.log10() + _POWERS).floor().clamp(0.0, _POWERS - 1.0)
        parts = self._first * _C.exp2(i).round()
        part = ((size * self._inverse(i) - 0.1) * (parts / 0.9)).floor()
        rank = _C.minimum(part.clamp(min=0.0), parts - 1) + (parts if self._signed else parts - 1)
        rank = _C.where(size < 0.5 * self._least, 0.0, rank)
        largest = 1 - 0.225 / (self._first * 2 ** (_POWERS - 1))
        if self._signed:
            codes = _C.where(y > largest, 255.0, _C.where(y < 0, 127 - rank, 127 + rank))
        else:
            codes = _C.where(y > largest, 255.0, _C.maximum(rank, (x > 0).to(_C.float32)))
        return _C.where(y.isnan(), 255.0, codes).to(_C.uint8), amax

    @property
    def _least(self):
        return 10.0 ** (1 - _POWERS) * (0.1 + 0.45 / self._first)

    def decode(self, codes, scale):
        """The numbers float32 [blocks, size]."""
        code = codes.to(_C.float32)
        rank = (code - 127).abs() if self._signed else code
        lowest = rank if self._signed else rank + 1  # the parts of the power, and the number of the part
        i = ((lowest + 0.5) / self._first).log2().floor().clamp(0.0, _POWERS - 1.0)
        parts = self._first * _C.exp2(i).round()
        y = (0.1 + (lowest - parts + 0.5) * (0.9 / parts)) / self._inverse(i)
        y = _C.where(rank == 0, 0.0, _C.where(code == 255, 1.0, y))
        return (_C.where(code < 127, -y, y) if self._signed else y) * scale


class _Float8:
    """Codes float8_e4m3fn; the scale brings the block's largest magnitude to 448."""

    dtype = _C.float8_e4m3fn

    def __init__(self, signed):
        self._signed = signed

    def encode(self, x):
        amax = x.abs().amax(1, keepdim=True)
        info = finfo(self.dtype)
        scale = _C.where(amax == 0, 1.0, amax / info.max)
        y = x / scale
        if not self._signed:
            smallest = info.tiny * info.eps
            y = _C.where((y > 0) & (y < smallest), smallest, y)
        return y.clamp(-info.max, info.max).to(self.dtype), scale

    def decode(self, codes, scale):
        return codes.to(_C.float32) * scale


class _LowBitAdam(Optimizer):
    """Adam, or AdamW where _decoupled, with moments in the blocks of _format."""

    _format, _decoupled = _Dynamic, False
    _moments = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    _other_shapes = tuple(f"{name}_scale" for name in _moments)
    _needs_whole = True

    def __init__(self, params: ParamsT, lr: Rate, betas: Pair, eps: float, weight_decay: float, amsgrad: bool, block_size: int, bf16_stochastic_round: bool,
                 maximize: bool) -> None:
        super().__init__(params, dict(lr=lr, betas=tuple(betas) if isinstance(betas, list) else betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, block_size=block_size,
                                      bf16_stochastic_round=bf16_stochastic_round, maximize=maximize, decoupled_weight_decay=self._decoupled))

    def _check(self, group):
        super()._check(group)
        size = group["block_size"]
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{type(self).__name__}: block_size is no number of elements; got {size!r}; expected a positive int")
        for p in group["params"]:
            if not p.is_floating_point():
                raise TypeError(f"{type(self).__name__}: a parameter has no floating dtype; got {p.dtype}; expected float32, bfloat16, float16 or float64")

    # ---- states

    def _begin(self, p, group):
        names = self._moments if group["amsgrad"] else self._moments[:2]
        state = {}
        for name in names:
            state.update(self._encoded(name, _C.zeros(p.shape, dtype=_C.float32, device=p.device), group))
        return state

    def _encoded(self, name, value, group):
        """The entries of a moment: itself where the parameter is small, otherwise codes of its shape and a scale for each block of block_size elements."""
        if value.numel() < _SMALLEST:
            return {name: value}
        codes, scale = self._coder(name).encode(_blocks(value, group["block_size"]))
        return {name: codes.reshape(-1)[:value.numel()].reshape(value.shape), f"{name}_scale": scale.reshape(-1)}

    def _decoded(self, name, state, group):
        value = state[name]
        if f"{name}_scale" not in state:
            return value
        x = self._coder(name).decode(_blocks(value, group["block_size"]), state[f"{name}_scale"].reshape(-1, 1))
        return x.reshape(-1)[:value.numel()].reshape(value.shape)

    def _coder(self, name):
        return self._format(signed=name == "exp_avg")

    def _store(self, name, value, state, group):
        scale = f"{name}_scale"
        if scale not in state:
            state[name].copy_(value)
            return
        codes, scales = self._coder(name).encode(_blocks(value, group["block_size"]))
        state[name].copy_(codes.reshape(-1)[:value.numel()].reshape(value.shape))
        state[scale].copy_(scales.reshape(-1))

    # ---- steps

    def _update_one(self, p, grad, state, group):
        """Large parameters in pieces of whole blocks, because a step needs several float32 numbers for each element of a piece."""
        if group["amsgrad"] and "max_exp_avg_sq" not in state:  # it was switched on later
            state.update(self._encoded("max_exp_avg_sq", _C.zeros(p.shape, dtype=_C.float32, device=p.device), group))
        if p.numel() <= _PIECE or not p.is_contiguous():
            self._update_piece(p.detach(), grad, state, group)
            return
        block = group["block_size"]
        size = max(1, _PIECE // block) * block
        p, grad = p.detach().reshape(-1), grad.reshape(-1)
        for begin in range(0, p.numel(), size):
            piece = slice(begin, begin + size)
            blocks = slice(begin // block, (begin + size) // block)
            part = {k: v[blocks] if k.endswith("_scale") else v.reshape(-1)[piece] for k, v in state.items() if k not in self._numbers}
            self._update_piece(p[piece], grad[piece], {"step": state["step"], **part}, group)

    def _update_piece(self, p, grad, state, group):
        t, (beta1, beta2), lr = state["step"], group["betas"], float(group["lr"])
        wide = _C.float64 if p.dtype == _C.float64 else _C.float32
        value, grad = decayed(p.to(wide), grad.to(wide), lr, group)
        grad = grad.to(_C.float32)
        m = self._decoded("exp_avg", state, group) * beta1 + grad * (1 - beta1)
        v = self._decoded("exp_avg_sq", state, group) * beta2 + grad * grad * (1 - beta2)
        self._store("exp_avg", m, state, group)
        self._store("exp_avg_sq", v, state, group)
        if group["amsgrad"]:
            v = _C.maximum(self._decoded("max_exp_avg_sq", state, group), v)
            self._store("max_exp_avg_sq", v, state, group)
        value = value - lr / (1 - beta1**t) * m / (v.sqrt() / math.sqrt(1 - beta2**t) + group["eps"])
        p.copy_(_rounded_stochastically(value) if group["bf16_stochastic_round"] and p.dtype == _C.bfloat16 else value)

    # ---- state dicts

    def _loaded(self, name, value, p):
        if name in self._numbers or not isinstance(value, _C.Tensor):
            return super()._loaded(name, value, p)
        return value.detach().to(p.device).clone()

    def _match(self, state_dict):
        params = super()._match(state_dict)
        for key, entry in state_dict["state"].items():
            for name in self._moments:
                if f"{name}_scale" in entry and entry[name].dtype != self._format.dtype:
                    raise ValueError(f"load_state_dict: '{name}' of parameter {key} has codes of another format; got {entry[name].dtype}; expected {self._format.dtype} of {type(self).__name__}")
        return params

    def load_state_dict(self, state_dict: State) -> None:
        """Restores a state dict, also one of Adam or AdamW, whose moments are encoded. ValueError if groups, shapes or the format of codes differ; then nothing is changed."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)
            group["decoupled_weight_decay"] = self._decoupled
            for p in group["params"]:
                state = self.state.get(p, {})
                for name in self._moments:
                    if name in state and f"{name}_scale" not in state:
                        state.update(self._encoded(name, state[name].to(_C.float32), group))


def _blocks(x, size):
    """The elements in rows of `size`, zeros behind the last."""
    x, rest = x.reshape(-1), -x.numel() % size
    if rest:
        x = _C.cat([x, _C.zeros(rest, dtype=x.dtype, device=x.device)])
    return x.reshape(-1, size)


def _rounded_stochastically(x):
    """float32 -> bfloat16: up with the probability of the distance to the lower number, in the space between the two, so that the mean is x."""
    bits = x.view(_C.int32)
    draw = _C.randint(0, 1 << 16, x.shape, dtype=_C.int32, device=x.device)
    lower = bits & ~0xFFFF
    up = draw < (bits & 0xFFFF)
    rounded = _C.where(up, lower + (1 << 16), lower).view(_C.float32)
    return _C.where(x.isfinite(), rounded, x).to(_C.bfloat16)


class Adam8bit(_LowBitAdam):
    """Adam whose two moments take 8 bits: uint8 codes, and a float32 scale for each block of 256 elements, about 2.03 bytes of state for an element instead of 8.

    The codes are those of dynamic quantization: a power of ten of seven, and an even division of it. Moments of parameters with less than 4096 elements are float32.
    bf16_stochastic_round: bfloat16 parameters are rounded at random, so that updates smaller than their last digit are not lost: the mean over draws is the exact number. pf.manual_seed
    makes the draws repeatable. No effect on parameters of other dtypes.
    params, lr, betas, eps, weight_decay (added to the gradient), amsgrad, maximize: as Adam. block_size: elements with a common scale.
    state: exp_avg, exp_avg_sq uint8 of the parameter's shape, exp_avg_scale, exp_avg_sq_scale float32 [ceil(elements / block_size)]; with amsgrad also max_exp_avg_sq.
    Dettmers et al., "8-bit optimizers via block-wise quantization", 2021.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, eps or weight_decay, a beta outside of [0,
    1), and a block_size that is not a positive int; TypeError for params that are one tensor or not all tensors, and for an option that is no
    number, betas that are not two numbers, or a parameter without a floating dtype.
    step() raises NotImplementedError for parts of parameters (fully_shard).
    """

    def __init__(self, params: ParamsT, lr: Rate = 1e-3, betas: Pair = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, *,
                 block_size: int = 256, bf16_stochastic_round: bool = False, maximize: bool = False) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, block_size, bf16_stochastic_round, maximize)


class AdamW8bit(_LowBitAdam):
    """Adam8bit with decoupled weight decay, p *= 1 - lr weight_decay before the update, as AdamW. State and errors are those of Adam8bit. The arguments are those of Adam8bit."""

    _decoupled = True

    def __init__(self, params: ParamsT, lr: Rate = 1e-3, betas: Pair = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
                 block_size: int = 256, bf16_stochastic_round: bool = False, maximize: bool = False) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, block_size, bf16_stochastic_round, maximize)


class AdamWFp8(_LowBitAdam):
    """AdamW whose two moments are pf.float8_e4m3fn with a float32 scale for each block of 256 elements: the largest magnitude of a block becomes 448.

    The codes have 3 bits of fraction for each power of two, and reach down to 2^-18 of the block's largest. The dtype only stores, so every device can use it. Errors and the names of the
    state's entries are those of Adam8bit; exp_avg and exp_avg_sq are float8_e4m3fn. The arguments are those of Adam8bit. weight_decay is decoupled, as AdamW's."""

    _format, _decoupled = _Float8, True

    def __init__(self, params: ParamsT, lr: Rate = 1e-3, betas: Pair = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
                 block_size: int = 256, bf16_stochastic_round: bool = False, maximize: bool = False) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, block_size, bf16_stochastic_round, maximize)
