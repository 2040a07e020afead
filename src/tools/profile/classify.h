// The kind of work of a kernel, from its name, or from the operator that launched it if the name does not tell. There
// is one table of patterns. Compilers, libraries and frameworks choose the names, so the table is a list of
// observations, most specific first.
#pragma once
#include <cstdint>
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

// `op` is the name of the operator that launched the kernel ("aten::mm"), or empty.
KernelClass classify_kernel(std::string_view name, std::string_view op = {});
// The kind of work of an operator; `other` if it is unknown.
Category classify_op(std::string_view op);

// A name for a table: without return type, arguments and template arguments, but with what distinguishes the kernels of
// a family ("vectorized_elementwise_kernel [AddFunctor]", "Cijk_Alik_Bljk_HHS_BH MT128x128x32 MI16x16x1").
std::string short_kernel_name(std::string_view name);

}  // namespace pyflame::tools::profile
