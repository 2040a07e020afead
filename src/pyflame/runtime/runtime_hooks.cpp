// Ties the layers below to the runtime: see tensor/runtime_hooks.h.
#include "pyflame/tensor/runtime_hooks.h"

#include <cstring>
#include <vector>

#include "pyflame/ops/helpers.h"
#include "pyflame/record/emit.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/address_space.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/debug_memory.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/executor.h"
#include "pyflame/runtime/searches.h"
#include "pyflame/runtime/uninitialised.h"

namespace pyflame {

namespace {

void complete(Storage& s) {
  sync_storage(s);
  if (s.device.type == DeviceType::null) may_be_written();
  if (s.data) return;
  // Nothing ever wrote it (the null device plans only): zeros.
  allocate_data(s);
  if (!has_own_memory(s.device.type)) std::memset(s.data, 0, s.nbytes);
  else copy_from_host(s, std::vector<char>(s.nbytes).data(), s.nbytes);
}

void check_read(const Tensor& x) {
  PF_CHECK(x.device().type != DeviceType::null || x.numel() == 0 || reads_are_zeros(), NotImplemented,
           "read: a tensor of the device 'null' ('meta') has no values; got shape {}; hint: make it on a device that "
           "computes; Module.to_empty(device=) gives a module memory there",
           x.shape().str());
  if (debug_memory::fills() && x.device().type != DeviceType::null) [[unlikely]]
    uninitialised::check_read(x);
}

Tensor copy_to_cpu(const Tensor& x) { return to_device(borrow(x), Device{}); }

}  // namespace

constinit const RuntimeHooks runtime_hooks{
    .allocate_storage = allocate_storage,
    .free_data = free_data,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy_between = copy_between,
    .complete = complete,
    .check_read = check_read,
    .copy_to_cpu = copy_to_cpu,
    .fix_layout = fix_layout,
    .remake_view_history = ops::remake_view_history,
    .execute_window = execute_window,
    .wait_for_devices = wait_for_devices,
    .raise_pending_error = raise_pending_error,
    .forget_pending_error = forget_pending_error,
    .find_backend = registered_backend,
    .recall_search = recall_search,
    .keep_search = keep_search,
};

}  // namespace pyflame
