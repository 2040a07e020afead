// A hipBLASLt that works: it refuses what the real one's header does not allow in a description of a product, and computes products with
// their epilogues by one plain kernel on the emulated device, in the stream's order. In a folder of its own, emulator/working.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "settings.h"

extern "C" {
int hipModuleLoadData(void**, const void*);
int hipModuleGetFunction(void**, void*, const char*);
int hipModuleLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                          void**);
int hiprtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*);
int hiprtcCompileProgram(void*, int, const char* const*);
int hiprtcGetCodeSize(void*, size_t*);
int hiprtcGetCode(void*, char*);
int hiprtcDestroyProgram(void**);
}

#define EXPORT extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kFine = 0, kInvalid = 3, kNotSupported = 7;
constexpr int kFloat = 0, kDouble = 1, kHalf = 2, kBrain = 14, kWide8 = 1000, kNarrow8 = 1001;  // the last two: FNUZ
constexpr int kPlain = 111, kTransposed = 112;
enum Attribute {
  transA = 0,
  transB = 1,
  epilogue = 2,
  bias = 3,
  biasType = 4,
  scaleA = 5,
  scaleB = 6,
  aux = 10,
  auxPitch = 11,
  auxStride = 12
};

// What both sides of the launch read.
#define PRODUCT_FIELDS                                                                                 \
  long long m, n, k, a_row, a_col, b_row, b_col, c_col, aux_col, a_batch, b_batch, c_batch, aux_batch; \
  int type, type_a, type_b, epilogue;                                                                  \
  double alpha, beta;
struct Product {
  PRODUCT_FIELDS
};
#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(...) TEXT_OF(__VA_ARGS__)

// A workgroup for each column, a wave's lanes over its rows. In double, rounded once; the result of a product is what its epilogue reads.
constexpr const char* kKernel = "struct Product { " TEXT(PRODUCT_FIELDS) R"( };
#define PF_KERNEL(threads) extern "C" void
static double get(const void* at, int type, long long i) {
  if (type == 1) return ((const double*)at)[i];
  if (type == 0) return ((const float*)at)[i];
  if (type == 2) return (double)((const _Float16*)at)[i];
  if (type >= 1000) {  // E4M3 and E5M2, FNUZ
    const int code = ((const unsigned char*)at)[i], fraction = type == 1000 ? 3 : 2, bias = type == 1000 ? 8 : 16;
    const int exponent = (code & 127) >> fraction, digits = code & ((1 << fraction) - 1);
    if (code == 128) return __builtin_nan("");
    const double size = exponent == 0 ? __builtin_ldexp(digits, 1 - bias - fraction)
                                      : __builtin_ldexp(digits + (1 << fraction), exponent - bias - fraction);
    return code > 127 ? -size : size;
  }
  const unsigned bits = (unsigned)((const unsigned short*)at)[i] << 16;
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}
static void put(void* at, int type, long long i, double x) {
  if (type == 1) ((double*)at)[i] = x;
  if (type == 0) ((float*)at)[i] = (float)x;
  if (type == 2) ((_Float16*)at)[i] = (_Float16)x;
  if (type != 14) return;
  const float f = (float)x;
  unsigned bits;
  __builtin_memcpy(&bits, &f, 4);
  ((unsigned short*)at)[i] = (unsigned short)(x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
PF_KERNEL(64) lt(const void* a, const void* b, const void* c, void* d, void* bias, void* aux, const float* of_a,
                 const float* of_b, Product p) {
  const long long j = emulated.group[0], z = emulated.group[1];
  const int e = p.epilogue;
  for (long long i = emulated.thread; i < p.m; i += 64) {
    double x = 0, sum_a = 0, sum_b = 0;
    for (long long k = 0; k < p.k; ++k) {
      const double l = get(a, p.type_a, z * p.a_batch + i * p.a_row + k * p.a_col);
      const double r = get(b, p.type_b, z * p.b_batch + k * p.b_row + j * p.b_col);
      x += l * r, sum_a += l, sum_b += r;
    }
    if (e == 256 && j == 0) put(bias, p.type, i, sum_a);
    if (e == 512 && i == 0) put(bias, p.type, j, sum_b);
    x *= p.alpha;
    if (p.type_a >= 1000) x *= (double)*of_a * *of_b;
    const long long at = z * p.c_batch + i + j * p.c_col, kept = z * p.aux_batch + i + j * p.aux_col;
    if (p.beta != 0) x += p.beta * get(c, p.type, at);
    if ((e & 4) && e != 192) x += get(bias, p.type, i);
    if (e == 160 || e == 164) put(aux, p.type, kept, x);
    const double s = e == 192 ? get(aux, p.type, kept) : x;
    const double in = 0.7978845608028654 * (s + 0.044715 * s * s * s), t = tanh(in);
    if (e == 192) x *= 0.5 * (1 + t) + 0.5 * s * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * s * s);
    else if (e & 32) x = 0.5 * x * (1 + t);
    else if (e & 65536) x = x / (1 + exp(-x));
    else if ((e & 2) && !(x > 0)) x = 0;
    put(d, p.type, at, x);
  }
}
)";

