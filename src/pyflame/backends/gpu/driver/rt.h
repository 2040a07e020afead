// The driver functions that HIP and CUDA share, loaded at run time. Neither is linked and no header of either is
// needed, so the same build starts on a machine without them. The functions have the same parameters on both sides (a
// CUdeviceptr is passed as a pointer). Only their names differ, and this is the only place that knows both names.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "pyflame/backends/gpu/driver/dylib.h"
#include "pyflame/tensor/device.h"

namespace pyflame::gpu {

using Stream = void*;
using Event = void*;
using Module = void*;
using Function = void*;
using RtGraph = void*;
using GraphNode = void*;
using GraphExec = void*;
using Result = int;  // 0: success in both

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
  F(stream_create_first, "hipStreamCreateWithPriority", "cuStreamCreateWithPriority",                                  \
    (Stream * stream, unsigned flags, int priority))                                                                   \
  F(fill, "hipMemsetD8Async", "cuMemsetD8Async", (void* to, unsigned char value, size_t bytes, Stream stream))         \
  F(stream_after, "hipStreamWaitEvent", "cuStreamWaitEvent", (Stream stream, Event event, unsigned flags))             \
  F(stream_destroy, "hipStreamDestroy", "cuStreamDestroy_v2", (Stream stream))                                         \
  F(stream_wait, "hipStreamSynchronize", "cuStreamSynchronize", (Stream stream))                                       \
  F(launch_host, "hipLaunchHostFunc", "cuLaunchHostFunc", (Stream stream, void (*call)(void* data), void* data))       \
  F(event_create, "hipEventCreateWithFlags", "cuEventCreate", (Event * event, unsigned flags))                         \
  F(event_record, "hipEventRecord", "cuEventRecord", (Event event, Stream stream))                                     \
  F(event_destroy, "hipEventDestroy", "cuEventDestroy_v2", (Event event))                                              \
  F(event_query, "hipEventQuery", "cuEventQuery", (Event event))                                                       \
  F(event_wait, "hipEventSynchronize", "cuEventSynchronize", (Event event))                                            \
  F(event_elapsed, "hipEventElapsedTime", "cuEventElapsedTime", (float* ms, Event begin, Event end))                   \
  F(module_load, "hipModuleLoadData", "cuModuleLoadData", (Module * module, const void* image))                        \
  F(module_function, "hipModuleGetFunction", "cuModuleGetFunction",                                                    \
    (Function * function, Module module, const char* name))                                                            \
  F(function_attribute, "hipFuncSetAttribute", "cuFuncSetAttribute", (Function function, int attribute, int value))    \
  F(launch, "hipModuleLaunchKernel", "cuLaunchKernel",                                                                 \
    (Function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,                  \
     unsigned shared_bytes, Stream stream, void** parameters, void** extra))                                           \
  F(capture_begin, "hipStreamBeginCapture", "cuStreamBeginCapture_v2", (Stream stream, int mode))                      \
  F(capture_end, "hipStreamEndCapture", "cuStreamEndCapture", (Stream stream, RtGraph * graph))                        \
  F(graph_create, "hipGraphCreate", "cuGraphCreate", (RtGraph * graph, unsigned flags))                                \
  F(graph_destroy, "hipGraphDestroy", "cuGraphDestroy", (RtGraph graph))                                               \
  F(graph_add_kernel, "hipGraphAddKernelNode", "cuGraphAddKernelNode_v2",                                              \
    (GraphNode * node, RtGraph graph, const GraphNode* after, size_t count, const void* kernel))                       \
  F(graph_add_child, "hipGraphAddChildGraphNode", "cuGraphAddChildGraphNode",                                          \
    (GraphNode * node, RtGraph graph, const GraphNode* after, size_t count, RtGraph child))                            \
  F(graph_instantiate, "hipGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags",                                  \
    (GraphExec * exec, RtGraph graph, unsigned long long flags))                                                       \
  F(graph_set_kernel, "hipGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2",                          \
    (GraphExec exec, GraphNode node, const void* kernel))                                                              \
  F(graph_launch, "hipGraphLaunch", "cuGraphLaunch", (GraphExec exec, Stream stream))                                  \
  F(graph_exec_destroy, "hipGraphExecDestroy", "cuGraphExecDestroy", (GraphExec exec))

// Functions that only one vendor has; null where they are missing.
//   member, the vendor, its name, parameters
#define PYFLAME_RT_OPTIONAL_FUNCTIONS(F)                                            \
  F(graph_add_edges, DeviceType::cuda, "cuGraphAddDependencies_v2", /* CUDA 12.3 */ \
    (RtGraph graph, const GraphNode* from, const GraphNode* to, const GraphEdge* edges, size_t count))

// Of an edge between two kernels of a graph.
struct GraphEdge {  // CUgraphEdgeData
  unsigned char from_port, to_port, type, reserved[5];
};
// The second kernel may start when all workgroups of the first one have said so; it waits for the first one's end by
// itself.
constexpr GraphEdge kEarlyEdge{1, 0, 1, {}};

// HIP gives an architecture's name only in its properties, a struct whose version is part of the function's name.
constexpr const char* kHipProperties = "hipGetDevicePropertiesR0600";
constexpr size_t kHipPropertiesNameAt = 1160, kHipPropertiesNameBytes = 256;

// The kernel of a graph's node: the only struct that differs.
struct HipKernelNode {  // hipKernelNodeParams
  unsigned block[3];
  void** extra;
  Function function;
  unsigned grid[3];
  void** parameters;
  unsigned shared_bytes;
};
struct CudaKernelNode {  // CUDA_KERNEL_NODE_PARAMS_v2
  Function function;
  unsigned grid[3], block[3], shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;   // used if there is no function
  void* context;  // not used if there is a function
};
static_assert(sizeof(HipKernelNode) == 64 && sizeof(CudaKernelNode) == 72);

constexpr unsigned kPortable = 1;               // pinned memory that every device may read
constexpr unsigned kTiming = 0, kNoTiming = 2;  // flag of an event
constexpr unsigned kNonBlockingStream = 1;      // flag of a stream that does not wait for the default stream
constexpr int kCaptureRelaxed = 2;              // work of other threads on other streams does not disturb a capture
constexpr Result kOutOfMemory = 2, kNotReady = 600;
// The device is lost for this process: every later call fails in the same way.
bool is_fatal(Result result);

// Attributes that have different numbers in HIP and CUDA.
enum class Attribute {
  compute_units,
  wave_size,
  shared_per_block,  // the most that a kernel may ask for
  threads_per_block,
  l2_bytes,
  major,
  minor,
  integrated,
  dies  // that have a second-level cache each (XCDs)
};

struct AttributeNumbers {  // hipDeviceAttribute_t (ROCm 6 and 7) and CUdevice_attribute
  int hip, cuda;
};
// No number is -1.
constexpr AttributeNumbers kAttributeNumbers[] = {{63, 16}, {87, 10}, {74, 97}, {56, 1},    {19, 38},
                                                  {23, 75}, {61, 76}, {16, 18}, {10018, -1}};

struct Rt {
  DeviceType type = DeviceType::cuda;
  void* library = nullptr;  // for functions that only one vendor has
#define PYFLAME_RT_MEMBER(member, hip, cuda, parameters) Result(*member) parameters = nullptr;
  PYFLAME_RT_FUNCTIONS(PYFLAME_RT_MEMBER)
#undef PYFLAME_RT_MEMBER
#define PYFLAME_RT_MEMBER(member, vendor, name, parameters) Result(*member) parameters = nullptr;
  PYFLAME_RT_OPTIONAL_FUNCTIONS(PYFLAME_RT_MEMBER)
#undef PYFLAME_RT_MEMBER

  int attribute(Attribute which, int device) const;  // 0 if the runtime does not know it
  // Unless the call succeeded: RuntimeError "what: …" with the runtime's own message, or OutOfMemory for that code.
  void check(Result result, const char* what) const;
};

// The runtime of a device type, initialised; null if it is missing, with the reason in `why`. The answer is cached.
const Rt* runtime(DeviceType type, std::string* why = nullptr);

}  // namespace pyflame::gpu
