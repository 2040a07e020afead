// Tensors from nothing: constants, ranges, random numbers.
#include "casters.h"

namespace pyflame::python {

namespace {

#define OPTIONS nb::kw_only(), "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(), "requires_grad"_a = false
#define OPTIONS_DOC                                                                                                   \
  "\nsize: integers or one sequence. dtype: the default dtype unless given (float32 until set_default_dtype changes " \
  "it). device: the current one unless given. ValueError for negative sizes, TypeError for what is no size or no "    \
  "dtype."

using Maker = Tensor (*)(const Dims&, DTypeOpt, DeviceOpt);

void bind_constants(nb::module_& m) {
  auto sized = [&](const char* name, Maker make, const char* text) {
    m.def(
        name,
        [make, name](nb::args size, DTypeArg dtype, DeviceArg device, bool requires_grad) {
          return leaf(make(dims_from_args(name, size), dtype, device), requires_grad);
        },
        "size"_a, "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(), "requires_grad"_a = false, text);
  };
  sized("empty", &empty, "A tensor with arbitrary contents." OPTIONS_DOC);
  sized("zeros", &zeros, "A tensor of zeros." OPTIONS_DOC);
  sized("ones", &ones, "A tensor of ones." OPTIONS_DOC);
  sized("rand", &rand, "Uniform numbers in [0, 1)." OPTIONS_DOC);
  sized("randn", &randn, "Numbers of the standard normal distribution." OPTIONS_DOC);
  m.def(
      "full",
      [](const DimsArg& size, NumberArg v, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        return leaf(full(size, v, dtype, device), requires_grad);
      },
      "size"_a, "fill_value"_a, OPTIONS,
      "A tensor in which every element is fill_value; its dtype follows the value unless given.\n"
      "size: an integer or a sequence of them. fill_value: a number, or a tensor of one element, which is read. "
      "device: the current one unless given. "
      "ValueError for negative sizes. TypeError for another fill_value, and for a complex one with a real dtype.");
}

using Like = Tensor (*)(const Tensor&, DTypeOpt);

// They lie in memory in the order of the input, as PyTorch's with preserve_format.
void bind_likes(nb::module_& m, TensorClass& c) {
  auto like = [&](const char* name, Like make, const char* text) {
    m.def(
        name,
        [make](const Tensor& x, DTypeArg dtype, DeviceArg device, bool requires_grad) {
          const Tensor y = lying_as(make(x, dtype), x);
          const DeviceOpt where = device;
          return leaf(where ? to_device(y, *where) : y, requires_grad);
        },
        "input"_a, OPTIONS, text);
  };
  like(
      "empty_like", &empty_like,
      "A tensor of the input's shape with arbitrary contents, with the dtype and device of the input unless others are "
      "given. "
      "TypeError for what is not a tensor.");
  like("zeros_like", &zeros_like,
       "Zeros in the input's shape, with the dtype and device of the input unless others are given. "
       "TypeError for what is not a tensor.");
  like("ones_like", &ones_like,
       "Ones in the input's shape, with the dtype and device of the input unless others are given. "
       "TypeError for what is not a tensor.");
  like(
      "rand_like", [](const Tensor& x, DTypeOpt d) { return rand(x.shape(), d.value_or(x.dtype()), x.device()); },
      "Random numbers, uniform in [0, 1), in the input's shape, with its dtype and device unless others are given. "
      "TypeError for a dtype of integers.");
  like(
      "randn_like", [](const Tensor& x, DTypeOpt d) { return randn(x.shape(), d.value_or(x.dtype()), x.device()); },
      "Random numbers of the standard normal distribution in the input's shape, with its dtype and device unless "
      "others are given. TypeError for a dtype of integers.");
  m.def(
      "full_like",
      [](const Tensor& x, Scalar v, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        const Tensor y = lying_as(full_like(x, v, dtype), x);
        const DeviceOpt where = device;
        return leaf(where ? to_device(y, *where) : y, requires_grad);
      },
      "input"_a, "fill_value"_a, OPTIONS,
      "fill_value in the input's shape, with the dtype and device of the input unless others are given. "
      "TypeError for a fill_value that is no number, and for a complex one with a real dtype.");
  struct New {
    const char* name;
    Maker make;
  };
  static constexpr New news[] = {{"new_empty", &empty}, {"new_zeros", &zeros}, {"new_ones", &ones}};
  for (const New& n : news)
    c.def(
        n.name,
        [&n](const Tensor& x, nb::args size, DTypeArg dtype, DeviceArg device, bool requires_grad) {
          const DTypeOpt d = dtype;
          const DeviceOpt where = device;
          return leaf(n.make(dims_from_args(n.name, size), d.value_or(x.dtype()), where.value_or(x.device())),
                      requires_grad);
        },
        "size"_a, "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(), "requires_grad"_a = false,
        "A tensor of this size with the dtype and device of self.");
  c.def(
      "new_full",
      [](const Tensor& x, const DimsArg& size, NumberArg v, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        const DTypeOpt d = dtype;
        const DeviceOpt where = device;
        return leaf(full(size, v, d.value_or(x.dtype()), where.value_or(x.device())), requires_grad);
      },
      "size"_a, "fill_value"_a, OPTIONS,
      "A tensor of this size filled with the value, with the dtype and device of self unless others are given.");
  c.def(
      "new_tensor",
      [](const Tensor& x, nb::handle data, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        const DTypeOpt d = dtype;
        const DeviceOpt where = device;
        return leaf(make_tensor("new_tensor", data, d.value_or(x.dtype()), where.value_or(x.device())), requires_grad);
      },
      "data"_a, OPTIONS,
      "A tensor with a copy of the data, with the dtype and device of self unless others are given.");
}

void bind_ranges(nb::module_& m) {
  constexpr const char* text =
      "start, start + step, ... below end (above it for a negative step), 1-D. int64 when all numbers are integers, "
      "otherwise of the default dtype. A tensor of one element is read as a number.\nValueError for step 0.";
  m.def(
      "arange",
      [](NumberArg end, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        return leaf(arange(Scalar(0), end, Scalar(1), dtype, device), requires_grad);
      },
      "end"_a, OPTIONS, text);
  m.def(
      "arange",
      [](NumberArg start, NumberArg end, NumberArg step, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        return leaf(arange(start, end, step, dtype, device), requires_grad);
      },
      "start"_a, "end"_a, "step"_a = 1, OPTIONS, text);
  m.def(
      "linspace",
      [](NumberArg start, NumberArg end, int64_t steps, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        return leaf(linspace(start, end, steps, dtype, device), requires_grad);
      },
      "start"_a, "end"_a, "steps"_a, OPTIONS,
      "`steps` numbers at equal distances from start to end, both included; one step is start. Dtype: the default one "
      "unless given, complex if an end is. A tensor of one element is read as a number. ValueError for a negative "
      "number "
      "of steps, TypeError for a real dtype with complex ends.");
  m.def(
      "eye",
      [](int64_t n, std::optional<int64_t> cols, DTypeArg dtype, DeviceArg device, bool requires_grad) {
        return leaf(eye(n, cols, dtype, device), requires_grad);
      },
      "n"_a, "m"_a.none() = nb::none(), OPTIONS,
      "Ones on the diagonal of an n by m matrix, zeros elsewhere. "
      "m is n unless given. ValueError for negative sizes.");
}

void bind_random(nb::module_& m) {
  constexpr const char* text =
      "Uniform integers in [low, high), int64 unless dtype is given. ValueError when low >= high.\n"
      "low is 0 unless given; high itself is not drawn; size: the shape, a number or a sequence of them.";
  auto integers = [](int64_t low, int64_t high, const DimsArg& size, DTypeArg dtype, DeviceArg device) {
    return randint(low, high, size, dtype, device);
  };
  m.def(
      "randint",
      [integers](int64_t low, int64_t high, const DimsArg& size, DTypeArg dtype, DeviceArg device) {
        return integers(low, high, size, dtype, device);
      },
      "low"_a, "high"_a, "size"_a, nb::kw_only(), "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(), text);
  m.def(
      "randint",
      [integers](int64_t high, const DimsArg& size, DTypeArg dtype, DeviceArg device) {
        return integers(0, high, size, dtype, device);
      },
      "high"_a, "size"_a, nb::kw_only(), "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(), text);
  m.def(
      "randperm", [](int64_t n, DTypeArg dtype, DeviceArg device) { return randperm(n, dtype, device); }, "n"_a,
      nb::kw_only(), "dtype"_a.none() = nb::none(), "device"_a.none() = nb::none(),
      "The integers from 0 to n - 1 in random order, int64. "
      "Another dtype casts them. ValueError for a negative n, TypeError for one that is no integer.");
  m.def(
      "bernoulli", [](const Tensor& p) { return bernoulli(p); }, "input"_a,
      "1 with the probability that each element of input gives, otherwise 0.");
  m.def(
      "manual_seed",
      [](nb::int_ seed) {
        int overflow = 0;
        const long long v = PyLong_AsLongLongAndOverflow(seed.ptr(), &overflow);
        const uint64_t u = overflow == 0 ? static_cast<uint64_t>(v) : PyLong_AsUnsignedLongLong(seed.ptr());
        if (PyErr_Occurred()) throw nb::python_error();
        manual_seed(u);
      },
      "seed"_a,
      "Starts the random numbers anew from this seed, on all devices: the same calls then give the same numbers. "
      "TypeError when seed is not an integer.");
  m.def(
      "get_rng_state",
      [] {
        const RngState s = get_rng_state();
        return nb::make_tuple(s.seed, s.offset);
      },
      "The state of the random numbers, a tuple (seed, offset), with which set_rng_state continues.");
  m.def(
      "set_rng_state",
      [](std::pair<uint64_t, uint64_t> state) {
        set_rng_state({state.first, state.second});
      },
      "state"_a,
      "Continues the random numbers from a state that get_rng_state returned: the same calls then give the same "
      "numbers. TypeError when it is not a pair of integers.");
}

}  // namespace

void bind_creation(nb::module_& m, TensorClass& c) {
  bind_constants(m);
  bind_likes(m, c);
  bind_ranges(m);
  bind_random(m);
}

}  // namespace pyflame::python
