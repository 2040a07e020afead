"""Pruning: parameters times a mask of zeros and ones. A module gets name_orig and name_mask, and computes name before each forward."""
from __future__ import annotations

import numbers
from abc import ABC, abstractmethod

from ... import _C
from ..._grad_mode import no_grad

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from ..._C import Tensor
    from .._annotations import ModuleT
    from ..module import Module


class BasePruningMethod(ABC):
    """The hook that applies a mask. A subclass defines PRUNING_TYPE ('unstructured', 'structured' or 'global') and compute_mask.

    Raises TypeError for a class without compute_mask.
    """

    PRUNING_TYPE = "unstructured"
    _tensor_name = None

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The new mask, a tensor of the shape of t: 0 where the method prunes and where default_mask is 0, 1 elsewhere. t: the scores, by default the
        parameter.
        """

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned parameter of a module, a tensor: name_orig * name_mask, where name is the parameter that this method prunes."""
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> BasePruningMethod:
        """Prunes module.name by this method; further methods prune what is left. Returns the method."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = _hook(module, name)
        if before is not None:
            at, old = before
            del module._forward_pre_hooks[at]
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(f"prune: importance_scores do not fit; got shape {tuple(scores.shape)}; expected {tuple(original.shape)}")
        if before is None:
            delattr(module, name)
            module.register_parameter(name + "_orig", original)
            default = _C.ones_like(original.detach())
        else:
            default = getattr(module, name + "_mask").detach().clone()
        with no_grad():
            mask = method.compute_mask(scores.detach(), default)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """t times the mask that this method computes, a tensor; no module is changed. default_mask: as in compute_mask, by default ones. importance_scores:
        what the mask is computed from, by default t.
        """
        scores = t if importance_scores is None else importance_scores
        return t * self.compute_mask(scores, _C.ones_like(t) if default_mask is None else default_mask)

    def remove(self, module: Module) -> None:
        """Ends the pruning of the module's parameter: name is a parameter again, with the pruned values, and name_orig and name_mask are gone."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        original = getattr(module, name + "_orig")
        with no_grad():
            original.copy_(weight.detach())
        for k in (name, name + "_orig", name + "_mask"):
            delattr(module, k)
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods for one parameter; each prunes what those before it left. Raises AttributeError for what is no pruning method."""

    PRUNING_TYPE = "container"

    def __init__(self, *args: Any) -> None:
        self._pruning_methods = ()
        for method in args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args:
            self._tensor_name = self._tensor_name or method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Appends a method, which prunes what the earlier ones left. TypeError where it is none, ValueError where it is for another parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"PruningContainer: not a pruning method; got {type(method).__name__}")
        if method._tensor_name != self._tensor_name:
            raise ValueError(f"PruningContainer: for another parameter; got '{method._tensor_name}'; expected '{self._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":  # among the elements that are left
            kept = mask.reshape(-1).nonzero().reshape(-1)
            part = method.compute_mask(t.reshape(-1).index_select(0, kept), _C.ones(kept.shape[0], dtype=t.dtype, device=t.device))
            return _C.zeros(t.numel(), dtype=t.dtype, device=t.device).scatter_add(0, kept, part).reshape(t.shape)
        if method.PRUNING_TYPE == "structured":  # among the slices that are left
            dim = method.dim % t.ndim
            others = tuple(d for d in range(t.ndim) if d != dim)
            kept = (mask.sum(others) != 0).nonzero().reshape(-1)
            part = method.compute_mask(t.index_select(dim, kept), mask.index_select(dim, kept))
            return _C.zeros(t.shape, dtype=t.dtype, device=t.device).index_add(dim, kept, part.to(t.dtype))
        if method.PRUNING_TYPE == "global":
            return mask * method.compute_mask(t, mask)
        raise ValueError(f"PruningContainer: unknown PRUNING_TYPE; got '{method.PRUNING_TYPE}'; expected 'unstructured', 'structured' or 'global'")


class Identity(BasePruningMethod):
    """Prunes nothing: the mask of a parameter is what it was, ones at first. apply(module, name) returns the method. Never raises."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


