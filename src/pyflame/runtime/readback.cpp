// A copy to the host that later work does not delay.
#include "pyflame/runtime/readback.h"

#include <cstring>
#include <utility>

#include "pyflame/ops/ops.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"
#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {

namespace {
Tensor on_host(const Tensor& like, const void* bytes) {
  Tensor out = empty(like.shape(), like.dtype(), Device{});
  if (like.numel() > 0)
    std::memcpy(const_cast<void*>(std::as_const(out).data()), bytes,
                static_cast<size_t>(like.numel()) * static_cast<size_t>(dtype_size(like.dtype())));
  return out;
}
}  // namespace

Readback::Readback(const Tensor& x) : source_(contiguous(x.detach())) {
  const Storage& s = *source_.storage();
  runtime_hooks.check_read(source_);
  runtime_hooks.complete(*source_.storage());
  DeviceMemory* const memory = device_memory(s.device);
  if (!memory) {
    // A copy here too: later work may change the tensor in place.
    result_ = on_host(source_, static_cast<const char*>(s.data) + source_.offset() * dtype_size(source_.dtype()));
    source_ = {};
    return;
  }
  try {
    report_ = request_report(s.device, *memory);
    download_ =
        memory->download(static_cast<const char*>(s.data) + source_.offset() * dtype_size(source_.dtype()),
                         static_cast<size_t>(source_.numel()) * static_cast<size_t>(dtype_size(source_.dtype())));
  } catch (const Error& e) {
    throw blamed(s.device, e);
  }
}

Readback::~Readback() {
  if (report_.table) drop_report(source_.storage()->device, report_);
}

Tensor Readback::wait() {
  if (!result_) {
    const Storage& s = *source_.storage();
    const void* bytes = nullptr;
    try {
      const events::Scope log(events::Kind::Wait, "wait for the device");
      bytes = download_->wait();
      read_report(s.device, report_);
    } catch (const Error& e) {
      throw blamed(s.device, e);
    }
    raise_if_tainted(s);
    result_ = on_host(source_, bytes);
    download_.reset();
    source_ = {};
  }
  return result_;
}

}  // namespace pyflame
