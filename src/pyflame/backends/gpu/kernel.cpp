// See kernel.h.
#include "pyflame/backends/gpu/kernel.h"

#include "pyflame/base/embedded.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

const char* stored_type(DType d) {
  switch (d) {
    case DType::float32: return "float";
    case DType::float64: return "double";
    case DType::float16: return "pf::f16";
    case DType::bfloat16: return "pf::bf16";
    case DType::int64: return "pf::i64";
    case DType::int32: return "pf::i32";
    case DType::int16: return "pf::i16";
    case DType::int8: return "pf::i8";
    case DType::uint8: return "pf::u8";
    case DType::bool_: return "pf::bool8";
  }
  return "?";
}

std::string kernel_source(std::initializer_list<const char*> files, unsigned threads, const std::string& body,
                          const std::string& before) {
  std::string source;
  const auto add = [&](const std::string& name) {
    const std::string_view text = device_source("kernels/" + name);
    PF_CHECK(!text.empty(), Runtime, "kernel: a source is not part of this build; got '{}'", name);
    source += text;
  };
  for (const char* file :
       {"device/launch.h", "device/scalar.h", "device/wave.h", "device/vec.h", "device/fault.h", "device/view.h"})
    add(file);
  for (const char* file : files) add(file);
  return source + fmt::format("\n{}\nPF_KERNEL({}) pf_kernel{}\n", before, threads, body);
}

Kernel::Kernel(DeviceType type, unsigned threads, std::string source, unsigned shared_bytes)
    : type_(type), threads_(threads), shared_bytes_(shared_bytes), source_(std::move(source)) {
  const auto all = devices(type);
  if (all.empty()) return;
  arch_ = all.front()->arch().name;  // the others of a machine are as a rule like it
  compilation_ = compile_later(type_, arch_, source_);
}

bool Kernel::ready(int device_index) const {
  return device_ == device_index || (compilation_ && compilation_->ready());
}

void Kernel::run(int device_index, std::array<unsigned, 3> grid, void** parameters, std::span<const uint32_t> sizes) {
  GpuDevice& d = device(type_, device_index);
  if (device_ != device_index) {
    if (!compilation_ || arch_ != d.arch().name) {
      arch_ = d.arch().name;
      compilation_ = compile_later(type_, arch_, source_);
    }
    try {
      function_ = compilation_->on(d, "pf_kernel");
    } catch (const Error&) {
      compilation_.reset();  // the next run makes another attempt
      throw;
    }
    d.allow_shared(function_, shared_bytes_);
    device_ = device_index;
  }
  d.launch(function_, grid, threads_, shared_bytes_, parameters, sizes);
}

View view_of(const Dims& shape, const Dims& strides) {
  PF_CHECK(shape.size() <= 8, NotImplemented, "kernel: too many dimensions; got {}; expected at most 8", shape.size());
  View v;
  v.rank = shape.size();
  for (int d = 0; d < shape.size(); ++d) v.shape[d] = shape[d], v.strides[d] = strides[d];
  return v;
}

}  // namespace pyflame::gpu