struct Handle {
  void* kernel = nullptr;
};
struct Desc {
  int compute = 0, scale = 0;
  std::map<int, int64_t> set;
  int64_t get(int attribute, int64_t otherwise) const {
    const auto at = set.find(attribute);
    return at == set.end() ? otherwise : at->second;
  }
};
struct Layout {
  int type = 0;
  int64_t rows = 0, cols = 0, ld = 0, batches = 1, stride = 0;
};

// What the header lists of what PyFlame may ask for, without the modes for gradients of relu and the narrow types.
const std::set<int64_t> kEpilogues = {1, 2, 4, 6, 32, 36, 160, 164, 192, 256, 512, 65536, 65540};
bool has_bias(int64_t e) { return e == 256 || e == 512 || ((e & 4) && e != 192); }
bool has_aux(int64_t e) { return e == 160 || e == 164 || e == 192; }

bool is_float8(int type) { return type == kWide8 || type == kNarrow8; }
size_t width(int type) { return type == kDouble ? 8 : type == kFloat ? 4 : is_float8(type) ? 1 : 2; }

// 0 where the description holds together.
int check(const Desc& p, const Layout& a, const Layout& b, const Layout& c, const Layout& d, Product* out) {
  const int64_t ta = p.get(transA, kPlain), tb = p.get(transB, kPlain), e = p.get(epilogue, 1);
  if ((ta != kPlain && ta != kTransposed) || (tb != kPlain && tb != kTransposed) || !kEpilogues.count(e))
    return kInvalid;
  const int64_t m = ta == kPlain ? a.rows : a.cols, k = ta == kPlain ? a.cols : a.rows;
  const int64_t kb = tb == kPlain ? b.rows : b.cols, n = tb == kPlain ? b.cols : b.rows;
  if (k != kb || d.rows != m || d.cols != n || c.rows != m || c.cols != n || c.ld != d.ld) return kInvalid;
  for (const Layout* l : {&a, &b, &c, &d})
    if (l->ld < l->rows || l->batches != a.batches) return kInvalid;
  if (c.type != d.type || is_float8(d.type)) return kInvalid;
  if (is_float8(a.type)) {
    if (!is_float8(b.type) || d.type == kDouble || !p.get(scaleA, 0) || !p.get(scaleB, 0)) return kInvalid;
    if (k % 16 != 0 || m % 16 != 0 || (e != 1 && e != 4)) return kNotSupported;
  } else if (b.type != a.type || d.type != a.type || p.get(scaleA, 0) || p.get(scaleB, 0)) {
    return kInvalid;
  }
  const bool wide = a.type == kDouble;
  if (wide != (p.compute == 7) || wide != (p.scale == 1)) return kInvalid;
  if (has_bias(e) && (!p.get(bias, 0) || p.get(biasType, d.type) != d.type)) return kInvalid;
  if (has_aux(e) && (!p.get(aux, 0) || p.get(auxPitch, 0) < m || p.get(auxPitch, 0) % 8 != 0)) return kInvalid;
  if (has_aux(e) && a.batches > 1 && p.get(auxStride, 0) < p.get(auxPitch, 0) * n) return kInvalid;
  if (e != 1 && wide) return kNotSupported;
  if ((e == 256 || e == 512) && a.batches > 1) return kNotSupported;
  const auto step = [](int64_t op, int64_t ld, bool along) { return (op == kPlain) == along ? 1 : ld; };
  *out = {m,
          n,
          k,
          step(ta, a.ld, true),
          step(ta, a.ld, false),
          step(tb, b.ld, true),
          step(tb, b.ld, false),
          d.ld,
          p.get(auxPitch, 0),
          a.stride,
          b.stride,
          d.stride,
          p.get(auxStride, 0),
          d.type,
          a.type,
          b.type,
          static_cast<int>(e),
          1,
          0};
  return kFine;
}

