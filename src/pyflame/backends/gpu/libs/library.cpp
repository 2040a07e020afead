// Matrix products by the vendors' libraries. The libraries use column-major order: a row-major C = A B is their C^T =
// B^T A^T, so their A is our B. A matrix with either dim contiguous is read in place, transposed or not.
#include "pyflame/backends/gpu/libs/library.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>

#include "pyflame/backends/gpu/libs/blas.h"
#include "pyflame/backends/gpu/libs/enumerate.h"
#include "pyflame/backends/gpu/libs/epilogue.h"
#include "pyflame/backends/gpu/libs/fallback.h"
#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/base/error.h"
#include "pyflame/ops/ops.h"

namespace pyflame::gpu {

namespace {

constexpr size_t kWorkspace = size_t{32} << 20;
// cuBLASLt refuses a workspace that does not begin at a multiple of this; an arena places it at a multiple of 64.
constexpr size_t kWorkspaceAlignment = 256;
constexpr int kManyAlgorithms = 4096;  // that the heuristic is asked for, and for more if it has as many

// hipDataType and cudaDataType have the same numbers.
int data_type(DType d) {
  switch (d) {
    case DType::float32: return 0;
    case DType::float64: return 1;
    case DType::float16: return 2;
    case DType::bfloat16: return 14;
    case DType::float8_e4m3fn: return 28;
    case DType::float8_e5m2: return 29;
    case DType::float8_e4m3fnuz: return 1000;
    case DType::float8_e5m2fnuz: return 1001;
    default: return -1;
  }
}

// Whether float32 inputs may be rounded to TF32 or xf32 (10 bits of fraction), and the matrix cores of this device
// support that.
bool rounds_inputs(const Problem& p) {
  if (p.root().op == OpId::scaled_mm) return false;
  const auto asked = static_cast<MatmulPrecision>(p.root().attr<MatmulAttrs>().precision);
  if (asked == MatmulPrecision::highest || p.root().outs[0].dtype != DType::float32) return false;
  return has_rounded_products(device(p.graph.device.type, p.graph.device.index));
}

class LibraryProduct final : public Executable {
 public:
  explicit LibraryProduct(const Problem& p)
      : product_(p.root()),
        type_(p.graph.device.type),
        library_(*blas(type_)),
        numbers_(*library_.numbers),
        a_(p.root().ins[0].binding),
        b_(p.root().ins[1].binding) {
    std::string why;
    epilogue_ = *epilogue_of(p, &why);
    GpuDevice& d = device(p.graph.device.type, p.graph.device.index);
    handle_ = blas_handle(library_, d);
    d.enter();
    const Product& g = product_;
    const int type = data_type(g.dtype);
    const bool wide = g.dtype == DType::float64;
    compute_ = wide ? numbers_.compute_f64 : rounds_inputs(p) ? numbers_.compute_tf32 : numbers_.compute_f32;
    check(library_.matmul_create(&desc_, compute_, wide ? 1 : 0), "a product");
    const MatrixLayout first = *layout_of(g.n, g.k, g.b_col, g.b_row), second = *layout_of(g.m, g.k, g.a_row, g.a_col);
    ops_[0] = first.transposed ? numbers_.op_t : numbers_.op_n;
    // The second operand is depth x lines, so it needs no transposition if its columns run along the depth.
    ops_[1] = second.transposed ? numbers_.op_n : numbers_.op_t;
    set(numbers_.desc_trans_a, ops_[0]);
    set(numbers_.desc_trans_b, ops_[1]);
    set(numbers_.desc_epilogue, epilogue_.number);
    const MatrixLayout last{false, g.n, g.m, g.m == 1 ? g.n : g.c_row};
    const void* somewhere = reinterpret_cast<const void*>(uintptr_t{256});  // the heuristic checks the alignment
    if (epilogue_.bias.valid() || epilogue_.sum.valid()) {
      set(numbers_.desc_bias_type, type);
      point(numbers_.desc_bias, somewhere);
    }
    if (epilogue_.argument.valid()) {
      const int64_t pitch = last.ld, stride = g.batch.empty() ? 0 : g.c_batch[0];
      check(library_.matmul_set(desc_, numbers_.desc_argument_pitch, &pitch, sizeof pitch), "an argument's pitch");
      if (stride)
        check(library_.matmul_set(desc_, numbers_.desc_argument_stride, &stride, sizeof stride), "its stride");
      point(numbers_.desc_argument, somewhere);
    }
    int type_a = type, type_b = type;
    if (p.root().op == OpId::scaled_mm) {
      const auto codes = p.root().attr<ScaledAttrs>();
      type_a = data_type(static_cast<DType>(codes.a)), type_b = data_type(static_cast<DType>(codes.b));
      scale_a_ = p.root().ins[2].binding, scale_b_ = p.root().ins[3].binding;
      point(numbers_.desc_scale_a, somewhere), point(numbers_.desc_scale_b, somewhere);
      if (const int8_t fast = codes.fast != 0 ? 1 : 0; fast != 0 && numbers_.desc_fast_sums >= 0)
        check(library_.matmul_set(desc_, numbers_.desc_fast_sums, &fast, sizeof fast), "fast sums");
    }
    types_ = {type_b, type_a, type};
    lay(0, type_b, first, g.b_batch);
    lay(1, type_a, second, g.a_batch);
    lay(2, type, last, g.c_batch);
    use(ask(16));
  }
  ~LibraryProduct() override {
    for (BlasDesc l : layouts_)
      if (l) library_.layout_destroy(l);
    if (desc_) library_.matmul_destroy(desc_);
  }
  LibraryProduct(const LibraryProduct&) = delete;
  LibraryProduct& operator=(const LibraryProduct&) = delete;

