"""Linear algebra on batches of matrices [.., M, N] of float32, float64, complex64 and complex128, by LAPACK on the host (also for tensors of a GPU, after a message).

A' is the transpose of A, and of a complex matrix its conjugate: gradients follow PyTorch's convention for complex numbers (dL/dRe + i dL/dIm).
Functions that raise LinAlgError for a matrix read whether LAPACK succeeded, which is a sync point; those with _ex give that as `info`.
"""
from .. import _refused
from .._keywords import naming
from ._common import LinAlgError
from ._factor import cholesky, cholesky_ex, householder_product, ldl_factor, ldl_factor_ex, ldl_solve, lu, lu_factor, lu_factor_ex, qr
from ._functions import cross, diagonal, matmul, matrix_exp, matrix_power, multi_dot, vander, vecdot
from ._norms import matrix_norm, norm, vector_norm
from ._solve import det, inv, inv_ex, lstsq, lu_solve, pinv, slogdet, solve, solve_ex, solve_triangular, tensorinv, tensorsolve
from ._spectral import cond, eig, eigh, eigvals, eigvalsh, matrix_rank, matrix_sqrth, polar, svd, svdvals

__all__ = ["LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex",
           "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_sqrth", "multi_dot", "norm",
           "pinv", "polar", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm"]

naming(globals(), __name__)
_refused.unknown(globals())