// The attribute's bytes, of which there must be as many as the header says.
template <class T>
int take(std::map<int, int64_t>& set, int attribute, const void* value, size_t bytes) {
  T x{};
  if (bytes != sizeof x) return kInvalid;
  std::memcpy(&x, value, sizeof x);
  set[attribute] = static_cast<int64_t>(x);
  return kFine;
}

}  // namespace

EXPORT hipblasLtCreate(void** out) {
  void *program = nullptr, *module = nullptr;
  const std::string arch = "--offload-arch=" + pyflame::emulator::settings().arch;
  const char* options[] = {arch.c_str()};
  hiprtcCreateProgram(&program, kKernel, "lt", 0, nullptr, nullptr);
  std::vector<char> code;
  if (hiprtcCompileProgram(program, 1, options) == 0) {
    size_t bytes = 0;
    hiprtcGetCodeSize(program, &bytes);
    code.resize(bytes);
    hiprtcGetCode(program, code.data());
  }
  hiprtcDestroyProgram(&program);
  auto* h = new Handle;
  *out = h;
  return code.empty() || hipModuleLoadData(&module, code.data()) || hipModuleGetFunction(&h->kernel, module, "lt");
}
EXPORT hipblasLtGetVersion(void*, int* version) {
  *version = 100200;
  return kFine;
}
EXPORT hipblasLtMatmulDescCreate(void** out, int compute, int scale) {
  auto* d = new Desc;
  d->compute = compute, d->scale = scale;
  *out = d;
  return kFine;
}
EXPORT hipblasLtMatmulDescDestroy(void* desc) {
  delete static_cast<Desc*>(desc);
  return kFine;
}
EXPORT hipblasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, size_t bytes) {
  auto& set = static_cast<Desc*>(desc)->set;
  switch (attribute) {
    case transA:
    case transB:
    case epilogue:
    case biasType: return take<int32_t>(set, attribute, value, bytes);
    case bias:
    case aux:
    case scaleA:
    case scaleB:
    case auxPitch:
    case auxStride: return take<int64_t>(set, attribute, value, bytes);
    default: return kInvalid;
  }
}
EXPORT hipblasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (type != kFloat && type != kDouble && type != kHalf && type != kBrain && !is_float8(type)) return kInvalid;
  *out = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld};
  return kFine;
}
EXPORT hipblasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return kFine;
}
EXPORT hipblasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  auto* l = static_cast<Layout*>(layout);
  std::map<int, int64_t> set;
  const int bad = attribute == 0 ? take<int32_t>(set, 0, value, bytes) : take<int64_t>(set, attribute, value, bytes);
  if (bad || attribute > 1) return kInvalid;
  (attribute == 0 ? l->batches : l->stride) = set[attribute];
  return kFine;
}
EXPORT hipblasLtMatmulPreferenceCreate(void** out) {
  static int something;
  *out = &something;
  return kFine;
}
EXPORT hipblasLtMatmulPreferenceDestroy(void*) { return kFine; }
EXPORT hipblasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return kFine; }
// The library recommends up to three algorithms, whose numbers begin with kFirstSolution. The last one computes something wrong, so that tests
// see whether somebody checks. Its enumeration has all numbers up to last_solution(). Of those, kTooLarge needs more workspace than anybody gives it,
// kOther does not compute the product, and kFailing says that it does, but fails.
constexpr int kFirstSolution = 101, kSolutions = 3, kTooLarge = 105, kOther = 106, kFailing = 107;
[[maybe_unused]] static int last_solution() {
  const char* said = std::getenv("PYFLAME_EMULATOR_KERNELS");
  return kFirstSolution - 1 + (said ? std::atoi(said) : 8);
}
EXPORT hipblasLtMatmulAlgoGetHeuristic(void*, void* desc, void* a, void* b, void* c, void* d, void*, int wanted,
                                       void* results, int* found) {
  constexpr size_t kResultBytes = 56;
  Product p;
  const int bad = check(*static_cast<Desc*>(desc), *static_cast<Layout*>(a), *static_cast<Layout*>(b),
                        *static_cast<Layout*>(c), *static_cast<Layout*>(d), &p);
  *found = bad ? 0 : std::min(wanted, kSolutions);
  for (int i = 0; i < std::max(*found, 1); ++i) {
    char* result = static_cast<char*>(results) + kResultBytes * static_cast<size_t>(i);
    std::memset(result, 0, kResultBytes);
    const int solution = kFirstSolution + i;
    std::memcpy(result, &solution, sizeof solution);
  }
  return bad;
}
EXPORT hipblasLtMatmul(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                       void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                       const void* algorithm, void*, size_t, void* stream) {
  const Desc& described = *static_cast<Desc*>(desc);
  const Layout& first = *static_cast<Layout*>(a_layout);
  Product p;
  if (const int bad = check(described, first, *static_cast<Layout*>(b_layout), *static_cast<Layout*>(c_layout),
                            *static_cast<Layout*>(d_layout), &p))
    return bad;
  for (const auto& [at, type] :
       {std::pair{a, p.type_a}, {b, p.type_b}, {c, p.type}, {static_cast<const void*>(d), p.type}})
    if (!at || reinterpret_cast<uintptr_t>(at) % width(type) != 0) return kInvalid;
  const auto number = [&](const void* at) {
    return p.type == kDouble ? *static_cast<const double*>(at) : double{*static_cast<const float*>(at)};
  };
  p.alpha = number(alpha), p.beta = number(beta);
  int solution = 0;
  std::memcpy(&solution, algorithm, sizeof solution);
  if (solution == kFailing) return kNotSupported;
  if (const char* last = std::getenv("PYFLAME_EMULATOR_LAST_SOLUTION"); last && std::to_string(solution) == last)
    std::_Exit(3);
  if (solution == kFirstSolution + kSolutions - 1) p.alpha *= 2;
  // A pointer that the kernel does not use still is one into device memory.
  void* added = has_bias(p.epilogue) ? reinterpret_cast<void*>(described.get(bias, 0)) : d;
  void* kept = has_aux(p.epilogue) ? reinterpret_cast<void*>(described.get(aux, 0)) : d;
  void* of_a = is_float8(p.type_a) ? reinterpret_cast<void*>(described.get(scaleA, 0)) : d;
  void* of_b = is_float8(p.type_a) ? reinterpret_cast<void*>(described.get(scaleB, 0)) : d;
  void* parameters[] = {&a, &b, &c, &d, &added, &kept, &of_a, &of_b, &p, nullptr};
  if (p.m * p.n == 0) return kFine;
  return hipModuleLaunchKernel(static_cast<Handle*>(handle)->kernel, static_cast<unsigned>(p.n),
                               static_cast<unsigned>(first.batches), 1, 64, 1, 1, 0, stream, parameters, nullptr);
}

