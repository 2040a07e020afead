"""Weight norm by a hook before forward: the older form; parametrizations.weight_norm is the newer one."""
from __future__ import annotations

from ..._deprecation import deprecated
from ..parameter import Parameter
from ._norms import norm_except_dim

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._annotations import ModuleT


class WeightNorm:
    """The hook: computes the weight from name_g and name_v."""

    def __init__(self, name, dim):
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module):
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return v * (g / norm_except_dim(v, self.dim))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def _hook(module, name):
    return next(((at, h) for at, h in module._forward_pre_hooks.items() if isinstance(h, WeightNorm) and h.name == name), None)


def weight_norm(module: ModuleT, name: str = "weight", dim: int | None = 0) -> ModuleT:
    """w = g v / |v| (Salimans and Kingma, 2016), with the parameters name_g and name_v; the weight is computed before each forward. Deprecated in PyTorch
    in favour of parametrizations.weight_norm. dim: |v| is taken over all dims but this; None: over all. Returns the module.

    Raises AttributeError for a name that the module lacks, RuntimeError where it has weight norm already, and IndexError for a dim out of range.
    """
    deprecated("nn.utils.weight_norm", "nn.utils.parametrizations.weight_norm")
    if _hook(module, name) is not None:
        raise RuntimeError(f"weight_norm: '{name}' has weight norm already")
    hook, weight = WeightNorm(name, dim), getattr(module, name)
    delattr(module, name)
    module.register_parameter(name + "_g", Parameter(norm_except_dim(weight.detach(), hook.dim)))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: ModuleT, name: str = "weight") -> ModuleT:
    """Makes the weight a parameter again, with its present value. Returns the module.

    Raises ValueError where this name of the module has no weight norm.
    """
    found = _hook(module, name)
    if found is None:
        raise ValueError(f"remove_weight_norm: '{name}' of {type(module).__name__} has no weight norm")
    at, hook = found
    weight = hook.compute_weight(module).detach()
    for k in (name, name + "_g", name + "_v"):
        delattr(module, k)
    del module._forward_pre_hooks[at]
    setattr(module, name, Parameter(weight))
    return module
