// The interface of compiled functions from outside of PyFlame, in C. A plug-in computes one of PyFlame's ops and is registered by pf.tuning.register: PyFlame
// measures it and its own implementations, takes it where it is faster and computes the right result, and calls it instead of them. An extension brings ops of
// its own (extension.h, pf.utils.cpp_extension). The functions need nothing of PyFlame but this file.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The version of this interface.
#define PYFLAME_PLUGIN_VERSION 1
#define PYFLAME_PLUGIN_NUMBER \
  0  // the device_type of a number, which stands behind the tensors in the inputs of an extension's op
// The most dims that a tensor may have.
#define PYFLAME_PLUGIN_MAX_RANK 8

// The members of DLPack's DLTensor, in its layout. Strides are in elements and never null.
typedef struct {
  void* data;                         // of the first element; null while the function is asked
  int32_t device_type, device_index;  // DLPack's numbers: 1 the CPU, 2 CUDA, 10 ROCm
  int32_t rank;
  uint8_t type_code, bits;  // DLPack's: 0 int, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool
  uint16_t lanes;           // 1
  const int64_t* shape;
  const int64_t* strides;
  uint64_t byte_offset;  // 0
} pyflame_plugin_tensor;

// One call of a function: what is asked, with which tensors.
typedef struct pyflame_plugin_call {
  uint32_t version;  // PYFLAME_PLUGIN_VERSION
  // 1: say whether you would compute this, and set workspace_bytes; write to no tensor. 0: compute it.
  int32_t asks;
  const char* op;          // "matmul"
  const char* attributes;  // " precision=0", as pf.explain prints them
  int32_t input_count, output_count;
  const pyflame_plugin_tensor* inputs;
  const pyflame_plugin_tensor* outputs;  // to be written as a whole; they share no memory with the inputs
  void* stream;                          // the GPU's stream, in which the work is queued; null on the CPU
  void* workspace;                       // workspace_bytes of memory of the device, aligned to 64 bytes
  uint64_t workspace_bytes;
  char* why;  // for a text of at most why_size bytes with its 0, which says why it was refused or what failed
  size_t why_size;
  void* context;  // what was given to pf.tuning.register; of an extension's op, its own
} pyflame_plugin_call;

// 0: yes, or done. Any other number: it refuses, or it failed. One thread at a time calls it, which may be any, and which may not hold
// Python's lock: it must not call Python.
typedef int (*pyflame_plugin_function)(pyflame_plugin_call* call);

// --- extensions. extension.h writes all of this.

// Shape and dtype of one output.
typedef struct {
  int64_t shape[PYFLAME_PLUGIN_MAX_RANK];
  int32_t rank;
  uint8_t type_code, bits;
} pyflame_plugin_result;

// One op of an extension.
typedef struct {
  const char* signature;  // "name(x, number) -> out, more"
  const char*
      kinds;  // of each argument: t an input, d a number of float64, i one of int64, b one that is 0 or 1 (int64), o an output, s the stream:
              // the op computes on GPUs
  const char* gradient;  // the op of the extension that computes the gradient, or an empty text
  pyflame_plugin_function function;
  int (*results)(pyflame_plugin_call* call, pyflame_plugin_result* results);  // describes the outputs for these inputs
  void* context;
} pyflame_extension_op;

// The ops of an extension's library.
typedef struct {
  uint32_t version;  // PYFLAME_PLUGIN_VERSION
  int32_t count;
  const pyflame_extension_op* ops;
  const char* error;  // what was wrong with the definitions, or an empty text
} pyflame_extension;

// The library of an extension exports `const pyflame_extension* pyflame_extension_table(void)`. What it points to stays.

#ifdef __cplusplus
}
#endif
