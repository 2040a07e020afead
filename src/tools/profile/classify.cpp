// Decides the kind of work of a kernel: by a name that a library gave it, by the operator that launched it, then by common words. See classify.h.
#include "tools/profile/classify.h"

#include <algorithm>
#include <cctype>

#include "tools/base/text.h"
#include "tools/profile/classify_names.h"

namespace pyflame::tools::profile {

namespace {

// The text in which patterns are looked for.
std::string searched(std::string_view name) {
  constexpr size_t kMost = 4096;
  std::string text = lower(name.substr(0, kMost));
  // The name of this library contains the word for products.
  for (size_t at = text.find("fbgemm"); at != std::string::npos; at = text.find("fbgemm", at)) text.erase(at, 6);
  return text;
}

// What TorchInductor fuses without computing anything: moves, and operators that ran before as kernels of their own.
// clang-format off
constexpr std::string_view kMoves[] = {
    "_unsafe_view", "unsafe_view", "view", "_reshape_alias", "reshape", "transpose", "permute", "expand", "unsqueeze",
    "squeeze", "clone", "copy_", "copy", "_to_copy", "to_copy", "cat", "stack", "split_with_sizes", "split", "unbind",
    "slice", "select", "as_strided", "t", "constant_pad_nd", "empty_like", "empty", "zeros_like", "zeros",
    "ones_like", "ones", "full_like", "full", "fill", "index_put", "index", "gather", "embedding", "addmm", "bmm",
    "mm", "flip", "roll", "repeat", "lift_fresh", "detach", "alias", "convolution"};
// clang-format on

// TorchInductor names a kernel after its kind and after all operators near it: triton_poi_fused_addmm_gelu_view_3 computes the gelu that follows a product, and no product. So the kind decides.
Category inductor_category(std::string_view name) {
  const auto is = [&](std::string_view kind) { return name.substr(7).starts_with(kind); };
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (is("tem_")) {
    if (has("attention")) return Category::attention;
    return has("conv") ? Category::convolution : Category::gemm;
  }
  if (has("rsqrt") || has("_norm") || has("layernorm")) return Category::normalisation;
  if (is("red_") || is("per_") || is("spl_")) return Category::reduction;
  // What remains after all words for moves is computed.
  std::string_view rest = name.substr(std::min(name.size(), name.find("fused_") + 6));
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find('_'));
    size_t length =
        word.empty() || std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; })
            ? word.size()
            : 0;
    for (std::string_view move : kMoves)
      if (rest.starts_with(move) && (rest.size() == move.size() || rest[move.size()] == '_' || move.ends_with('_')))
        length = std::max(length, move.size());
    if (length == 0 && !word.empty()) return Category::elementwise;
    rest.remove_prefix(std::min(rest.size(), length + 1));
  }
  return Category::memory;
}

bool by_inductor(std::string_view name) {
  return name.starts_with("triton_") && name.find("fused_") != std::string_view::npos;
}

}  // namespace

const char* name_of(Category c) {
  static constexpr const char* names[] = {"GEMM",      "convolution", "attention",     "normalisation", "elementwise",
                                          "reduction", "memory",      "communication", "other"};
  return names[static_cast<size_t>(c)];
}

Category classify_op(std::string_view op) {
  const detail::Pattern* p = detail::find_operator(searched(op));
  return p == nullptr ? Category::other : p->category;
}

KernelClass classify_kernel(std::string_view name, std::span<const std::string_view> callers) {
  const std::string text = searched(name);
  if (by_inductor(text)) return {inductor_category(text), "Triton", false};
  KernelClass k;
  Category asked = Category::other;
  for (size_t i = 0; i < callers.size() && asked == Category::other; ++i) asked = classify_op(callers[i]);
  if (const detail::Pattern* p = detail::find_known_name(text)) {
    k.category = p->category;
    k.library = p->library.empty() ? detail::library_in(text) : p->library;
    // A convolution may run as a GEMM of the BLAS library, and a normalisation as several reductions. The operator tells.
    const Category own = callers.empty() ? Category::other : classify_op(callers.front());
    k.by_operator = (k.category == Category::gemm && own == Category::convolution) ||
                    (k.category == Category::reduction && own == Category::normalisation);
    if (k.by_operator) k.category = own;
    return k;
  }
  k.library = detail::library_in(text);
  k.by_operator = asked != Category::other;
  k.category = asked;
  if (const detail::Pattern* p = k.by_operator ? nullptr : detail::find_word(text)) {
    k.category = p->category;
    if (k.library.empty()) k.library = p->library;
  }
  return k;
}

bool few_bits(std::string_view kernel) {
  static constexpr std::string_view words[] = {"fp8",  "f8f8", "f8bs", "f8ss", "f8hs", "b8f8", "f8b8", "b8bs",
                                               "e4m3", "e5m2", "fp4",  "e2m1", "int8", "int4", "_i8",  "i8ii",
                                               "a8w8", "a4w4", "w4a",  "w8a",  "4bit", "gptq", "awq"};
  const std::string text = searched(kernel);
  return std::any_of(std::begin(words), std::end(words),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

bool reaches_tunable_op(const KernelClass& k, std::string_view op) {
  if (k.category != Category::gemm) return false;
  if (k.library != "Tensile" && k.library != "rocBLAS" && k.library != "hipBLASLt") return false;
  // An operator of an extension calls the library itself. A graph that is replayed has no operator.
  return op.starts_with("aten::") || classify_op(op) != Category::gemm;
}

}  // namespace pyflame::tools::profile
