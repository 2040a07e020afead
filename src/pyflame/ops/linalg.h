// Linear algebra on batches of matrices [..., M, N] of float32, float64, complex64 and complex128; X' is the conjugate transpose. These functions return LAPACK's `info` (int32, zero where it succeeded)
// instead of raising an error that depends on data; who reads it waits for the result. Python's linalg reads it.
#pragma once
#include <array>
#include <tuple>

#include "pyflame/ops/ops.h"

namespace pyflame::linalg {

// TypeError or ValueError unless x is a batch of (square) matrices of one of these dtypes.
void check_matrices(const char* op, const Tensor& x, bool square);
// The first matrix of a batch whose info is not zero, and that number: a sync point.
std::optional<std::pair<int64_t, int64_t>> first_failure(const Tensor& info);

std::pair<Tensor, Tensor> cholesky(const Tensor& a);  // L, info; reads the lower triangle
// X with A X = B; A and B broadcast. Only the triangle is read; unit: nor its diagonal.
Tensor triangular_solve(const Tensor& a, const Tensor& b, bool upper, bool unit);

// P' A = L U in LAPACK's form: L below the diagonal and U above in `lu`, the exchanged rows in `pivots` (int32, from 1), and info.
struct Lu {
  Tensor lu, pivots, info;
};
// The factors of A.
Lu lu_factor(const Tensor& a);
// The row of A at each place of P' A, or the place of each row.
Tensor row_order(const Tensor& pivots, int64_t rows, bool inverse);
Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool adjoint);  // no gradient of lu
std::pair<Tensor, Lu> solve(const Tensor& a, const Tensor& b);
std::pair<Tensor, Tensor> inv(const Tensor& a);    // and info
std::array<Tensor, 2> det(const Tensor& a);        // and LU
std::array<Tensor, 3> slogdet(const Tensor& a);    // sign, log|det|, info
std::pair<Tensor, Tensor> geqrf(const Tensor& a);  // R and reflectors, tau
Tensor householder_product(const Tensor& a, const Tensor& tau, int64_t columns);
// C - V T V' C, or with T' the transposed product: C times the reflectors from the left.
Tensor apply_reflectors(const Tensor& a, const Tensor& tau, const Tensor& c, bool transposed);
std::pair<Tensor, Tensor> qr(const Tensor& a, bool complete, bool with_q);
// The complex values and vectors, info (-1 for a matrix with NaN or infinity). Without a gradient.
std::array<Tensor, 3> eig(const Tensor& a, bool vectors);
std::array<Tensor, 3> eigh(const Tensor& a, bool upper, bool vectors);  // values, vectors, info
std::array<Tensor, 4> svd(const Tensor& a, bool full, bool vectors);    // U, S, V', info
// `p`, which is the pseudoinverse of a, with its gradient.
Tensor pinv_of(const Tensor& a, const Tensor& p);
std::pair<Tensor, Tensor> matrix_sqrth(const Tensor& a);  // and info
std::array<Tensor, 3> polar(const Tensor& a);             // U, H, info
// LD, pivots, info; hermitian matters for complex numbers, which else are symmetric.
std::array<Tensor, 3> ldl_factor(const Tensor& a, bool hermitian);
Tensor ldl_solve(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool hermitian);
// X [.., max(M, N), K], rank, singular values, info; driver is an LstsqDriver.
std::array<Tensor, 4> lstsq(const Tensor& a, const Tensor& b, double rcond, int64_t driver);

}  // namespace pyflame::linalg
