// MIOpen (libMIOpen.so.1; no header is needed) in its immediate mode: it lists solutions with estimates of their time
// and runs no benchmarks itself. A solution is compiled when it first runs. The numbers are those of miopen.h.
#include "pyflame/backends/rocm/libraries.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "pyflame/backends/rocm/rocblas.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

using Handle = void*;
using Descriptor = void*;

struct Solution {  // miopenConvSolution_t
  float time;      // milliseconds, estimated; negative: unknown
  size_t workspace;
  uint64_t id;
  int algorithm;
};
constexpr int kAlgorithmGemm = 0, kAlgorithmFft = 2, kAlgorithmWinograd = 3;

//   member, name after "miopen", parameters
#define PYFLAME_MIOPEN_FUNCTIONS(F)                                                                              \
  F(create, "CreateWithStream", (Handle * handle, Stream stream))                                                \
  F(set_stream, "SetStream", (Handle handle, Stream stream))                                                     \
  F(make_tensor, "CreateTensorDescriptor", (Descriptor * d))                                                     \
  F(destroy_tensor, "DestroyTensorDescriptor", (Descriptor d))                                                   \
  F(set_tensor, "SetTensorDescriptor", (Descriptor d, int type, int dims, const int* shape, const int* strides)) \
  F(make_convolution, "CreateConvolutionDescriptor", (Descriptor * d))                                           \
  F(destroy_convolution, "DestroyConvolutionDescriptor", (Descriptor d))                                         \
  F(set_convolution, "InitConvolutionDescriptor",                                                                \
    (Descriptor d, int mode, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w))  \
  F(set_groups, "SetConvolutionGroupCount", (Descriptor d, int groups))                                          \
  F(set_attribute, "SetConvolutionAttribute", (Descriptor d, int attribute, int value))
// The functions of one of the three convolutions. The first two tensors are read, in the function's own order; the
// third is written.
#define PYFLAME_MIOPEN_PASS_FUNCTIONS(F)                                                                           \
  F(count, "GetSolutionCount",                                                                                     \
    (Handle handle, Descriptor a, Descriptor b, Descriptor convolution, Descriptor c, size_t * count))             \
  F(list, "GetSolution",                                                                                           \
    (Handle handle, Descriptor a, Descriptor b, Descriptor convolution, Descriptor c, size_t most, size_t * count, \
     Solution * solutions))                                                                                        \
  F(run, "Immediate",                                                                                              \
    (Handle handle, Descriptor a, const void* a_data, Descriptor b, const void* b_data, Descriptor convolution,    \
     Descriptor c, void* c_data, void* workspace, size_t workspace_bytes, uint64_t id))

struct PassFunctions {
#define PYFLAME_MIOPEN_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  PYFLAME_MIOPEN_PASS_FUNCTIONS(PYFLAME_MIOPEN_MEMBER)
};
struct Functions {
  PYFLAME_MIOPEN_FUNCTIONS(PYFLAME_MIOPEN_MEMBER)
#undef PYFLAME_MIOPEN_MEMBER
  PassFunctions passes[3];  // by ConvPass
};
constexpr const char* kPassNames[] = {"ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardWeights"};
// For each convolution: which of image, weight and result are read first and second, and which is written: (w, x) -> y,
// (dy, w) -> dx, (dy, x) -> dw.
constexpr size_t kRoles[3][3] = {{1, 0, 2}, {2, 1, 0}, {2, 0, 1}};

constexpr const char* kMiopenFiles[] = {"libMIOpen.so.1", "libMIOpen.so", nullptr};
const Dylib* const kNeeds[] = {&kRocblas, &kHipblaslt, nullptr};

int data_type(DType d) {
  switch (d) {
    case DType::float16: return 0;
    case DType::float32: return 1;
    case DType::bfloat16: return 5;
    default: return 6;  // float64
  }
}

// MIOpen's descriptors of a convolution, which its plans share.
struct Described {
  explicit Described(const Functions& functions) : f(functions) {
    ok = f.make_convolution(&convolution) == 0;
    for (Descriptor& t : tensors) ok = ok && f.make_tensor(&t) == 0;
  }
  ~Described() {
    if (convolution) f.destroy_convolution(convolution);
    for (const Descriptor t : tensors)
      if (t) f.destroy_tensor(t);
  }
  Described(const Described&) = delete;
  const Functions& f;
  Descriptor convolution = nullptr;
  std::array<Descriptor, 3> tensors{};
  bool ok;
};

bool describe(Described& d, const DnnProblem& p) {
  constexpr int kConvolution = 0, kDeterministic = 1;
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  const ConvAttrs& a = p.attrs;
  bool ok = d.ok &&
            d.f.set_convolution(d.convolution, kConvolution, number(a.pad_h), number(a.pad_w), number(a.stride_h),
                                number(a.stride_w), number(a.dilation_h), number(a.dilation_w)) == 0 &&
            d.f.set_groups(d.convolution, number(a.groups)) == 0 &&
            d.f.set_attribute(d.convolution, kDeterministic, a.any_order ? 0 : 1) == 0;
  for (size_t i = 0; i < 3 && ok; ++i) {
    int shape[4], strides[4];
    for (int k = 0; k < 4; ++k) {
      if (p.strides[i][k] > std::numeric_limits<int>::max()) return false;
      shape[k] = number(p.shape[i][k]), strides[k] = number(p.strides[i][k]);
    }
    ok = d.f.set_tensor(d.tensors[i], data_type(p.dtype), 4, shape, strides) == 0;
  }
  return ok;
}

