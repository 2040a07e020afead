// Facts about each op from the op table: id, name, class, arity, names of attributes.
#pragma once
#include <cstdint>
#include <string_view>

#include "pyflame/ops/attrs.h"

namespace pyflame {

enum class OpClass : uint8_t { Source, Unary, Binary, Ternary, Reduce, Other };

enum class OpId : uint16_t {
#define OP(name, cls, arity, attrs) name,
#include "pyflame/ops/ops.def"
#undef OP
};

struct OpInfo {
  const char* name;
  OpClass cls;
  int8_t arity;  // tensor inputs; -1: any
  int8_t attr_count;
  const char* attr_names;  // comma separated
};

constexpr int kNumOps = 0
#define OP(name, cls, arity, attrs) +1
#include "pyflame/ops/ops.def"
#undef OP
    ;

const OpInfo& op_info(OpId id);
inline const char* op_name(OpId id) { return op_info(id).name; }
OpId op_from_name(std::string_view name);  // KeyError

constexpr bool is_elementwise(OpClass c) { return c <= OpClass::Ternary; }

}  // namespace pyflame
