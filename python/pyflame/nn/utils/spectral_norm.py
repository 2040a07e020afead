"""Spectral norm by a hook before forward: the older form; parametrizations.spectral_norm is the newer one."""
from __future__ import annotations

from ... import _C
from ..._grad_mode import no_grad
from ..parameter import Parameter
from ._norms import as_matrix, default_dim, largest_singular_value, normalized

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._annotations import ModuleT


class SpectralNorm:
    """The hook: computes the weight from name_orig, and name_u and name_v, which it follows while training."""

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: n_power_iterations must be positive; got {n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module, do_power_iteration):
        weight, u, v = (getattr(module, self.name + part) for part in ("_orig", "_u", "_v"))
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalized(matrix.t() @ u, self.eps))
                    u.copy_(normalized(matrix @ v, self.eps))
            u, v = u.clone(), v.clone()
        return weight / largest_singular_value(matrix, u, v)

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module, module.training))


def _hook(module, name):
    return next(((at, h) for at, h in module._forward_pre_hooks.items() if isinstance(h, SpectralNorm) and h.name == name), None)


def spectral_norm(module: ModuleT, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> ModuleT:
    """The weight divided by its largest singular value (Miyato et al., 2018): the parameter name_orig, the buffers name_u and name_v, and the weight computed
    before each forward. Returns the module.

    The arguments are those of nn.utils.parametrizations.spectral_norm.

    Raises AttributeError for a name that the module lacks; RuntimeError where it has spectral norm already; ValueError for a dim out of range and for
    n_power_iterations below 1.
    """
    if _hook(module, name) is not None:
        raise RuntimeError(f"spectral_norm: '{name}' has spectral norm already")
    hook = SpectralNorm(name, n_power_iterations, default_dim(module) if dim is None else dim, eps)
    weight = getattr(module, name)
    matrix = as_matrix(weight.detach(), hook.dim)
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    for part, size in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
        start = _C.randn(size, dtype=weight.dtype, device=weight.device)
        module.register_buffer(name + part, normalized(start, eps))
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: ModuleT, name: str = "weight") -> ModuleT:
    """Makes the weight a parameter again, with its present value. Returns the module.

    Raises ValueError where this name of the module has no spectral norm.
    """
    found = _hook(module, name)
    if found is None:
        raise ValueError(f"remove_spectral_norm: '{name}' of {type(module).__name__} has no spectral norm")
    at, hook = found
    weight = hook.compute_weight(module, False).detach()
    for k in (name, name + "_u", name + "_v", name + "_orig"):
        delattr(module, k)
    del module._forward_pre_hooks[at]
    module.register_parameter(name, Parameter(weight))
    return module
