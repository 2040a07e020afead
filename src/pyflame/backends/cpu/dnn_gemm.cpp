#include "pyflame/backends/cpu/dnn_gemm.h"

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/dnn.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/base/error.h"

namespace pyflame::cpu {

namespace {

using dnn::engine;
using dnn::stream;
using dnnl::memory;

enum ProductSlot : int { kOwnMemory = 4, kTakenRows, kTheirResult };  // of this thread's scratch memory

struct Shape {
  int64_t ta, tb, m, n, k, lda, ldb, ldc;
  auto operator<=>(const Shape&) const = default;
};

memory::desc matrix(int64_t rows, int64_t cols, int64_t ld, bool transposed, memory::data_type type) {
  return {{rows, cols}, type, transposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
}

class Kernel {
 public:
  explicit Kernel(const Shape& s)
      : a_(matrix(s.m, s.k, s.lda, s.ta, memory::data_type::bf16)),
        b_(matrix(s.k, s.n, s.ldb, s.tb, memory::data_type::bf16)),
        c_(matrix(s.m, s.n, s.ldc, false, memory::data_type::f32)) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc d({a_, b_, c_}, attributes, engine());
    name_ = d.impl_info_str();
    own_ = d.scratchpad_desc();
    primitive_ = dnnl::matmul(d);
  }
  const std::string& name() const { return name_; }
  void run(const bfloat16* a, const bfloat16* b, float* c) const {
    const auto of = [](const memory::desc& d, const void* data) {
      return memory(d, engine(), const_cast<void*>(data));
    };
    primitive_.execute(stream(), {{DNNL_ARG_SRC, of(a_, a)},
                                  {DNNL_ARG_WEIGHTS, of(b_, b)},
                                  {DNNL_ARG_DST, of(c_, c)},
                                  {DNNL_ARG_SCRATCHPAD, of(own_, scratch_bytes(kOwnMemory, own_.get_size()))}});
  }

 private:
  memory::desc a_, b_, c_, own_;
  std::string name_;
  dnnl::primitive primitive_;
};

// Making a kernel takes some 0.2 ms; it is kept.
std::shared_ptr<const Kernel> find(const Shape& s) {
  static std::mutex mutex;
  static auto* known = new std::map<Shape, std::shared_ptr<const Kernel>>;
  constexpr size_t kMost = 2048;
  const std::lock_guard lock(mutex);
  if (const auto it = known->find(s); it != known->end()) return it->second;
  if (known->size() >= kMost) known->clear();
  return known->emplace(s, std::make_shared<Kernel>(s)).first->second;
}

// The number of rows for which there is a kernel.
int64_t rounded_up(int64_t rows) { return rows <= 4 ? rows : ceil_div(rows, 8) * 8; }

}  // namespace

bool has_bf16_gemm() {
  static const bool has = [] {
    try {
      use_one_library_thread();
      const std::string name = find({0, 0, 64, 64, 64, 64, 64, 64})->name();
      return name.starts_with("brg") && (name.find("bf16") != name.npos || name.find("amx") != name.npos);
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return has;
}

void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const bfloat16* a, int64_t lda, const bfloat16* b,
          int64_t ldb, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0F);
    return;
  }
  use_one_library_thread();
  const int64_t rows = ta ? m : rounded_up(m);
  try {
    if (rows == m) return find({ta, tb, m, n, k, lda, ldb, ldc})->run(a, b, c);
    auto* taken = scratch<bfloat16>(kTakenRows, rows * k);
    for (int64_t i = 0; i < m; ++i) std::copy_n(a + i * lda, k, taken + i * k);
    std::fill_n(taken + m * k, (rows - m) * k, bfloat16());
    auto* result = scratch<float>(kTheirResult, rows * n);
    find({ta, tb, rows, n, k, k, ldb, n})->run(taken, b, result);
    for (int64_t i = 0; i < m; ++i) std::copy_n(result + i * n, n, c + i * ldc);
  } catch (const dnnl::error& e) {
    PF_FAIL(Runtime, "matmul: oneDNN failed; got '{}' for {} x {} x {}; expected a product", e.what(), m, k, n);
  }
}

}  // namespace pyflame::cpu
