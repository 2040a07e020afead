// Reading values: the sync points, where pending work is completed.
#include "pyflame/tensor/float8.h"
#include "pyflame/tensor/print.h"
#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {

const void* Tensor::data() const {
  runtime_hooks.fix_layout(*this);
  runtime_hooks.complete(*storage());
  runtime_hooks.check_read(*this);
  return static_cast<const char*>(storage()->data) + offset() * itemsize();
}

Tensor Tensor::on_host() const {
  if (has_own_memory(device().type)) return runtime_hooks.copy_to_cpu(*this);
  runtime_hooks.fix_layout(*this);
  return *this;
}

void* Tensor::mutable_data() const {
  runtime_hooks.fix_layout(*this);
  runtime_hooks.complete(*storage());
  const void* p = static_cast<const char*>(storage()->data) + offset() * itemsize();
  storage()->version.fetch_add(1, std::memory_order_relaxed);
  return const_cast<void*>(p);
}

namespace {
void check_one(const Tensor& t) {
  PF_CHECK(t.numel() == 1, Value,
           "item: the tensor does not have exactly one element; got shape {}; expected one element; hint: tolist()",
           t.shape().str());
}
void check_real(const Tensor& t) {
  PF_CHECK(!is_complex(t.dtype()), Type,
           "item: a complex number has two parts; got {}; expected a real dtype; hint: real(), imag()",
           dtype_name(t.dtype()));
}
}  // namespace

double Tensor::item_f64() const {
  check_one(*this);
  check_real(*this);
  const Tensor host = on_host();
  const void* p = host.data();
  if (is_float8(dtype())) return static_cast<double>(float8_value(dtype(), *static_cast<const uint8_t*>(p)));
  return dispatch(dtype(), [&]<class T>() -> double {
    const T v = *static_cast<const T*>(p);
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) return static_cast<float>(v);
    else return static_cast<double>(v);
  });
}

int64_t Tensor::item_i64() const {
  check_one(*this);
  check_real(*this);
  const Tensor host = on_host();
  const void* p = host.data();
  if (is_float8(dtype())) return static_cast<int64_t>(float8_value(dtype(), *static_cast<const uint8_t*>(p)));
  return dispatch(dtype(), [&]<class T>() -> int64_t {
    const T v = *static_cast<const T*>(p);
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
      return static_cast<int64_t>(static_cast<float>(v));
    else return static_cast<int64_t>(v);
  });
}

template <>
double Tensor::item<double>() const {
  return item_f64();
}
template <>
float Tensor::item<float>() const {
  return static_cast<float>(item_f64());
}
template <>
int64_t Tensor::item<int64_t>() const {
  return item_i64();
}
template <>
int Tensor::item<int>() const {
  return static_cast<int>(item_i64());
}
template <>
bool Tensor::item<bool>() const {
  return item_f64() != 0;
}

std::string Tensor::str() const {
  const Tensor host = on_host();
  std::string text = fmt::format("tensor({}", format_tensor(host.data(), shape(), host.strides(), dtype(), 7));
  if (dtype() != DType::float32 && dtype() != DType::int64 && dtype() != DType::bool_)
    text += fmt::format(", dtype={}", dtype_name(dtype()));
  if (device() != Device{}) text += fmt::format(", device='{}'", device().str());
  return text + ")";
}

}  // namespace pyflame
