// hipBLASLt, rocBLAS and MIOpen as libraries that are installed and fail: every function is there, starting and describing succeed, and what
// would compute returns an error. PYFLAME_EMULATOR_LIBRARY_FAILS names a function that fails earlier (hipblasLtCreate, say). In a folder of
// their own, emulator/failing, so that programs meet them on demand.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kError = 3;
int answer(const char* name) {
  const char* failing = std::getenv("PYFLAME_EMULATOR_LIBRARY_FAILS");
  return failing && std::strcmp(failing, name) == 0 ? kError : 0;
}
int make(const char* name, void** out) {
  static int something;
  *out = &something;
  return answer(name);
}

}  // namespace

#define SUCCEEDS(name, parameters) \
  extern "C" __attribute__((visibility("default"))) int name parameters { return answer(#name); }
#define MAKES(name, parameters) \
  extern "C" __attribute__((visibility("default"))) int name parameters { return make(#name, out); }
#define FAILS(name, parameters) \
  extern "C" __attribute__((visibility("default"))) int name parameters { return kError; }

#if defined(FAKE_HIPBLASLT)
MAKES(hipblasLtCreate, (void** out))
MAKES(hipblasLtMatmulDescCreate, (void** out, int, int))
SUCCEEDS(hipblasLtMatmulDescDestroy, (void*))
SUCCEEDS(hipblasLtMatmulDescSetAttribute, (void*, int, const void*, size_t))
MAKES(hipblasLtMatrixLayoutCreate, (void** out, int, uint64_t, uint64_t, int64_t))
SUCCEEDS(hipblasLtMatrixLayoutDestroy, (void*))
SUCCEEDS(hipblasLtMatrixLayoutSetAttribute, (void*, int, const void*, size_t))
MAKES(hipblasLtMatmulPreferenceCreate, (void** out))
SUCCEEDS(hipblasLtMatmulPreferenceDestroy, (void*))
SUCCEEDS(hipblasLtMatmulPreferenceSetAttribute, (void*, int, const void*, size_t))
FAILS(hipblasLtMatmul, (void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*,
                        void*, void*, void*, const void*, void*, size_t, void*))
extern "C" __attribute__((visibility("default"))) int hipblasLtGetVersion(void*, int* version) {
  *version = 100200;
  return answer("hipblasLtGetVersion");
}
// One algorithm, of no workspace.
extern "C" __attribute__((visibility("default"))) int hipblasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*,
                                                                                      void*, void*, int, void* results,
                                                                                      int* found) {
  constexpr size_t kResultBytes = 56;
  std::memset(results, 0, kResultBytes);
  *found = 1;
  return answer("hipblasLtMatmulAlgoGetHeuristic");
}
#elif defined(FAKE_ROCBLAS)
MAKES(rocblas_create_handle, (void** out))
SUCCEEDS(rocblas_set_stream, (void*, void*))
SUCCEEDS(rocblas_set_workspace, (void*, void*, size_t))
FAILS(rocblas_gemm_strided_batched_ex, (void*))
extern "C" __attribute__((visibility("default"))) int rocblas_get_version_string(char* text, size_t bytes) {
  std::strncpy(text, "5.2.0", bytes);
  return answer("rocblas_get_version_string");
}
#elif defined(FAKE_MIOPEN)
struct Solution {
  float time;
  size_t workspace;
  uint64_t id;
  int algorithm;
};
constexpr int kDirect = 1;
MAKES(miopenCreateWithStream, (void** out, void*))
SUCCEEDS(miopenSetStream, (void*, void*))
MAKES(miopenCreateTensorDescriptor, (void** out))
SUCCEEDS(miopenDestroyTensorDescriptor, (void*))
SUCCEEDS(miopenSetTensorDescriptor, (void*, int, int, const int*, const int*))
MAKES(miopenCreateConvolutionDescriptor, (void** out))
SUCCEEDS(miopenDestroyConvolutionDescriptor, (void*))
SUCCEEDS(miopenInitConvolutionDescriptor, (void*, int, int, int, int, int, int, int))
SUCCEEDS(miopenSetConvolutionGroupCount, (void*, int))
SUCCEEDS(miopenSetConvolutionAttribute, (void*, int, int))
extern "C" __attribute__((visibility("default"))) int miopenGetVersion(size_t* major, size_t* minor, size_t* patch) {
  *major = 3, *minor = 5, *patch = 1;
  return answer("miopenGetVersion");
}
#define FACE(face)                                                                                 \
  extern "C" __attribute__((visibility("default"))) int miopenConvolution##face##GetSolutionCount( \
      void*, void*, void*, void*, void*, size_t* count) {                                          \
    *count = 1;                                                                                    \
    return answer("miopenConvolution" #face "GetSolutionCount");                                   \
  }                                                                                                \
  extern "C" __attribute__((visibility("default"))) int miopenConvolution##face##GetSolution(      \
      void*, void*, void*, void*, void*, size_t, size_t* count, Solution* solutions) {             \
    *count = 1;                                                                                    \
    *solutions = {0.001f, 0, 7, kDirect};                                                          \
    return answer("miopenConvolution" #face "GetSolution");                                        \
  }                                                                                                \
  FAILS(miopenConvolution##face##Immediate,                                                        \
        (void*, void*, const void*, void*, const void*, void*, void*, void*, void*, size_t, uint64_t))
FACE(Forward)
FACE(BackwardData)
FACE(BackwardWeights)
#endif