  // All algorithms by their names, the library's first choice first.
  std::vector<std::string> algorithms() {
    std::vector<std::string> names;
    for (auto& [name, result] : named(recommended(kMostRecommended))) names.push_back(std::move(name));
    return names;
  }
  // The names of those that the heuristic recommends behind the first kMostRecommended, and all that it does not recommend. Null: the
  // library enumerates nothing. The enumeration must not outlive this object.
  std::pair<std::vector<std::string>, std::unique_ptr<Enumeration>> further_algorithms() {
    const std::vector<BlasResult> known = all_recommended();
    std::vector<std::string> names;
    for (auto& [name, result] : named(known)) names.push_back(std::move(name));
    names.erase(names.begin(), names.begin() + std::min<ptrdiff_t>(kMostRecommended, std::ssize(names)));
    const BlasEnumeration* library = enumeration();
    return {std::move(names), library ? library->all(described(), known) : nullptr};
  }
  // Takes another algorithm than the first choice.
  void take(const std::string& name) {
    workspace_ = 0;
    algorithm_.reset();
    const auto find = [&](const std::vector<BlasResult>& results) -> std::optional<BlasResult> {
      for (const auto& [found, result] : named(results))
        if (found == name) return result;
      return std::nullopt;
    };
    // Where kernels have numbers, those that are recommended and the others have names of one kind.
    if (library_.index_of)
      if (const auto found = find(recommended(kMostRecommended))) return use(found);
    const BlasEnumeration* all = enumeration();
    if (const auto found = all ? all->find(described(), name) : std::nullopt) return use(found);
    if (const auto found = find(recommended(kMostRecommended))) return use(found);
    if (const auto found = find(all_recommended())) return use(found);
    PF_FAIL(
        Value,
        "matmul: {} has no such algorithm for this product; got '{}'; expected a name that it had when it was measured",
        numbers_.name, name);
  }
  bool has_algorithm() const { return algorithm_.has_value(); }
  size_t workspace() const override { return workspace_ == 0 ? 0 : workspace_ + kWorkspaceAlignment - 1; }

