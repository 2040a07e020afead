// Readable C++ names. A mangled symbol can refer back to its earlier parts, and the readable name repeats them, so 200
// characters may expand to gigabytes, and the C++ library's demangler has no limit. So symbols with more such
// references than real ones have (13 at most in rocBLAS and rocRAND) are not given to it.
#pragma once
#include <string>

namespace pyflame::tools::inspect {

class Demangler {
 public:
  // If the library cannot read a symbol (it stops at about 1,000 characters), the result is its qualified name,
  // "ck::kernel_gemm<…>". Text that is not a C++ symbol is returned unchanged.
  std::string operator()(const std::string& symbol);

 private:
  int absurd_ = 0;  // names that were far too long
};

}  // namespace pyflame::tools::inspect
