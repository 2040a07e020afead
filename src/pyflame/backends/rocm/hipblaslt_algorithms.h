// All kernels of hipBLASLt, which have numbers ("solution=5021").
#pragma once
#include "pyflame/backends/gpu/libs/enumerate.h"

namespace pyflame::gpu {

constexpr int kHipblasLtPlainGemm = 1;  // not a group of products
// What the library fills vectors with: hipblasLtMatmulHeuristicResult_t.
struct HipblasLtResult {
  alignas(8) std::array<unsigned char, 56> bytes{};
};

// These are C++ functions of the namespace hipblaslt_ext.
//   member, name, the symbol's name, parameters
#define PYFLAME_HIPBLASLT_ALGORITHM_FUNCTIONS(F)                                                                     \
  F(all, "getAllAlgos",                                                                                              \
    "_ZN13hipblaslt_ext11getAllAlgosEPvNS_8GemmTypeE18hipblasOperation_tS2_11hipDataTypeS3_S3_S3_"                   \
    "20hipblasComputeType_tRSt6vectorI33_hipblasLtMatmulHeuristicResult_tSaIS6_EE",                                  \
    (BlasHandle handle, int kind, int op_a, int op_b, int a, int b, int c, int d, int compute,                       \
     std::vector<HipblasLtResult>& results))                                                                         \
  F(by_number, "getAlgosFromIndex",                                                                                  \
    "_ZN13hipblaslt_ext17getAlgosFromIndexEPvRSt6vectorIiSaIiEERS1_I33_hipblasLtMatmulHeuristicResult_tSaIS5_EE",    \
    (BlasHandle handle, std::vector<int> & numbers, std::vector<HipblasLtResult> & results))                         \
  F(number, "getIndexFromAlgo", "_ZN13hipblaslt_ext16getIndexFromAlgoER22_hipblasLtMatmulAlgo_t", (void* algorithm)) \
  F(check, "matmulIsAlgoSupported",                                                                                  \
    "_ZN13hipblaslt_ext21matmulIsAlgoSupportedEPvP27hipblasLtMatmulDescOpaque_tPKvP29hipblasLtMatrixLayoutOpaque_t"  \
    "S6_S4_S6_S6_R22_hipblasLtMatmulAlgo_tRm",                                                                       \
    (BlasHandle handle, BlasDesc desc, const void* alpha, BlasDesc a, BlasDesc b, const void* beta, BlasDesc c,      \
     BlasDesc d, void* algorithm, size_t& workspace))

const BlasEnumeration* hipblaslt_algorithms();

}  // namespace pyflame::gpu
