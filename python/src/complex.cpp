// Complex numbers and Fourier transforms. pyflame/fft.py makes PyTorch's functions of the transforms along one dim.
#include "casters.h"
#include "op_docs.h"

namespace pyflame::python {

void bind_complex(nb::module_& m, TensorClass& c) {
  m.def("view_as_real", &view_as_real, "input"_a,
        "A view of the parts of complex numbers: shape [.., 2]. TypeError for real tensors.");
  m.def("view_as_complex", &view_as_complex, "input"_a,
        "A view of pairs [.., 2] of float32 or float64 as complex numbers. ValueError when they do not lie in pairs.");
  m.def(
      "real", &real, "input"_a,
      "The real parts of complex numbers: a view of the same shape in float32 or float64. A real tensor is returned as "
      "it is. "
      "TypeError for what is not a tensor.");
  m.def("imag", &imag, "input"_a,
        "The imaginary parts of complex numbers: a view of the same shape in float32 or float64. TypeError for real "
        "tensors.");
  m.def("complex", &complex, "real"_a, "imag"_a,
        "Complex numbers of their parts: float32 gives complex64, float64 complex128. Shapes broadcast. TypeError for "
        "other dtypes and for two different ones; ValueError for shapes that do not broadcast.");
  const auto part = [](Tensor (*fn)(const Tensor&)) {
    return [fn](nb::handle_t<Tensor> self) { return same_or_new(self, self_tensor(self), fn(self_tensor(self))); };
  };
  const auto set_part = [](Tensor (*fn)(const Tensor&)) {
    return [fn](const Tensor& x, nb::handle value) { copy_(fn(x), make_value("copy_", value, x)); };
  };
  c.def_prop_rw(
      "real", part(&real), set_part(&real),
      "The real parts of complex numbers: a view of the same shape in float32 or float64; of a real tensor the "
      "tensor itself. Assigning copies into them.");
  c.def_prop_rw("imag", part(&imag), set_part(&imag),
                "The imaginary parts of complex numbers: a view of the same shape in float32 or float64. TypeError for "
                "real tensors. Assigning copies into them.");
  const auto same = [&](const char* name, Tensor (*fn)(const Tensor&), const char* text) {
    m.def(
        name, [fn](nb::handle_t<Tensor> x) { return same_or_new(x, self_tensor(x), fn(self_tensor(x))); }, "input"_a,
        text);
    c.def(
        name, [fn](nb::handle_t<Tensor> x) { return same_or_new(x, self_tensor(x), fn(self_tensor(x))); }, text);
  };
  constexpr const char* conjugate =
      "The complex conjugate a - bi of a + bi, elementwise, in a new tensor of the same shape and dtype; a real tensor "
      "is returned as it is. "
      "TypeError for what is not a tensor.";
  same("conj", &conj, conjugate);
  same("conj_physical", &conj, conjugate);
  for (const char* name : {"resolve_conj", "resolve_neg"})
    same(
        name, [](const Tensor& x) { return x; },
        "Returns the input itself: conj() and neg() compute their results, and no tensor has a mark that is to be "
        "resolved. "
        "TypeError for what is not a tensor.");
  c.def(
      "conj_physical_",
      [](nb::handle_t<Tensor> self) {
        unary_(&conj, "conj_physical", self_tensor(self));
        return nb::borrow(self);
      },
      in_place_doc("The complex conjugate, elementwise; real elements stay as they are.", {}).c_str());
  both(m, c, "angle", &angle,
       "The angle in radians, between -pi and pi; of real numbers 0, or pi below zero.\nDtype: that of the parts. "
       "TypeError for what is not a tensor.");
  constexpr const char* sign_text = "z / |z| of complex numbers, and 0 at 0; of real numbers -1, 0 or 1, as sign.";
  both(m, c, "sgn", &sgn,
       (std::string(sign_text) +
        "\nElementwise. Shape and dtype: those of the input. TypeError for what is not a tensor.")
           .c_str());
  c.def(
      "sgn_",
      [](nb::handle_t<Tensor> self) {
        unary_(&sgn, "sgn", self_tensor(self));
        return nb::borrow(self);
      },
      in_place_doc(sign_text, {}).c_str());
  m.def("_fft", &fft, "input"_a, "dim"_a, "inverse"_a, "scale"_a);
  m.def("_rfft", &fft_of_real, "input"_a, "dim"_a, "scale"_a);
  m.def("_irfft", &fft_to_real, "input"_a, "dim"_a, "n"_a, "scale"_a);
}

}  // namespace pyflame::python
