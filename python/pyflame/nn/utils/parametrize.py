"""Parameters that are computed from others each time that they are read: module.weight = f(module.parametrizations.weight.original)."""
from __future__ import annotations

import copy
from contextlib import contextmanager

from ..._C import Tensor
from ..._grad_mode import no_grad
from ..containers import ModuleDict, ModuleList
from ..parameter import Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .._annotations import ModuleT
    from ..module import Module

_cache_enabled = 0
_cache = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within it, each parametrized tensor is computed once, when it is first read."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module, name, tensor):
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor, getattr(tensor, "persistent", True))


def _becomes(tensor, value):
    """tensor holds value from now on; optimizers that have it keep it."""
    if not value.is_same(tensor):
        tensor._become(value.detach(), tensor.requires_grad)
    return tensor


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, applied in their order to original (original0, original1, ... where right_inverse returns several).

    Raises ValueError for no modules, TypeError for what is no Module, and what the modules raise.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList: no parametrizations; expected at least one")
        super().__init__(modules)
        self.unsafe = unsafe
        new = original
        with no_grad():
            try:
                for m in reversed(list(self)):
                    if hasattr(m, "right_inverse"):
                        new = m.right_inverse(new)
            except NotImplementedError:  # the tensor itself becomes the original, as in PyTorch
                pass
        if not isinstance(new, (Tensor, tuple, list)):
            raise ValueError(f"register_parametrization: right_inverse returned {type(new).__name__}; expected a tensor or a sequence of tensors")
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != new.dtype and not unsafe:
                raise ValueError(f"register_parametrization: right_inverse changed the dtype; got {new.dtype}; expected {original.dtype}")
            _register(self, "original", _becomes(original, new) if isinstance(original, Parameter) else new)
        else:
            for i, t in enumerate(new):
                if not isinstance(t, Tensor):
                    raise ValueError(f"register_parametrization: right_inverse returned {type(t).__name__} in its sequence; expected tensors")
                _register(self, f"original{i}", Parameter(t, original.requires_grad) if isinstance(original, Parameter) else t.detach())
        if not unsafe:
            self._check(original, original.shape if not self.is_tensor or new.is_same(original) else None)

    def _originals(self):
        return (self.original,) if self.is_tensor else tuple(getattr(self, f"original{i}") for i in range(self.ntensors))

    def _check(self, original, shape):
        with no_grad():
            result = self()
        if not isinstance(result, Tensor):
            raise ValueError(f"register_parametrization: the parametrization returned {type(result).__name__}; expected a tensor")
        if result.dtype != original.dtype or (shape is not None and result.shape != shape):
            raise ValueError(f"register_parametrization: it changes the tensor; got {result.dtype} {tuple(result.shape)}; expected {original.dtype} "
                             f"{tuple(shape or result.shape)}; hint: unsafe=True")

    def right_inverse(self, value: Tensor) -> None:
        """Makes the originals those that give this value. Every parametrization needs a right_inverse."""
        with no_grad():
            for m in reversed(list(self)):
                if not hasattr(m, "right_inverse"):
                    raise RuntimeError(f"{type(m).__name__}: it has no right_inverse, so the parametrized tensor cannot be assigned")
                value = m.right_inverse(value)
            values = (value,) if self.is_tensor else tuple(value)
            if len(values) != self.ntensors:
                raise ValueError(f"right_inverse: wrong number of tensors; got {len(values)}; expected {self.ntensors}")
            for original, v in zip(self._originals(), values):
                if v.dtype != original.dtype:
                    raise ValueError(f"right_inverse: it changed the dtype; got {v.dtype}; expected {original.dtype}")
                if v.shape == original.shape:
                    original.copy_(v)
                else:
                    original._become(v.detach(), original.requires_grad)

    def forward(self) -> Tensor:
        modules = iter(self)
        x = next(modules)(*self._originals())
        for m in modules:
            x = m(x)
        return x


