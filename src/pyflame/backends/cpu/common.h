// What all CPU kernels of this folder need besides their arithmetic. Kernels see only contiguous arrays of their
// computation type (float, or double for float64). In<T> and Out<T> provide that for any dtype and any strides. They
// cost nothing if the operand already has this form; otherwise, they copy through the workspace.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "pyflame/backends/backend.h"
#include "pyflame/base/threads.h"

namespace pyflame::cpu {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Scratch memory of the calling thread, aligned to 64 bytes; it grows as needed and is kept. `slot` separates nested
// users.
constexpr int kScratchSlots = 8;
void* scratch_bytes(int slot, size_t nbytes);
template <class T>
T* scratch(int slot, int64_t count) {
  return static_cast<T*>(scratch_bytes(slot, static_cast<size_t>(count) * sizeof(T)));
}

// The least length of a parallel chunk (in elements touched), so that using another thread pays off.
constexpr int64_t kGrainElements = 16384;

class WorkspacePlan {
 public:
  size_t take(size_t nbytes) {
    const size_t at = size_;
    size_ += (nbytes + 63) / 64 * 64;
    return at;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

// Strided memory of any dtype to or from a contiguous array of float or double; parallel over long inputs.
template <class T>
void load_strided(const void* src, DType dtype, const Dims& shape, const Dims& strides, T* dst);
template <class T>
void store_strided(const T* src, void* dst, DType dtype, const Dims& shape, const Dims& strides);
// The same for one contiguous run, on the calling thread.
template <class T>
void load_run(const void* src, DType dtype, int64_t n, T* dst);
template <class T>
void store_run(const T* src, void* dst, DType dtype, int64_t n);

template <class T>
constexpr DType compute_dtype() {
  return std::is_same_v<T, double> ? DType::float64 : DType::float32;
}
// The dtype of operands whose elements are T in memory; compute_dtype, but for kernels that read bfloat16.
template <class T>
constexpr DType stored_dtype() {
  return std::is_same_v<T, bfloat16> ? DType::bfloat16 : compute_dtype<T>();
}

template <class T>
class In {
 public:
  In() = default;
  In(const Operand& o, WorkspacePlan& ws) : o_(o), direct_(o.contiguous && o.dtype == compute_dtype<T>()) {
    if (!direct_) offset_ = ws.take(static_cast<size_t>(o.numel()) * sizeof(T));
  }
  int64_t numel() const { return o_.numel(); }
  const Operand& operand() const { return o_; }
  bool direct() const { return direct_; }
  // Copies the operand into the workspace if needed; call once per run.
  const T* get(const RunContext& ctx) const {
    if (direct_) return ctx.ptr<const T>(o_);
    T* dst = reinterpret_cast<T*>(static_cast<char*>(ctx.workspace) + offset_);
    load_strided(ctx.ptr<const void>(o_), o_.dtype, o_.shape, o_.strides, dst);
    return dst;
  }

 private:
  Operand o_;
  bool direct_ = true;
  size_t offset_ = 0;
};

template <class T>
class Out {
 public:
  Out() = default;
  Out(const Operand& o, WorkspacePlan& ws) : o_(o), direct_(o.contiguous && o.dtype == compute_dtype<T>()) {
    if (!direct_) offset_ = ws.take(static_cast<size_t>(o.numel()) * sizeof(T));
  }
  int64_t numel() const { return o_.numel(); }
  const Operand& operand() const { return o_; }
  T* begin(const RunContext& ctx) const {
    if (direct_) return ctx.ptr<T>(o_);
    return reinterpret_cast<T*>(static_cast<char*>(ctx.workspace) + offset_);
  }
  // Copies to the operand if needed; call after everything is computed.
  void finish(const RunContext& ctx) const {
    if (!direct_) store_strided(begin(ctx), ctx.ptr<void>(o_), o_.dtype, o_.shape, o_.strides);
  }

 private:
  Operand o_;
  bool direct_ = true;
  size_t offset_ = 0;
};

// Base class of the executables here: a workspace whose parts are reserved while the members are constructed.
class Exec : public Executable {
 public:
  size_t workspace() const override { return ws_.size(); }

 protected:
  template <class T>
  T* at(const RunContext& ctx, size_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(ctx.workspace) + offset);
  }
  WorkspacePlan ws_;
};

// E<T>(node) with T the computation type of the first floating point input.
template <template <class> class E>
std::unique_ptr<Executable> make_by_type(const Problem& p) {
  for (const Operand& o : p.root().ins) {
    if (o.is_param || !is_float(o.dtype)) continue;
    if (o.dtype == DType::float64) return std::make_unique<E<double>>(p.root());
    break;
  }
  return std::make_unique<E<float>>(p.root());
}

// The refusals that most kernels share.
inline Refusal accept_single(const Problem& p) {
  if (p.group.kind != GroupKind::Single) return "takes single nodes only";
  return {};
}
// Tensor inputs and outputs must be floating point (except int64 and bool ones, which are indices and masks).
Refusal accept_float(const Problem& p);

// The implementations of an op, best first, in the file of its family; the reference comes after them: matmul_impls(), sort_impls(), ...
#define OP(...)
#define KERNEL(name, ...) std::span<const Impl> name##_impls();
#include "pyflame/ops/ops.def"

// Whether the result of a convolution is best made channels-last whatever its inputs' layout.
bool prefers_channels_last(const ImageResult& r);

}  // namespace pyflame::cpu
