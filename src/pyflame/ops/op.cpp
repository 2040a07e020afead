#include "pyflame/ops/op.h"

#include <type_traits>

#include "pyflame/base/error.h"

namespace pyflame {

namespace {
template <class A>
constexpr int8_t attr_words() {
  static_assert(std::is_trivially_copyable_v<A>);
  return std::is_empty_v<A> ? 0 : static_cast<int8_t>(sizeof(A) / sizeof(int64_t));
}

constexpr OpInfo kOps[] = {
#define OP(name, cls, arity, attrs) {#name, OpClass::cls, arity, attr_words<attrs>(), attrs::kFields},
#include "pyflame/ops/ops.def"
#undef OP
};
}  // namespace

const OpInfo& op_info(OpId id) { return kOps[static_cast<size_t>(id)]; }

OpId op_from_name(std::string_view name) {
  for (int i = 0; i < kNumOps; ++i)
    if (name == kOps[i].name) return static_cast<OpId>(i);
  PF_FAIL(Key, "op_from_name: no such op; got '{}'", name);
}

}  // namespace pyflame
