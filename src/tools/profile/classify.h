// The kind of work of a kernel. A name that a library gave to a kernel says what it does. For other names the operator
// that launched it decides, then what called the operator, and last the words in the name. The tables are in
// classify_names.cpp.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pyflame::tools::profile {

enum class Category : uint8_t {
  gemm,
  convolution,
  attention,
  normalisation,
  elementwise,
  reduction,
  memory,
  communication,
  other
};
constexpr int kCategories = 9;
const char* name_of(Category c);

struct KernelClass {
  Category category = Category::other;
  std::string_view library;  // "Tensile", "MIOpen", "Triton", …; empty: not known
  bool by_operator = false;  // the name alone did not tell
};

// `callers` are what launched the kernel, innermost first: the operator ("aten::mm"), the operators, modules and functions
// around it.
KernelClass classify_kernel(std::string_view name, std::span<const std::string_view> callers = {});
// The kind of work of an operator; `other` if it is unknown.
Category classify_op(std::string_view op);

// Whether PyTorch's TunableOp can choose another kernel for it: a product of rocBLAS or hipBLASLt that an operator of
// PyTorch launched, or an unknown one (`op` is empty, or says nothing).
bool reaches_tunable_op(const KernelClass& kernel, std::string_view op);

// Whether the name of a product says that its inputs have 8 bits or fewer.
bool few_bits(std::string_view kernel);

// A name for a table: without return type, arguments and template arguments, but with what distinguishes the kernels of
// a family ("vectorized_elementwise_kernel [AddFunctor]", "Cijk_Alik_Bljk_HHS_BH MT128x128x32 MI16x16x1").
std::string short_kernel_name(std::string_view name);

}  // namespace pyflame::tools::profile