class Plan final : public DnnPlan {
 public:
  Plan(Handle handle, std::shared_ptr<const Described> described, const DnnProblem& p, const Solution& solution)
      : handle_(handle),
        described_(std::move(described)),
        pass_(static_cast<size_t>(p.pass)),
        solution_(solution),
        repeats_(p.attrs.any_order == 0) {}
  size_t workspace() const override { return solution_.workspace; }
  bool repeats() const override { return repeats_; }  // MIOpen does not say this of a solution
  std::string number() const override { return fmt::format("solution={}", solution_.id); }
  void run(GpuDevice& device, const std::array<void*, 3>& tensors, void* workspace) override {
    const auto [a, b, c] = kRoles[pass_];
    device.enter();
    const Functions& f = described_->f;
    int status = f.set_stream(handle_, device.stream());
    if (status == 0)
      status = f.passes[pass_].run(handle_, described_->tensors[a], tensors[a], described_->tensors[b], tensors[b],
                                   described_->convolution, described_->tensors[c], tensors[c], workspace,
                                   solution_.workspace, solution_.id);
    PF_CHECK(status == 0, Runtime, "conv2d: MIOpen failed with error {} in its solution {}", status, solution_.id);
  }

 private:
  Handle handle_;
  std::shared_ptr<const Described> described_;
  size_t pass_;
  Solution solution_;
  bool repeats_;
};

class Miopen final : public DnnLibrary {
 public:
  const char* name() const override { return "miopen"; }
  Functions f;
  std::string why;

  std::vector<std::unique_ptr<DnnPlan>> plans(GpuDevice& device, const DnnProblem& p, int most) const override {
    std::vector<std::unique_ptr<DnnPlan>> all;
    if (p.dtype == DType::float64) return all;  // it lists solutions for float64, but their kernels do not compile
    device.enter();
    const Handle handle = handle_of(device);
    const auto d = std::make_shared<Described>(f);
    if (!handle || !describe(*d, p)) return all;
    const auto pass = static_cast<size_t>(p.pass);
    const auto [a, b, c] = kRoles[pass];
    size_t count = 0;
    if (f.passes[pass].count(handle, d->tensors[a], d->tensors[b], d->convolution, d->tensors[c], &count) != 0 ||
        count == 0)
      return all;
    std::vector<Solution> solutions(count);
    if (f.passes[pass].list(handle, d->tensors[a], d->tensors[b], d->convolution, d->tensors[c], solutions.size(),
                            &count, solutions.data()) != 0)
      return all;
    solutions.resize(std::min(count, solutions.size()));
    std::stable_sort(solutions.begin(), solutions.end(), [](const Solution& x, const Solution& y) {
      const float never = std::numeric_limits<float>::max();
      return (x.time < 0 ? never : x.time) < (y.time < 0 ? never : y.time);
    });
    const RocBlas* products = rocblas();
    const bool multiplies = products && rocblas_has_kernels(*products, device.arch().name);
    for (const Solution& s : solutions) {
      // Solutions that are matrix products use rocBLAS, which ends the process if it has no kernels for the GPU.
      if (s.algorithm == kAlgorithmGemm && !multiplies) continue;
      // Transform algorithms: their errors grow with the largest value, instead of with the terms of each result.
      if (s.algorithm == kAlgorithmFft || s.algorithm == kAlgorithmWinograd) continue;
      if (static_cast<int>(all.size()) < most) all.push_back(std::make_unique<Plan>(handle, d, p, s));
    }
    return all;
  }

 private:
  // One per device, never freed.
  Handle handle_of(GpuDevice& device) const {
    static std::mutex mutex;
    static std::vector<Handle> handles;
    std::lock_guard lock(mutex);
    const auto at = static_cast<size_t>(device.index());
    if (handles.size() <= at) handles.resize(at + 1);
    if (!handles[at] && f.create(&handles[at], device.own_stream()) != 0) handles[at] = nullptr;
    return handles[at];
  }
};

}  // namespace

const Dylib kMiopen = {.name = "MIOpen",
                       .type = DeviceType::rocm,
                       .files = kMiopenFiles,
                       .absent = "MIOpen (libMIOpen.so.1) was not found; install ROCm's MIOpen",
                       .computes = true,
                       .needs = kNeeds};

const DnnLibrary* miopen(std::string* why) {
  static const Miopen* library = [] {
    auto* m = new Miopen;
    const Dylib::Opened& opened = kMiopen.open();
    m->why = opened.why;
    if (!opened.handle) return m;
    const auto load = [&](auto& member, const std::string& function) {
      member =
          reinterpret_cast<std::remove_reference_t<decltype(member)>>(find_symbol(opened.handle, function.c_str()));
      if (!member) m->why = "MIOpen is too old: it lacks " + function;
    };
#define PYFLAME_MIOPEN_LOAD(member, name, parameters) load(m->f.member, "miopen" name);
    PYFLAME_MIOPEN_FUNCTIONS(PYFLAME_MIOPEN_LOAD)
#undef PYFLAME_MIOPEN_LOAD
    for (size_t i = 0; i < 3; ++i) {
#define PYFLAME_MIOPEN_LOAD(member, name, parameters) \
  load(m->f.passes[i].member, std::string("miopen") + kPassNames[i] + name);
      PYFLAME_MIOPEN_PASS_FUNCTIONS(PYFLAME_MIOPEN_LOAD)
#undef PYFLAME_MIOPEN_LOAD
    }
    return m;
  }();
  if (library->why.empty()) return library;
  if (why) *why = library->why;
  return nullptr;
}

std::string miopen_version() {
  const auto get =
      reinterpret_cast<int (*)(size_t*, size_t*, size_t*)>(find_symbol(kMiopen.open().handle, "miopenGetVersion"));
  size_t major = 0, minor = 0, patch = 0;
  return get && get(&major, &minor, &patch) == 0 ? fmt::format("miopen {}.{}.{}", major, minor, patch) : "";
}

}  // namespace pyflame::gpu