  void run(const RunContext& ctx) override {
    GpuDevice& d = device(type_, ctx.device);
    d.enter();
    const void *a = ctx.bindings[a_], *b = ctx.bindings[b_];
    void* c = ctx.bindings[epilogue_.out];
    const void* added = epilogue_.added.valid() ? ctx.bindings[epilogue_.added] : c;
    const void* argument = epilogue_.argument.valid() ? ctx.bindings[epilogue_.argument] : c;
    if (epilogue_.bias.valid()) point(numbers_.desc_bias, ctx.bindings[epilogue_.bias]);
    if (epilogue_.sum.valid()) point(numbers_.desc_bias, ctx.bindings[epilogue_.sum]);
    if (epilogue_.argument.valid()) point(numbers_.desc_argument, argument);
    if (scale_a_.valid()) {  // the library's first operand is our second one
      point(numbers_.desc_scale_a, ctx.bindings[scale_b_]);
      point(numbers_.desc_scale_b, ctx.bindings[scale_a_]);
    }
    const BlasResult* algorithm = &*algorithm_;
    const size_t alignment = common_alignment({a, b, c, added, argument});
    if (alignment < 16) {
      // A view may start at an unaligned address: this finds an algorithm for it, with the same workspace.
      if (!odd_ || odd_alignment_ != alignment)
        odd_ = ask(static_cast<uint32_t>(alignment)), odd_alignment_ = alignment;
      PF_CHECK(odd_, NotImplemented, "matmul: {} has no kernel for pointers aligned to {} bytes", numbers_.name,
               alignment);
      algorithm = &*odd_;
    }
    void* const workspace = aligned_workspace(ctx.workspace);
    check(library_.matmul(handle_, desc_, factor(true), b, layouts_[0], a, layouts_[1], factor(epilogue_.added.valid()),
                          added, layouts_[2], c, layouts_[2], algorithm->data(), workspace, workspace_, d.stream()),
          "the product");
  }