def _count(amount, size):
    """How many of `size` an amount means: a part of them, or their number."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"prune: the amount is not a number; got {type(amount).__name__}")
    if amount < 0 or (not isinstance(amount, numbers.Integral) and amount > 1):
        raise ValueError(f"prune: the amount is out of range; got {amount}; expected a number of units, or a part between 0.0 and 1.0")
    if isinstance(amount, numbers.Integral):
        if amount > size:
            raise ValueError(f"prune: the amount is out of range; got {amount}; expected at most {size}")
        return amount
    return round(amount * size)


class _ByAmount(BasePruningMethod):
    def __init__(self, amount: float) -> None:
        if not isinstance(amount, numbers.Integral):
            _count(amount, 0)
        elif amount < 0:
            _count(amount, 0)
        self.amount = amount


def _without(mask, index):
    """The flat mask with zeros at the index."""
    flat = mask.reshape(-1)
    hidden = _C.zeros_like(flat).scatter_add(0, index, _C.ones(index.shape[0], dtype=flat.dtype, device=flat.device))
    return (flat * (1 - hidden)).reshape(mask.shape)


class RandomUnstructured(_ByAmount):
    """Prunes elements at random: the mask is 0 at as many places as amount says, and has the parameter's shape.

    amount: an int counts elements, a float from 0.0 to 1.0 is a part of them. ValueError for another range or for more elements than there are; TypeError
    for no number.
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        n = _count(self.amount, t.numel())
        return default_mask.clone() if n == 0 else _without(default_mask, _C.topk(_C.rand(t.numel(), device=t.device), n)[1])


