// C++ names as a person writes them. Where a symbol refers back to what it already said, the name repeats it, so that 200 characters may
// stand for gigabytes, and the C++ library's demangler has no bound. Symbols with more references than real ones have (13 at most in
// rocBLAS and rocRAND) are not given to it.
#pragma once
#include <string>

namespace pyflame::tools::inspect {

class Demangler {
 public:
  // Symbols that the library does not read (it stops at about 1,000 characters) become their qualified name, "ck::kernel_gemm<…>"; what is no
  // C++ name stays as it is.
  std::string operator()(const std::string& symbol);

 private:
  int absurd_ = 0;  // names that were far too long
};

}  // namespace pyflame::tools::inspect