 private:
  // 1 or 0, of the type of the sums.
  const void* factor(bool one) const {
    static constexpr float kFactors[] = {0, 1};
    static constexpr double kWideFactors[] = {0, 1};
    if (product_.dtype == DType::float64) return &kWideFactors[one ? 1 : 0];
    return &kFactors[one ? 1 : 0];
  }
  // Null: the installed library has none.
  const BlasEnumeration* enumeration() const {
    const BlasEnumeration* all = numbers_.enumeration();
    const std::string lacking = all->lacks();
    if (lacking.empty()) return all;
    say_once(fmt::format("{} lacks {}, so only those of its algorithms are measured that its heuristic recommends",
                         numbers_.name, lacking));
    return nullptr;
  }
  BlasProduct described() const {
    return {.handle = handle_,
            .desc = desc_,
            .layouts = layouts_,
            .compute = compute_,
            .scale = product_.dtype == DType::float64 ? 1 : 0,
            .op_a = ops_[0],
            .op_b = ops_[1],
            .type_a = types_[0],
            .type_b = types_[1],
            .type_c = types_[2],
            .alpha = factor(true),
            .beta = factor(epilogue_.added.valid()),
            .most_workspace = kWorkspace};
  }
  void check(int status, const char* what) const {
    PF_CHECK(status == 0, Runtime, "matmul: {} refused {}; got status {} for {} x {} x {} of {}", numbers_.name, what,
             status, product_.m, product_.k, product_.n, dtype_name(product_.dtype));
  }
  void set(int attribute, int value) {
    check(library_.matmul_set(desc_, attribute, &value, sizeof value), "an attribute");
  }
  void point(int attribute, const void* at) {
    check(library_.matmul_set(desc_, attribute, &at, sizeof at), "a pointer");
  }
  void lay(size_t at, int type, const MatrixLayout& l, const Dims& batch_strides) {
    check(
        library_.layout_create(&layouts_[at], type, static_cast<uint64_t>(l.rows), static_cast<uint64_t>(l.cols), l.ld),
        "a layout");
    if (product_.batch.empty()) return;
    const auto count = static_cast<int32_t>(product_.batch[0]);
    check(library_.layout_set(layouts_[at], numbers_.layout_batch_count, &count, sizeof count), "a batch");
    const int64_t stride = batch_strides[0];
    check(library_.layout_set(layouts_[at], numbers_.layout_batch_stride, &stride, sizeof stride), "a batch stride");
  }
  static size_t common_alignment(std::initializer_list<const void*> pointers) {
    uintptr_t bits = 16;
    for (const void* p : pointers) bits |= reinterpret_cast<uintptr_t>(p);
    return bits & (~bits + 1);
  }
  void* aligned_workspace(void* given) const {
    if (workspace_ == 0) return nullptr;  // its address is looked at, too, where nothing is written
    const auto at = reinterpret_cast<uintptr_t>(given);
    return static_cast<char*>(given) + (kWorkspaceAlignment - at % kWorkspaceAlignment) % kWorkspaceAlignment;
  }
  void use(const std::optional<BlasResult>& algorithm) {
    algorithm_ = algorithm;
    if (algorithm_) std::memcpy(&workspace_, algorithm_->data() + numbers_.result_workspace_at, sizeof workspace_);
  }
  std::vector<std::pair<std::string, BlasResult>> named(std::vector<BlasResult> results) const {
    std::vector<std::pair<std::string, BlasResult>> all;
    for (BlasResult& r : results) {
      std::string name = library_.index_of ? fmt::format("solution={}", library_.index_of(r.data()))
                                           : fmt::format("algorithm={}", all.size());
      all.emplace_back(std::move(name), r);
    }
    return all;
  }
  // The first ones that the heuristic recommends.
  std::vector<BlasResult> recommended(int most) {
    algorithm_.reset();  // the limit on workspaces is the general one
    return ask(16, most);
  }
  std::vector<BlasResult> all_recommended() {
    for (int most = kManyAlgorithms;; most *= 2)
      if (std::vector<BlasResult> all = recommended(most); std::ssize(all) < most || most > (1 << 20)) return all;
  }
  // The library's first choice; empty if it has none.
  std::optional<BlasResult> ask(uint32_t alignment) {
    const std::vector<BlasResult> found = ask(alignment, 1);
    if (found.empty()) return std::nullopt;
    return found[0];
  }
  // What the library recommends, the best first.
  std::vector<BlasResult> ask(uint32_t alignment, int wanted) {
    BlasDesc preference = nullptr;
    check(library_.preference_create(&preference), "a preference");
    const uint64_t most = algorithm_ ? workspace_ : kWorkspace;
    library_.preference_set(preference, numbers_.preference_workspace, &most, sizeof most);
    if (numbers_.preference_alignment_a >= 0)
      for (int i = 0; i < 4; ++i)
        library_.preference_set(preference, numbers_.preference_alignment_a + i, &alignment, sizeof alignment);
    std::vector<unsigned char> bytes(numbers_.result_bytes * static_cast<size_t>(wanted));
    int found = 0;
    const int status = library_.heuristic(handle_, desc_, layouts_[0], layouts_[1], layouts_[2], layouts_[2],
                                          preference, wanted, bytes.data(), &found);
    library_.preference_destroy(preference);
    std::vector<BlasResult> results;
    if (status != 0) return results;
    for (int i = 0; i < std::min(found, wanted); ++i) {
      const unsigned char* at = bytes.data() + numbers_.result_bytes * static_cast<size_t>(i);
      int state = 0;
      std::memcpy(&state, at + numbers_.result_state_at, sizeof state);
      if (state != 0) continue;
      BlasResult& r = results.emplace_back();
      std::memcpy(r.data(), at, numbers_.result_bytes);
    }
    return results;
  }

