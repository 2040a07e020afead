// Fourier transforms by cuFFT and hipFFT.
#include "pyflame/backends/gpu/libs/fft_library.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <optional>
#include <type_traits>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/libs/fallback.h"
#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

//   member, name after "cufft" or "hipfft", parameters
#define PYFLAME_FFT_FUNCTIONS(F)                                                                                       \
  F(create, "Create", (Plan * plan))                                                                                   \
  F(destroy, "Destroy", (Plan plan))                                                                                   \
  F(set_auto_allocation, "SetAutoAllocation", (Plan plan, int on))                                                     \
  F(make_plan, "MakePlanMany64",                                                                                       \
    (Plan plan, int rank, long long* n, long long* in_size, long long in_step, long long in_line, long long* out_size, \
     long long out_step, long long out_line, int type, long long lines, size_t* workspace))                            \
  F(set_stream, "SetStream", (Plan plan, Stream stream))                                                               \
  F(set_work_area, "SetWorkArea", (Plan plan, void* memory))                                                           \
  F(complex32, "ExecC2C", (Plan plan, void* in, void* out, int direction))                                             \
  F(complex64, "ExecZ2Z", (Plan plan, void* in, void* out, int direction))                                             \
  F(real32, "ExecR2C", (Plan plan, void* in, void* out))                                                               \
  F(real64, "ExecD2Z", (Plan plan, void* in, void* out))

template <class Plan>
struct Functions {
#define PYFLAME_FFT_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  PYFLAME_FFT_FUNCTIONS(PYFLAME_FFT_MEMBER)
#undef PYFLAME_FFT_MEMBER
  std::string why;
};

template <class Plan>
const Functions<Plan>& functions(DeviceType type) {
  static std::array<std::once_flag, 2> once;
  static auto* all = new std::array<Functions<Plan>, 2>;  // leaked: threads may outlive static destruction
  const size_t at = type == DeviceType::rocm ? 0 : 1;
  Functions<Plan>& f = (*all)[at];
  std::call_once(once[at], [&] {
    const FftNames& names = vendor(type).fft;
    const Dylib::Opened& opened = names.library->open();
    f.why = opened.why;
    if (!opened.handle) return;
    const auto load = [&](auto& member, const char* suffix) {
      const std::string name = std::string(names.prefix) + suffix;
      member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(find_symbol(opened.handle, name.c_str()));
      if (!member) f.why = fmt::format("{} lacks {}", names.library->name, name);
    };
#define PYFLAME_FFT_LOAD(member, name, parameters) load(f.member, name);
    PYFLAME_FFT_FUNCTIONS(PYFLAME_FFT_LOAD)
#undef PYFLAME_FFT_LOAD
  });
  return f;
}

// A transform in the form that libraries take: lines at equal distances. Distances of pairs are in pairs.
struct Lines {
  int64_t n = 0, lines = 1, step = 1, distance = 0, out_distance = 0;
};
std::optional<Lines> lines_of(const Problem& p) {
  const Operand& x = p.root().ins[0];
  const bool pairs = p.root().attr<FftAttrs>().kind == 0;
  const int dims = x.shape.size() - (pairs ? 2 : 1);
  Dims shape, strides;
  for (int d = 0; d < dims; ++d) shape.push_back(x.shape[d]), strides.push_back(x.strides[d]);
  collapse(shape, strides);
  if (shape.size() > 1) return std::nullopt;
  Lines r;
  r.n = x.shape[dims], r.step = x.strides[dims];
  r.distance = r.n * r.step;  // of one line; libraries refuse 0
  if (!shape.empty()) r.lines = shape[0], r.distance = strides[0];
  r.out_distance = pairs ? r.n : r.n / 2 + 1;
  if (r.step <= 0 || r.distance <= 0) return std::nullopt;
  if (!pairs) return r;
  if (x.strides.back() != 1 || r.step % 2 != 0 || r.distance % 2 != 0) return std::nullopt;
  r.step /= 2, r.distance /= 2;
  return r;
}