// What C++ programs call, with the names and types of the real header.
enum hipblasOperation_t : int {};
enum hipDataType : int {};
enum hipblasComputeType_t : int {};
struct hipblasLtMatmulDescOpaque_t;
struct hipblasLtMatrixLayoutOpaque_t;
struct _hipblasLtMatmulAlgo_t {
  int solution;
  unsigned char rest[20];
};
struct _hipblasLtMatmulHeuristicResult_t {
  _hipblasLtMatmulAlgo_t algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(_hipblasLtMatmulHeuristicResult_t) == 56);
#define CXX_EXPORT __attribute__((visibility("default"))) int
namespace hipblaslt_ext {
enum class GemmType { gemm = 1 };
CXX_EXPORT getIndexFromAlgo(_hipblasLtMatmulAlgo_t& algorithm);
int getIndexFromAlgo(_hipblasLtMatmulAlgo_t& algorithm) { return algorithm.solution; }

#ifndef WITHOUT_ENUMERATION
using Results = std::vector<_hipblasLtMatmulHeuristicResult_t>;
CXX_EXPORT getAllAlgos(void* handle, GemmType kind, hipblasOperation_t op_a, hipblasOperation_t op_b, hipDataType a,
                       hipDataType b, hipDataType c, hipDataType d, hipblasComputeType_t compute, Results& results);
CXX_EXPORT getAlgosFromIndex(void* handle, std::vector<int>& numbers, Results& results);
CXX_EXPORT matmulIsAlgoSupported(void* handle, hipblasLtMatmulDescOpaque_t* desc, const void* alpha,
                                 hipblasLtMatrixLayoutOpaque_t* a, hipblasLtMatrixLayoutOpaque_t* b, const void* beta,
                                 hipblasLtMatrixLayoutOpaque_t* c, hipblasLtMatrixLayoutOpaque_t* d,
                                 _hipblasLtMatmulAlgo_t& algorithm, size_t& workspace);

int getAlgosFromIndex(void*, std::vector<int>& numbers, Results& results) {
  results.clear();
  for (const int number : numbers)
    if (number >= kFirstSolution && number <= last_solution()) results.emplace_back().algorithm.solution = number;
  return results.empty() ? kInvalid : kFine;
}
int getAllAlgos(void* handle, GemmType kind, hipblasOperation_t op_a, hipblasOperation_t op_b, hipDataType a,
                hipDataType b, hipDataType c, hipDataType d, hipblasComputeType_t compute, Results& results) {
  const bool wide = a == kDouble;
  if (!handle || kind != GemmType::gemm || (op_a != kPlain && op_a != kTransposed) ||
      (op_b != kPlain && op_b != kTransposed) || (a != b && !is_float8(a)) || c != d || wide != (compute == 7))
    return kInvalid;
  std::vector<int> numbers;
  for (int i = kFirstSolution; i <= last_solution(); ++i) numbers.push_back(i);
  return getAlgosFromIndex(handle, numbers, results);
}
int matmulIsAlgoSupported(void*, hipblasLtMatmulDescOpaque_t* desc, const void* alpha, hipblasLtMatrixLayoutOpaque_t* a,
                          hipblasLtMatrixLayoutOpaque_t* b, const void* beta, hipblasLtMatrixLayoutOpaque_t* c,
                          hipblasLtMatrixLayoutOpaque_t* d, _hipblasLtMatmulAlgo_t& algorithm, size_t& workspace) {
  Product p;
  const auto layout = [](void* at) -> const Layout& { return *static_cast<Layout*>(at); };
  if (!alpha || !beta || algorithm.solution == kOther) return kInvalid;
  workspace = algorithm.solution == kTooLarge ? size_t{1} << 40 : 0;
  return check(*static_cast<Desc*>(static_cast<void*>(desc)), layout(a), layout(b), layout(c), layout(d), &p);
}
#endif
}  // namespace hipblaslt_ext