  Product product_;
  DeviceType type_;
  const Blas& library_;
  const BlasNumbers& numbers_;
  BindingId a_, b_;
  BindingId scale_a_, scale_b_;  // of scaled_mm
  Epilogue epilogue_;
  BlasHandle handle_ = nullptr;
  BlasDesc desc_ = nullptr;
  std::array<BlasDesc, 3> layouts_{};
  int compute_ = 0;
  std::array<int, 2> ops_{};
  std::array<int, 3> types_{};
  std::optional<BlasResult> algorithm_, odd_;
  size_t odd_alignment_ = 0, workspace_ = 0;
};

}  // namespace

std::optional<MatrixLayout> layout_of(int64_t lines, int64_t depth, int64_t line_stride, int64_t depth_stride) {
  if ((line_stride == 1 || lines == 1) && (depth_stride >= lines || depth == 1))
    return MatrixLayout{false, lines, depth, depth == 1 ? lines : depth_stride};
  if ((depth_stride == 1 || depth == 1) && (line_stride >= depth || lines == 1))
    return MatrixLayout{true, depth, lines, lines == 1 ? depth : line_stride};
  return std::nullopt;
}

bool has_rounded_products(const GpuDevice& device) {
  const std::string& name = device.arch().name;
  if (!name.starts_with("sm_")) return name == "gfx942";
  return std::atoi(name.c_str() + 3) >= 80;
}

Refusal library_refuses(const Problem& p, const Product& g) {
  if (data_type(g.dtype) < 0) return "no library multiplies this dtype";
  if (g.m * g.n * g.k * g.batches() == 0) return "nothing to multiply";
  if (g.batch.size() > 1) return "the batch dims are not one stride apart";
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (std::max({g.m, g.n, g.k, g.batches()}) > kMost) return "a dim is larger than the library's";
  if (!layout_of(g.n, g.k, g.b_col, g.b_row) || !layout_of(g.m, g.k, g.a_row, g.a_col))
    return "a matrix has no contiguous dim";
  if ((g.c_col != 1 && g.n > 1) || (g.c_row < g.n && g.m > 1)) return "the output's rows are not contiguous";
  std::string why;
  if (blas(p.graph.device.type, &why)) return std::nullopt;
  if (const PlainBlas* plain = vendor(p.graph.device.type).plain_blas; plain && plain->there()) return std::nullopt;
  return why;
}

Refusal library_refuses_epilogue(const Problem& p) {
  std::string why;
  if (!epilogue_of(p, &why)) return why;
  if (p.size() == 1) return std::nullopt;
  if (p.root().outs[0].dtype == DType::float64) return "no epilogues in float64";
  return std::nullopt;
}

Refusal library_has_no_kernel(const Problem& p) {
  std::string why;
  if (!blas(p.graph.device.type, &why)) return why;
  try {
    if (LibraryProduct(p).has_algorithm()) return std::nullopt;
  } catch (const Error& e) {
    return e.what();
  }
  return "the library has no kernel for this problem";
}

std::unique_ptr<Executable> make_library(const Problem& p) { return std::make_unique<LibraryProduct>(p); }

std::vector<std::string> library_algorithms(const Problem& p) {
  std::vector<std::string> names = LibraryProduct(p).algorithms();
  if (!names.empty()) names.erase(names.begin());
  return names;
}

std::unique_ptr<Enumeration> enumerate_library(const Problem& p) {
  class Further final : public Enumeration {
   public:
    explicit Further(const Problem& problem) : product_(problem) {
      std::tie(recommended_, others_) = product_.further_algorithms();
    }
    size_t size() const override { return recommended_.size() + (others_ ? others_->size() : 0); }
    std::optional<std::string> at(size_t place) const override {
      return place < recommended_.size() ? recommended_[place] : others_->at(place - recommended_.size());
    }

   private:
    LibraryProduct product_;  // whose handles others_ has
    std::vector<std::string> recommended_;
    std::unique_ptr<Enumeration> others_;
  };
  return std::make_unique<Further>(p);
}

std::unique_ptr<Executable> make_library(const Problem& p, const std::string& algorithm) {
  auto product = std::make_unique<LibraryProduct>(p);
  product->take(algorithm);
  return product;
}

}  // namespace pyflame::gpu