template <class Plan>
class FftLibrary final : public Executable {
 public:
  FftLibrary(const Problem& p, std::unique_ptr<Executable> own)
      : x_(p.root().ins[0]),
        y_(p.root().outs[0]),
        type_(p.graph.device.type),
        attrs_(p.root().attr<FftAttrs>()),
        wide_(x_.dtype == DType::float64),
        f_(functions<Plan>(type_)),
        own_(std::move(own)) {
    Lines lines = *lines_of(p);
    GpuDevice& gpu = device(type_, p.graph.device.index);
    gpu.enter();
    const bool pairs = attrs_.kind == 0;
    const int type =
        pairs ? (wide_ ? kFftComplex64 : kFftComplex32) : (wide_ ? kFftRealToComplex64 : kFftRealToComplex32);
    long long n = lines.n, out = lines.out_distance;
    int status = f_.create(&plan_);
    made_ = status == 0;
    if (status == 0) status = f_.set_auto_allocation(plan_, 0);
    if (status == 0)
      status = f_.make_plan(plan_, 1, &n, &n, lines.step, lines.distance, &out, 1, out, type, lines.lines, &workspace_);
    if (status == 0) status = f_.set_stream(plan_, gpu.stream());
    if (status != 0) fail("made no plan", status);
    const auto length = static_cast<double>(lines.n);
    scale_ = attrs_.scale == 2 ? 1 / length : attrs_.scale == 1 ? 1 / std::sqrt(length) : 1;
    if (scale_ != 1) scale_kernel_.emplace(type_, kGroupThreads, fft_scale_source(x_.dtype));
  }
  ~FftLibrary() override {
    if (made_) f_.destroy(plan_);
  }
  FftLibrary(const FftLibrary&) = delete;
  FftLibrary& operator=(const FftLibrary&) = delete;

  size_t workspace() const override { return std::max(workspace_, own_ ? own_->workspace() : 0); }

  void run(const RunContext& ctx) override {
    void *x = ctx.bindings[x_.binding], *y = ctx.bindings[y_.binding];
    const uintptr_t pair = 2 * dtype_size(x_.dtype);
    const bool aligned = reinterpret_cast<uintptr_t>(x) % pair == 0 && reinterpret_cast<uintptr_t>(y) % pair == 0;
    if (own_ && (failed_ || !aligned)) return own_->run(ctx);
    device(type_, ctx.device).enter();
    int status = failed_ ? failed_ : workspace_ ? f_.set_work_area(plan_, ctx.workspace) : 0;
    const int direction = attrs_.inverse ? kFftBackward : kFftForward;
    if (status == 0 && attrs_.kind == 0) status = (wide_ ? f_.complex64 : f_.complex32)(plan_, x, y, direction);
    else if (status == 0) status = (wide_ ? f_.real64 : f_.real32)(plan_, x, y);
    if (status != 0) {
      fail("refused the transform", status);
      return own_->run(ctx);
    }
    if (scale_kernel_) {
      const int64_t count = y_.numel();
      scale_kernel_->launch(ctx.device, group_each(ceil_div(count, kGroupThreads)), y, count, scale_);
    }
  }

 private:
  void fail(const char* what, int status) {
    const Error e(ErrorKind::Runtime, fmt::format("fft: {} {}; got status {} for {} of {}", vendor(type_).fft.name,
                                                  what, status, x_.shape.str(), dtype_name(x_.dtype)));
    if (!own_) throw e;
    fall_back(e);
    failed_ = status;
  }
  Operand x_, y_;
  DeviceType type_;
  FftAttrs attrs_;
  bool wide_, made_ = false;
  const Functions<Plan>& f_;
  std::unique_ptr<Executable> own_;
  Plan plan_{};
  size_t workspace_ = 0;
  double scale_ = 1;
  int failed_ = 0;  // the library's status
  std::optional<Kernel> scale_kernel_;
};

}  // namespace

Refusal fft_library_refuses(const Problem& p) {
  const DeviceType type = p.graph.device.type;
  const std::string& why = vendor(type).fft.plan_is_int ? functions<int>(type).why : functions<void*>(type).why;
  if (!why.empty()) return why;
  if (p.root().attr<FftAttrs>().kind == 2) return "may overwrite its input where the result is real";
  if (!lines_of(p)) return "takes lines at equal distances";
  return std::nullopt;
}

std::unique_ptr<Executable> make_fft_library(const Problem& p, std::unique_ptr<Executable> own) {
  if (vendor(p.graph.device.type).fft.plan_is_int) return std::make_unique<FftLibrary<int>>(p, std::move(own));
  return std::make_unique<FftLibrary<void*>>(p, std::move(own));
}

std::string fft_scale_source(DType dtype) {
  const char* type = dtype == DType::float64 ? "double" : "float";
  return kernel_source(
      {"fft/fft.h"}, kGroupThreads,
      fmt::format("({0}* y, pf::i64 count, double scale) {{ pf::fft_scale<{0}>(y, count, scale); }}", type));
}

}  // namespace pyflame::gpu
