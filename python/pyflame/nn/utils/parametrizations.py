"""Parametrizations of weights: weight norm, spectral norm, orthogonal matrices."""
from ... import _C
from ..module import Module
from . import parametrize
from ._norms import as_matrix, default_dim, largest_singular_value, norm_except_dim, normalized, power_iterations


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight):
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """The weight as a direction and a magnitude: w = g v / |v| (Salimans and Kingma, 2016). The norm is over all dims but one, or all with dim=None.
    original0 is g, original1 is v. State dicts of the old nn.utils.weight_norm load, too. Returns the module."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def of_old_names(module, state_dict, prefix, *rest):
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(k in state_dict for k in old):
            for i, k in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(k)

    module.register_load_state_dict_pre_hook(of_old_names)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        if dim >= weight.ndim or dim < -weight.ndim:
            raise IndexError(f"spectral_norm: dim out of range; got {dim} for {weight.ndim} dimensions")
        if n_power_iterations <= 0:
            raise ValueError(f"spectral_norm: n_power_iterations must be positive; got {n_power_iterations}")
        self.dim, self.eps, self.n_power_iterations = dim if dim >= 0 else dim + weight.ndim, eps, n_power_iterations
        if weight.ndim > 1:
            matrix = as_matrix(weight.detach(), self.dim)
            for name, size in (("_u", matrix.shape[0]), ("_v", matrix.shape[1])):
                start = _C.randn(size, dtype=weight.dtype, device=weight.device)
                self.register_buffer(name, normalized(start, eps))
            power_iterations(matrix, self._u, self._v, 15, eps)

    def forward(self, weight):
        if weight.ndim == 1:
            return normalized(weight, self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            power_iterations(matrix.detach(), self._u, self._v, self.n_power_iterations, self.eps)
        return weight / largest_singular_value(matrix, self._u.clone(), self._v.clone())

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """The weight divided by its largest singular value (Miyato et al., 2018), which power iterations follow while training. Returns the module."""
    weight = getattr(module, name)
    dim = default_dim(module) if dim is None else dim
    return parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