def _property(name):
    def get(self):
        if not _cache_enabled:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def set_(self, value):
        self.parametrizations[name].right_inverse(value)

    return property(get, set_)


def _own_class(module):
    """Gives the module a class of its own, which may have properties."""
    base = type(module)

    def no_pickle(self, protocol=2):
        raise RuntimeError("a parametrized module cannot be pickled; hint: its state_dict()")

    def deepcopy(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        other = base.__new__(type(self))
        memo[id(self)] = other
        object.__getattribute__(other, "__dict__").update(copy.deepcopy(self.__dict__, memo))
        own = _own_class_of(other, type(self))
        other.__class__ = own
        return other

    module.__class__ = type("Parametrized" + base.__name__, (base,), {"__reduce_ex__": no_pickle, "__deepcopy__": deepcopy, "__module__": base.__module__})


def _own_class_of(module, like):
    return type(like.__name__, (like.__bases__[0],), {k: v for k, v in vars(like).items() if k not in ("__dict__", "__weakref__")})


def register_parametrization(module: ModuleT, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> ModuleT:
    """From now on, module.tensor_name is parametrization(original); further ones are applied to the result. Assigning to it calls right_inverse. unsafe
    allows that dtype or shape change. Returns the module.

    Raises ValueError for a name of no parameter or buffer and, without unsafe, for a change of shape or dtype; TypeError where parametrization is no
    Module.
    """
    if is_parametrized(module, tensor_name):
        before = module.parametrizations[tensor_name]
        if not (unsafe or before.unsafe):
            with no_grad():
                old = getattr(module, tensor_name)
                new = parametrization(old)
            if not isinstance(new, Tensor) or new.dtype != old.dtype or new.shape != old.shape:
                raise ValueError(f"register_parametrization: it changes the tensor; got {type(new).__name__}; expected {old.dtype} {tuple(old.shape)}; hint: unsafe=True")
        if hasattr(parametrization, "right_inverse"):
            with no_grad():
                value = parametrization.right_inverse(getattr(module, tensor_name))
            before.right_inverse(value)
        before.append(parametrization)
        before.unsafe |= unsafe
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"register_parametrization: '{tensor_name}' is neither a parameter nor a buffer nor parametrized; got {type(module).__name__}")
    original = getattr(module, tensor_name)
    parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _own_class(module)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = parametrizations
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations; with a name, of this tensor. A bool. Never raises for a Module."""
    parametrizations = module._modules.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module: ModuleT, tensor_name: str, leave_parametrized: bool = True) -> ModuleT:
    """Makes the tensor an ordinary parameter or buffer again, with its parametrized value, or with the original one. Returns the module.

    Raises ValueError where tensor_name is not parametrized.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"remove_parametrizations: '{tensor_name}' of {type(module).__name__} is not parametrized")
    parts = module.parametrizations[tensor_name]
    originals = parts._originals()
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name)
        if parts.is_tensor and isinstance(parts.original, Parameter):
            original = _becomes(parts.original, value)
        else:
            original = Parameter(value, originals[0].requires_grad) if isinstance(originals[0], Parameter) else value.detach()
    elif parts.is_tensor:
        original = parts.original
    else:
        raise ValueError(f"remove_parametrizations: '{tensor_name}' has {parts.ntensors} original tensors; expected leave_parametrized=True")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type[Module]:
    """The class that a module had before it was parametrized; that of other modules is their own. Never raises for a Module."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: ModuleT, tensor_name: str | None = None) -> ModuleT:
    """Parametrizes to_module like from_module, with copies of its originals. Returns to_module.

    tensor_name: only this tensor; None: all that are parametrized. to_module gets a parameter that it lacks. A from_module without parametrizations
    changes nothing. KeyError for a tensor_name that is not parametrized.
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for p in source:
            register_parametrization(to_module, name, copy.deepcopy(p), unsafe=source.unsafe)
        with no_grad():
            for own, other in zip(to_module.parametrizations[name]._originals(), source._originals()):
                own.copy_(other)
    return to_module
