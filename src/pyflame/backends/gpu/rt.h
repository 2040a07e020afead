// The driver interface that HIP and CUDA share, found at run time: nothing of either is linked, no header of either is needed, and the
// same build starts on a machine without them. The functions have the same parameters on both sides (a CUdeviceptr is passed as
// the pointer that it is); only their names differ, and this is the one place that knows both.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "pyflame/tensor/device.h"

namespace pyflame::gpu {

using Stream = void*;
using Event = void*;
using Module = void*;
using Function = void*;
using Result = int;  // 0: success on both sides

//   member, HIP's name, CUDA's name, parameters
#define PYFLAME_RT_FUNCTIONS(F)                                                                                        \
  F(init, "hipInit", "cuInit", (unsigned flags))                                                                       \
  F(error_string, "hipDrvGetErrorString", "cuGetErrorString", (Result error, const char** text))                       \
  F(driver_version, "hipDriverGetVersion", "cuDriverGetVersion", (int* version))                                       \
  F(device_count, "hipGetDeviceCount", "cuDeviceGetCount", (int* count))                                               \
  F(device_get, "hipDeviceGet", "cuDeviceGet", (int* device, int ordinal))                                             \
  F(device_name, "hipDeviceGetName", "cuDeviceGetName", (char* name, int length, int device))                          \
  F(device_attribute, "hipDeviceGetAttribute", "cuDeviceGetAttribute", (int* value, int attribute, int device))        \
  F(device_memory, "hipDeviceTotalMem", "cuDeviceTotalMem_v2", (size_t * bytes, int device))                           \
  F(device_pci, "hipDeviceGetPCIBusId", "cuDeviceGetPCIBusId", (char* id, int length, int device))                     \
  F(context_retain, "hipDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", (void** context, int device))             \
  F(context_set, "hipCtxSetCurrent", "cuCtxSetCurrent", (void* context))                                               \
  F(memory_info, "hipMemGetInfo", "cuMemGetInfo_v2", (size_t * free, size_t * total))                                  \
  F(allocate, "hipMalloc", "cuMemAlloc_v2", (void** pointer, size_t bytes))                                            \
  F(release, "hipFree", "cuMemFree_v2", (void* pointer))                                                               \
  F(host_allocate, "hipHostMalloc", "cuMemHostAlloc", (void** pointer, size_t bytes, unsigned flags))                  \
  F(host_release, "hipHostFree", "cuMemFreeHost", (void* pointer))                                                     \
  F(copy_in, "hipMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", (void* to, const void* from, size_t bytes, Stream stream))  \
  F(copy_out, "hipMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", (void* to, const void* from, size_t bytes, Stream stream)) \
  F(copy, "hipMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", (void* to, const void* from, size_t bytes, Stream stream))     \
  F(stream_create, "hipStreamCreateWithFlags", "cuStreamCreate", (Stream * stream, unsigned flags))                    \
  F(stream_wait, "hipStreamSynchronize", "cuStreamSynchronize", (Stream stream))                                       \
  F(event_create, "hipEventCreateWithFlags", "cuEventCreate", (Event * event, unsigned flags))                         \
  F(event_record, "hipEventRecord", "cuEventRecord", (Event event, Stream stream))                                     \
  F(event_wait, "hipEventSynchronize", "cuEventSynchronize", (Event event))                                            \
  F(event_elapsed, "hipEventElapsedTime", "cuEventElapsedTime", (float* ms, Event begin, Event end))                   \
  F(module_load, "hipModuleLoadData", "cuModuleLoadData", (Module * module, const void* image))                        \
  F(module_function, "hipModuleGetFunction", "cuModuleGetFunction",                                                    \
    (Function * function, Module module, const char* name))                                                            \
  F(function_attribute, "hipFuncSetAttribute", "cuFuncSetAttribute", (Function function, int attribute, int value))    \
  F(launch, "hipModuleLaunchKernel", "cuLaunchKernel",                                                                 \
    (Function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,                  \
     unsigned shared_bytes, Stream stream, void** parameters, void** extra))

// HIP says an architecture's name only in its properties, a struct that is versioned by the function's name.
constexpr const char* kHipProperties = "hipGetDevicePropertiesR0600";
constexpr size_t kHipPropertiesNameAt = 1160, kHipPropertiesNameBytes = 256;

// Numbers that the two sides give different names to.
enum class Attribute {
  compute_units,
  wave_size,
  shared_per_block,
  threads_per_block,
  l2_bytes,
  major,
  minor,
  integrated
};

struct Rt {
  DeviceType type = DeviceType::cuda;
  void* library = nullptr;  // for what only one side has
#define PYFLAME_RT_MEMBER(member, hip, cuda, parameters) Result(*member) parameters = nullptr;
  PYFLAME_RT_FUNCTIONS(PYFLAME_RT_MEMBER)
#undef PYFLAME_RT_MEMBER

  int attribute(Attribute which, int device) const;  // 0 where the runtime does not know it
  // Runtime error "what: …" with the runtime's own words unless it succeeded; OutOfMemory for that code.
  void check(Result result, const char* what) const;
};

// The runtime of a device type, initialised; null where it is not there, with the reason in `why`. Asked once, then remembered.
const Rt* runtime(DeviceType type, std::string* why = nullptr);

// Opens the first of a list of libraries. Null when none can be opened.
void* open_library(const char* const* names);
void* find_symbol(void* library, const char* name);

}  // namespace pyflame::gpu
