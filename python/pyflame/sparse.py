"""Names of torch.sparse. Sparse tensors are not available; the products also take dense matrices, as in PyTorch."""
from . import _C, _products, _refused


def mm(sparse, dense):
    """The product of two dense matrices, [N, K], [K, M] -> [N, M], by the name that programs for sparse ones use.

    sparse, dense: of one number dtype, TypeError otherwise. ArgumentError for other numbers of dims and sizes that do not fit."""
    return _C.mm(sparse, dense)


def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
    """beta * mat + alpha * (mat1 @ mat2) of dense matrices: pyflame.addmm, with its dtypes and errors."""
    return _products.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


__getattr__ = _refused.module("sparse", "sparse tensors are not available; dense ones and index ops (index_add, scatter_add) do their work")