class L1Unstructured(_ByAmount):
    """Prunes the elements with the smallest magnitudes |x|: the mask is 0 at as many places as amount says, and has the parameter's shape.

    amount: an int counts elements, a float from 0.0 to 1.0 is a part of them. ValueError for another range or for more elements than there are; TypeError
    for no number.
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        n = _count(self.amount, t.numel())
        return default_mask.clone() if n == 0 else _without(default_mask, _C.topk(_C.abs(t).reshape(-1), n, largest=False)[1])


class _Slices(_ByAmount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(f"prune: slices need at least 2 dimensions; got shape {tuple(t.shape)}")
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"prune: dim out of range; got {self.dim} for {t.ndim} dimensions")
        dim = self.dim % t.ndim
        size = t.shape[dim]
        n = _count(self.amount, size)
        if n == 0:
            return default_mask
        keep = _C.zeros(size, dtype=t.dtype, device=t.device)
        if size > n:
            at = _C.topk(self._scores(t, dim), size - n)[1]
            keep = keep.scatter_add(0, at, _C.ones(size - n, dtype=t.dtype, device=t.device))
        return keep.reshape(*(size if d == dim else 1 for d in range(t.ndim))) * default_mask.to(dtype=t.dtype)


class RandomStructured(_Slices):
    """Prunes slices along dim at random: the mask is 0 in as many slices as amount says, and has the parameter's shape.

    amount: an int counts slices, a float from 0.0 to 1.0 is a part of them. dim: that along which slices lie. ValueError for another range, for more
    slices than there are, and for fewer than 2 dims; TypeError for no number; IndexError for a dim out of range.
    """

    def _scores(self, t, dim):
        return _C.rand(t.shape[dim], device=t.device)


class LnStructured(_Slices):
    """Prunes the slices along dim with the smallest n-norms. amount: their number, or a part of the slices, from 0 to 1.

    n: which norm. Raises ValueError for an amount out of range, and TypeError for one that is no number. Pruning raises IndexError for a dim out of range,
    and ValueError for a tensor of one dim.
    """

    def __init__(self, amount: float, n: float, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t, dim):
        return t.norm(self.n, tuple(d for d in range(t.ndim) if d != dim))


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is 0. mask: a tensor of the parameter's shape, bool or of numbers, which multiplies the mask that is there.

    apply(module, name, mask) raises ArgumentError for a mask of another shape.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if tuple(self.mask.shape) != tuple(default_mask.shape):
            raise _C.ArgumentError(f"custom_from_mask: the mask has another shape than the parameter; got {tuple(self.mask.shape)}; expected {tuple(default_mask.shape)}")
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: ModuleT, name: str) -> ModuleT:
    """Adds mask and original without pruning. Returns the module, as all functions below do.

    Raises AttributeError for a name that the module lacks.
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: ModuleT, name: str, amount: float) -> ModuleT:
    """Prunes an amount (a part, or a number) of elements of module.name at random.

    Raises AttributeError for a name that the module lacks; ValueError for an amount out of range; TypeError for one that is no number.
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: ModuleT, name: str, amount: float, importance_scores: Tensor | None = None) -> ModuleT:
    """Prunes the amount of elements of module.name with the smallest magnitudes.

    amount: a number of elements, or a part of them, from 0 to 1. importance_scores: of the parameter's shape; the magnitudes are those of these instead.

    Raises AttributeError for a name that the module lacks; ValueError for an amount out of range; TypeError for one that is no number; AssertionError for
    importance_scores of another shape.
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: ModuleT, name: str, amount: float, dim: int) -> ModuleT:
    """Prunes an amount of slices of module.name along dim at random. amount: a number of slices, or a part of them, from 0 to 1.

    Raises AttributeError for a name that the module lacks; ValueError for an amount out of range and a parameter of one dim; TypeError for an amount that
    is no number; IndexError for a dim out of range.
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: ModuleT, name: str, amount: float, n: float, dim: int, importance_scores: Tensor | None = None) -> ModuleT:
    """Prunes the amount of slices along dim with the smallest n-norms.

    module.name is the parameter. amount: a number of slices, or a part of them, from 0 to 1. importance_scores: of the parameter's shape; the norms are taken of these
    instead.

    Raises AttributeError for a name that the module lacks; ValueError for an amount out of range and a parameter of one dim; TypeError for an amount that
    is no number; IndexError for a dim out of range; AssertionError for importance_scores of another shape.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: ModuleT, name: str, mask: Tensor) -> ModuleT:
    """Prunes module.name where the mask, of its shape, is 0. Returns the module.

    name: a parameter of the module, an AttributeError otherwise. mask: a tensor, bool or of zeros and ones; ArgumentError for another
    shape.
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
                        importance_scores: Mapping[tuple[Module, str], Tensor] | None = None, **kwargs: Any) -> None:
    """Prunes all (module, name) pairs together by an unstructured method: an amount counts over all of them.

    parameters: the pairs. pruning_method: a class such as L1Unstructured (TypeError for others), made with kwargs, such as amount=0.5. importance_scores: {(module, name): a
    tensor of the parameter's shape}; the values of the others are their scores.
    """
    parameters = list(parameters)
    if pruning_method.PRUNING_TYPE != "unstructured":
        raise TypeError(f"global_unstructured: not an unstructured method; got PRUNING_TYPE '{pruning_method.PRUNING_TYPE}'")
    scores = importance_scores or {}
    values = [scores.get((m, name), getattr(m, name)).detach() for m, name in parameters]
    masks = [getattr(m, name + "_mask", _C.ones_like(v)) for (m, name), v in zip(parameters, values)]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    with no_grad():
        joint = container.compute_mask(_C.cat([v.reshape(-1) for v in values]), _C.cat([m.reshape(-1) for m in masks]))
    at = 0
    for (module, name), v in zip(parameters, values):
        custom_from_mask(module, name, joint.narrow(0, at, v.numel()).reshape(v.shape))
        at += v.numel()


def _hook(module, name):
    return next(((at, h) for at, h in module._forward_pre_hooks.items() if isinstance(h, BasePruningMethod) and h._tensor_name == name), None)


def remove(module: ModuleT, name: str) -> ModuleT:
    """Makes the pruned values the parameter's own, and pruning is over. Returns the module.

    Raises ValueError where this name of the module is not pruned.
    """
    found = _hook(module, name)
    if found is None:
        raise ValueError(f"prune.remove: '{name}' of {type(module).__name__} is not pruned")
    del module._forward_pre_hooks[found[0]]
    found[1].remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether the module, or one in it, is pruned: a bool. It is False again after remove(). Never raises for a Module."""
    return any(isinstance(h, BasePruningMethod) for m in module.modules() for h in m._forward_pre_hooks.values())
