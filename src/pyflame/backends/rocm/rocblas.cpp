// Loads rocBLAS, and computes products with it.
#include "pyflame/backends/rocm/rocblas.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "pyflame/backends/gpu/libs/enumerate.h"
#include "pyflame/backends/gpu/libs/library.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr const char* kRocblasFiles[] = {"librocblas.so.5", "librocblas.so.4", "librocblas.so", nullptr};

// On the device's stream, with a workspace that it need not allocate later.
BlasHandle rocblas_handle(const RocBlas& library, GpuDevice& device) {
  constexpr size_t kWorkspace = size_t{32} << 20;
  static std::mutex mutex;
  static auto* handles = new std::map<const GpuDevice*, BlasHandle>;
  std::lock_guard lock(mutex);
  BlasHandle& handle = (*handles)[&device];
  if (!handle) {
    device.enter();
    BlasHandle made = nullptr;
    int status = library.create(&made);
    if (status == 0) status = library.set_stream(made, device.stream());
    void* memory = status == 0 ? device.allocate(kWorkspace) : nullptr;
    if (memory) status = library.set_workspace(made, memory, kWorkspace);
    PF_CHECK(status == 0, Runtime, "rocblas: no handle on {}; got status {}", device.arch().name, status);
    handle = made;
  }
  return handle;
}

// A product, by the kernel that rocBLAS chooses or by one with a number.
class RocBlasProduct final : public Executable {
 public:
  explicit RocBlasProduct(const Problem& p, std::optional<int32_t> solution = std::nullopt)
      : product_(p.root()),
        library_(*rocblas()),
        handle_(rocblas_handle(library_, device(DeviceType::rocm, p.graph.device.index))),
        a_(p.root().ins[0].binding),
        b_(p.root().ins[1].binding),
        c_(p.root().outs[0].binding),
        solution_(solution) {}
  void run(const RunContext& ctx) override {
    device(DeviceType::rocm, ctx.device).enter();
    const int algorithm = solution_ ? kRocBlasNumbers.by_number : kRocBlasNumbers.standard;
    const int status = call(ctx.bindings[a_], ctx.bindings[b_], ctx.bindings[c_], [&](auto... description) {
      return library_.gemm(description..., algorithm, solution_.value_or(0), 0);
    });
    const Product& g = product_;
    PF_CHECK(status == 0, Runtime, "matmul: rocblas refused the product; got status {} for {} x {} x {} of {}", status,
             g.m, g.k, g.n, dtype_name(g.dtype));
  }

  // The numbers of the kernels that can compute it.
  std::vector<int32_t> solutions() const {
    std::vector<int32_t> found;
    if (!library_.solutions) return found;
    char somewhere[16] = {};  // nothing is read or written there
    int32_t size = 0;
    const auto ask = [&](int32_t* list) {
      return call(somewhere, somewhere, somewhere, [&](auto... description) {
        return library_.solutions(description..., kRocBlasNumbers.by_number, 0, list, &size);
      });
    };
    if (ask(nullptr) != 0 || size <= 0) return found;
    found.resize(static_cast<size_t>(size));
    if (ask(found.data()) != 0) size = 0;
    found.resize(static_cast<size_t>(std::clamp(size, 0, static_cast<int32_t>(found.size()))));
    std::erase_if(found, [](int32_t number) { return number == 0; });  // its own choice
    return found;
  }

 private:
  // Calls fn with the product as rocBLAS takes it, up to the type of the sums.
  template <class Fn>
  int call(const void* a, const void* b, void* c, Fn fn) const {
    const Product& g = product_;
    const RocBlasNumbers& n = kRocBlasNumbers;
    const MatrixLayout first = *layout_of(g.n, g.k, g.b_col, g.b_row), second = *layout_of(g.m, g.k, g.a_row, g.a_col);
    const bool wide = g.dtype == DType::float64;
    const int type = wide ? n.f64 : g.dtype == DType::float32 ? n.f32 : g.dtype == DType::float16 ? n.f16 : n.bf16;
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    const auto stride = [&](const Dims& batch) { return g.batch.empty() ? int64_t{0} : batch[0]; };
    const auto whole = [](int64_t x) { return static_cast<int>(x); };
    const int64_t ld = g.m == 1 ? g.n : g.c_row;
    return fn(handle_, first.transposed ? n.op_t : n.op_n, second.transposed ? n.op_n : n.op_t, whole(g.n), whole(g.m),
              whole(g.k), wide ? static_cast<const void*>(&wide_one) : &one, b, type, whole(first.ld),
              stride(g.b_batch), a, type, whole(second.ld), stride(g.a_batch),
              wide ? static_cast<const void*>(&wide_zero) : &zero, static_cast<const void*>(c), type, whole(ld),
              stride(g.c_batch), c, type, whole(ld), stride(g.c_batch), whole(g.batches()), wide ? n.f64 : n.f32);
  }

  Product product_;
  const RocBlas& library_;
  BlasHandle handle_;
  BindingId a_, b_, c_;
  std::optional<int32_t> solution_;
};

