// Complex numbers and Fourier transforms. pyflame/fft.py makes PyTorch's functions of the transforms along one dim.
#include "casters.h"

namespace pyflame::python {

void bind_complex(nb::module_& m, TensorClass& c) {
  m.def("view_as_real", &view_as_real, "input"_a,
        "A view of the parts of complex numbers: shape [.., 2]. TypeError for real tensors.");
  m.def("view_as_complex", &view_as_complex, "input"_a,
        "A view of pairs [.., 2] of float32 or float64 as complex numbers. ValueError when they do not lie in pairs.");
  m.def("real", &real, "input"_a, "The real part, a view; a real tensor itself.");
  m.def("imag", &imag, "input"_a, "The imaginary part, a view. TypeError for real tensors.");
  m.def("complex", &complex, "real"_a, "imag"_a,
        "Complex numbers of their parts, float32 or float64. Shapes broadcast; the dtypes must be equal.");
  const auto part = [](Tensor (*fn)(const Tensor&)) {
    return [fn](nb::handle_t<Tensor> self) { return same_or_new(self, self_tensor(self), fn(self_tensor(self))); };
  };
  const auto set_part = [](Tensor (*fn)(const Tensor&)) {
    return [fn](const Tensor& x, nb::handle value) { copy_(fn(x), make_value("copy_", value, x)); };
  };
  c.def_prop_rw("real", part(&real), set_part(&real), "The real part, a view; a real tensor itself.");
  c.def_prop_rw("imag", part(&imag), set_part(&imag), "The imaginary part, a view. TypeError for real tensors.");
  const auto same = [&](const char* name, Tensor (*fn)(const Tensor&), const char* text) {
    m.def(
        name, [fn](nb::handle_t<Tensor> x) { return same_or_new(x, self_tensor(x), fn(self_tensor(x))); }, "input"_a,
        text);
    c.def(
        name, [fn](nb::handle_t<Tensor> x) { return same_or_new(x, self_tensor(x), fn(self_tensor(x))); }, text);
  };
  same("conj", &conj, "The complex conjugate; a real tensor itself.");
  same("conj_physical", &conj, "The same as conj.");
  for (const char* name : {"resolve_conj", "resolve_neg"})
    same(
        name, [](const Tensor& x) { return x; }, "The input: conjugates and negatives are always computed.");
  c.def(
      "conj_physical_",
      [](nb::handle_t<Tensor> self) {
        unary_(&conj, "conj_physical", self_tensor(self));
        return nb::borrow(self);
      },
      "In place.");
  both(m, c, "angle", &angle,
       "The angle in radians, between -pi and pi; of real numbers 0, or pi below zero.\nDtype: that of the parts.");
  both(m, c, "sgn", &sgn, "z / |z|, and 0 at 0; of real numbers, sign.");
  c.def(
      "sgn_",
      [](nb::handle_t<Tensor> self) {
        unary_(&sgn, "sgn", self_tensor(self));
        return nb::borrow(self);
      },
      "In place.");
  m.def("_fft", &fft, "input"_a, "dim"_a, "inverse"_a, "scale"_a);
  m.def("_rfft", &fft_of_real, "input"_a, "dim"_a, "scale"_a);
  m.def("_irfft", &fft_to_real, "input"_a, "dim"_a, "n"_a, "scale"_a);
}

}  // namespace pyflame::python
