// Linear algebra as pyflame/linalg composes it.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include "casters.h"
#include "pyflame/ops/linalg.h"
#include "pyflame/record/cut_cause.h"

namespace pyflame::python {

void bind_linalg(nb::module_& m) {
  nb::module_ l = m.def_submodule("_linalg", "Factorizations without the check of their success.");
  l.def("check_matrices", &linalg::check_matrices, "op"_a, "x"_a, "square"_a);
  l.def("first_failure", [](const Tensor& info) {
    const CutCause why("the check that a factorization succeeded");
    const Unlocked waiting;
    return linalg::first_failure(info);
  });
  l.def("cholesky", &linalg::cholesky);
  l.def("triangular_solve", &linalg::triangular_solve);
  l.def("lu_factor", [](const Tensor& a) {
    const auto f = linalg::lu_factor(a);
    return std::array<Tensor, 3>{f.lu, f.pivots, f.info};
  });
  l.def("row_order", &linalg::row_order);
  l.def("lu_solve", &linalg::lu_solve);
  l.def("solve", [](const Tensor& a, const Tensor& b) {
    const auto [x, f] = linalg::solve(a, b);
    return std::array<Tensor, 4>{x, f.lu, f.pivots, f.info};
  });
  l.def("inv", &linalg::inv);
  l.def("det", &linalg::det);
  l.def("slogdet", &linalg::slogdet);
  l.def("geqrf", &linalg::geqrf);
  l.def("householder_product", &linalg::householder_product);
  l.def("apply_reflectors", &linalg::apply_reflectors);
  l.def("qr", &linalg::qr);
  l.def("eig", &linalg::eig);
  l.def("eigh", &linalg::eigh);
  l.def("svd", &linalg::svd);
  l.def("pinv_of", &linalg::pinv_of);
  l.def("matrix_sqrth", &linalg::matrix_sqrth);
  l.def("polar", &linalg::polar);
  l.def("ldl_factor", &linalg::ldl_factor);
  l.def("ldl_solve", &linalg::ldl_solve);
  l.def("lstsq", &linalg::lstsq);
}

}  // namespace pyflame::python