bool there() { return rocblas() != nullptr; }
Refusal refuses(const Problem& p) {
  if (p.size() > 1) return "has no epilogues";
  std::string why;
  const RocBlas* library = rocblas(&why);
  if (!library) return why;
  const std::string& gfx = device(DeviceType::rocm, p.graph.device.index).arch().name;
  if (!rocblas_has_kernels(*library, gfx)) return fmt::format("the installed rocBLAS has no kernels for {}", gfx);
  const Product g(p.root());
  if (std::max({g.a_row, g.a_col, g.b_row, g.b_col, g.c_row}) > std::numeric_limits<int32_t>::max())
    return "a stride is larger than the library's";
  return std::nullopt;
}
std::unique_ptr<Executable> make(const Problem& p) { return std::make_unique<RocBlasProduct>(p); }

constexpr std::string_view kSolution = "solution=";
// rocBLAS recommends none but its own choice: it lists them by their numbers.
std::vector<std::string> no_recommendations(const Problem&) { return {}; }
std::unique_ptr<Enumeration> enumerate_solutions(const Problem& p) {
  class Solutions final : public Enumeration {
   public:
    explicit Solutions(std::vector<int32_t> numbers) : numbers_(std::move(numbers)), order_(numbers_.size()) {}
    size_t size() const override { return numbers_.size(); }
    std::optional<std::string> at(size_t place) const override {
      return fmt::format("{}{}", kSolution, numbers_[order_[place]]);
    }

   private:
    std::vector<int32_t> numbers_;
    Spread order_;
  };
  return std::make_unique<Solutions>(RocBlasProduct(p).solutions());
}
std::unique_ptr<Executable> make_solution(const Problem& p, const std::string& name) {
  for (const int32_t number : RocBlasProduct(p).solutions())
    if (name == fmt::format("{}{}", kSolution, number)) return std::make_unique<RocBlasProduct>(p, number);
  PF_FAIL(Value,
          "matmul: rocblas has no such solution for this product; got '{}'; expected a number that it had when it was "
          "measured",
          name);
}
constexpr LibraryConfigurations kSolutions{no_recommendations, make_solution, enumerate_solutions};

}  // namespace

const Dylib kRocblas = {.name = "rocBLAS",
                        .type = DeviceType::rocm,
                        .files = kRocblasFiles,
                        .absent = "rocBLAS (librocblas.so) was not found; install ROCm's rocblas package",
                        .computes = true};
const RocBlasNumbers kRocBlasNumbers = {
    .op_n = 111, .op_t = 112, .f16 = 150, .f32 = 151, .f64 = 152, .bf16 = 168, .standard = 0, .by_number = 1};
const PlainBlas kRocblasProducts = {"rocm.rocblas", there, refuses, make, &kSolutions};

const RocBlas* rocblas(std::string* why) {
  struct Found {
    RocBlas blas;
    std::string why;
  };
  static const Found* found = [] {
    auto* f = new Found;
    const Dylib::Opened& opened = kRocblas.open();
    void* library = opened.handle;
    f->why = opened.why;
    if (!library) return f;
    const auto bind = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_symbol(library, name));
      if (!function) f->why = std::string("rocBLAS lacks ") + name;
    };
    bind(f->blas.version, "rocblas_get_version_string");
    bind(f->blas.create, "rocblas_create_handle");
    bind(f->blas.set_stream, "rocblas_set_stream");
    bind(f->blas.set_workspace, "rocblas_set_workspace");
    bind(f->blas.gemm, "rocblas_gemm_strided_batched_ex");
    f->blas.solutions = reinterpret_cast<decltype(f->blas.solutions)>(
        find_symbol(library, "rocblas_gemm_strided_batched_ex_get_solutions"));
    return f;
  }();
  if (why) *why = found->why;
  return found->why.empty() ? &found->blas : nullptr;
}

// rocBLAS ends the process if it has no kernel file for a GPU, so its files are checked first. It searches where a
// variable says, or else next to the library.
bool rocblas_has_kernels(const RocBlas& library, const std::string& gfx) {
  namespace fs = std::filesystem;
  static std::mutex mutex;
  static auto* known = new std::map<std::string, bool>;
  std::lock_guard lock(mutex);
  const auto [at, fresh] = known->try_emplace(gfx, false);
  if (!fresh) return at->second;
  std::vector<fs::path> folders;
  if (const char* said = std::getenv("ROCBLAS_TENSILE_LIBPATH")) {
    folders = {said, fs::path(said) / gfx};
  } else if (Dl_info info{}; dladdr(reinterpret_cast<const void*>(library.create), &info) && info.dli_fname) {
    const fs::path own_folder = fs::path(info.dli_fname).parent_path();
    for (const char* folder : {"rocblas/library", "rocblas/5/library", "../rocblas/library", "../../Tensile/library"})
      folders.push_back(own_folder / folder);
  }
  std::error_code ec;
  for (const fs::path& folder : folders)
    for (fs::directory_iterator entry(folder, ec), end; !ec && entry != end; entry.increment(ec)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with("TensileLibrary") && name.find(gfx) != std::string::npos) at->second = true;
    }
  return at->second;
}

std::string rocblas_version() {
  const RocBlas* library = rocblas();
  std::array<char, 128> text{};
  return library && library->version(text.data(), text.size()) == 0 ? fmt::format("rocblas {}", text.data()) : "";
}

}  // namespace pyflame::gpu
