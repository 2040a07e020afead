"""What weight norm and spectral norm compute, old and new."""
from ... import _C
from ..._grad_mode import no_grad


def norm_except_dim(v, dim):
    """The 2-norm over all dims but one, which are kept with size 1; over all dims, as a 0-d tensor, for dim -1."""
    if dim == -1:
        return v.norm()
    if not -v.ndim <= dim < v.ndim:
        raise IndexError(f"weight_norm: dim out of range; got {dim} for {v.ndim} dimensions")
    dims = tuple(d for d in range(v.ndim) if d != dim % v.ndim)
    return v.norm(2, dims, True) if dims else v.abs()


def normalized(v, eps):
    """v divided by its Euclidean norm, which counts as at least eps."""
    return v / _C.clamp(v.norm(), min=eps)


def as_matrix(weight, dim):
    """[size of dim, all others]."""
    if dim:
        weight = weight.permute(dim, *(d for d in range(weight.ndim) if d != dim))
    return weight.reshape(weight.shape[0], -1)


def power_iterations(matrix, u, v, n, eps):
    """Steps of u and v, in place, towards the largest singular vectors."""
    with no_grad():
        for _ in range(n):
            u.copy_(normalized(matrix @ v, eps))
            v.copy_(normalized(matrix.t() @ u, eps))


def largest_singular_value(matrix, u, v):
    """u^T matrix v, for singular vectors u and v of a matrix: a number with gradients."""
    return (u * (matrix @ v)).sum()


def default_dim(module):
    """The dim of the outputs in a weight."""
    return 1 if "ConvTranspose" in type(module).__name__ else 0
