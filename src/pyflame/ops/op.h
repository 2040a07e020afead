// Facts about each op from the table ops.def. A fact that depends on the op alone is a trait here, so no other code
// keeps a list of ops; a switch over ops elsewhere computes something.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "pyflame/ops/attrs.h"

namespace pyflame {

enum class OpClass : uint8_t { Source, Unary, Binary, Ternary, Reduce, Other };
constexpr bool is_elementwise(OpClass c) { return c <= OpClass::Ternary; }

// The kind of work, with the names of profiles.
enum class Work : uint8_t { Elementwise, Reduction, Gemm, Convolution, Attention, Normalisation, Memory, Other };
const char* work_name(Work w);

// What mixed precision does with the inputs: Lower casts float32 to the 16-bit type, Wide casts 16-bit types to float32.
enum class Autocast : uint8_t { AsGiven, Lower, Wide };

// The CPU cost of ops without vector code.
constexpr uint8_t kOneByOne = 40;

// The GPU cost of a function that is too large for a kernel that contains all of them.
constexpr uint8_t kLarge = 32;

constexpr int8_t kNoInput = -1, kAnyInput = -2;

struct OpInfo {
  const char* name;
  OpClass cls;
  int8_t arity;  // tensor inputs; -1: any
  int8_t attr_count;
  const char* attr_names;  // comma separated

  // --- traits; the builders below set them
  int8_t param_count = 0;      // elementwise ops: number of params after the tensor inputs
  bool floats_only = false;    // not defined if the first output is an integer
  bool integers_only = false;  // not defined if the output is a float or a bool
  bool bool_result = false;    // the output is bool, whatever the inputs are
  bool exact_result = false;   // each value is one of the inputs' or already rounded: a 16-bit result needs no rounding
  bool index_matters = false;  // the value depends on the element's position. Source: true
  bool may_fail = false;       // on integers: division by zero, a negative power
  bool bits_kept = false;      // takes the bits of its inputs: they are never converted to the output's dtype
  bool layout_kept = false;    // a channels-last image gives a channels-last result. Unary, Binary, Ternary: true
  bool tensors_apart = false;  // updates many tensors: each output depends only on the inputs of its own tensor
  // The input whose memory the output may take, because all implementations read an element before they write it. -1: none
  int8_t overwritten = -1;
  uint8_t cpu_cost = 1;             // an element's cost in vector instructions that take about as long as an addition
  uint8_t gpu_cost = 1;             // the same in a GPU kernel, where exponentials are fast
  Work kind_of_work = Work::Other;  // elementwise ops: Elementwise; reductions: Reduction
  Autocast autocast = Autocast::AsGiven;
  // The input whose small changes can change a float result by much, such as a condition or a divisor. kNoInput: none, the function is continuous wherever it
  // is finite. Tuning judges what follows a product by a sample of its elements, where no op behind it jumps (runtime/sampled_epilogue.h).
  int8_t jumps_in = kAnyInput;

  // A copy with one trait changed. It stands before its callers, or clang 14 does not find its body when it evaluates the table.
  template <class T>
  constexpr OpInfo with(T OpInfo::*trait, T value) const {
    OpInfo r = *this;
    r.*trait = value;
    return r;
  }
  constexpr OpInfo params(int n) const { return with(&OpInfo::param_count, static_cast<int8_t>(n)); }
  constexpr OpInfo floats() const { return with(&OpInfo::floats_only, true); }
  constexpr OpInfo integers() const { return with(&OpInfo::integers_only, true).exact(); }
  constexpr OpInfo gives_bool() const { return with(&OpInfo::bool_result, true).exact(); }
  constexpr OpInfo exact() const { return with(&OpInfo::exact_result, true); }
  constexpr OpInfo uniform() const { return with(&OpInfo::index_matters, false); }
  constexpr OpInfo fails_on_integers() const { return with(&OpInfo::may_fail, true); }
  constexpr OpInfo keeps_bits() const { return with(&OpInfo::bits_kept, true); }
  constexpr OpInfo keeps_layout() const { return with(&OpInfo::layout_kept, true); }
  constexpr OpInfo tensor_by_tensor() const { return with(&OpInfo::tensors_apart, true); }
  constexpr OpInfo overwrites(int input) const { return with(&OpInfo::overwritten, static_cast<int8_t>(input)); }
  constexpr OpInfo cost(uint8_t cpu, uint8_t gpu = 1) const {
    return with(&OpInfo::cpu_cost, cpu).with(&OpInfo::gpu_cost, gpu);
  }
  constexpr OpInfo work(Work w) const { return with(&OpInfo::kind_of_work, w); }
  constexpr OpInfo continuous(int8_t except = kNoInput) const { return with(&OpInfo::jumps_in, except); }
  constexpr bool is_continuous_in(int input) const { return jumps_in != kAnyInput && jumps_in != input; }
  constexpr OpInfo lower() const { return with(&OpInfo::autocast, Autocast::Lower); }
  constexpr OpInfo wide() const { return with(&OpInfo::autocast, Autocast::Wide); }
};

enum class OpId : uint16_t {
#define OP(name, ...) name,
#include "pyflame/ops/ops.def"
};

namespace detail {
template <class A>
constexpr OpInfo op_of_class(const char* name, OpClass cls, int8_t arity) {
  static_assert(std::is_trivially_copyable_v<A>);
  constexpr size_t kBytes = std::is_empty_v<A> ? 0 : sizeof(A);
  constexpr auto kWords = static_cast<int8_t>(kBytes / sizeof(int64_t));
  OpInfo r{name, cls, arity, kWords, A::kFields};
  r.index_matters = cls == OpClass::Source;
  r.layout_kept = is_elementwise(cls) && cls != OpClass::Source;
  if (is_elementwise(cls)) r.kind_of_work = Work::Elementwise;
  if (cls == OpClass::Reduce) r.kind_of_work = Work::Reduction;
  return r;
}
}  // namespace detail

inline constexpr OpInfo kOps[] = {
#define OP(name, cls, arity, attrs, ...) detail::op_of_class<attrs>(#name, OpClass::cls, arity) __VA_ARGS__,
#include "pyflame/ops/ops.def"
};
constexpr int kNumOps = static_cast<int>(std::size(kOps));

constexpr const OpInfo& op_info(OpId id) { return kOps[static_cast<int>(id)]; }
constexpr const char* op_name(OpId id) { return op_info(id).name; }
OpId op_from_name(std::string_view name);  // KeyError

}  // namespace pyflame
