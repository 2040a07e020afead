// C++ names as a person writes them. A symbol of 200 characters may stand for gigabytes (each substitution doubles what came before),
// and the C++ library's demangler has no bound. A symbol that could do that is read while the process may not take much more memory,
// so that it fails and stays as it is; no other thread should run meanwhile.
#pragma once
#include <string>

namespace pyflame::inspect {

class Demangler {
 public:
  // Symbols beyond what the library reads (about 1,000 characters) become their qualified name, "ck::kernel_gemm<…>"; what is no
  // C++ name stays as it is.
  std::string operator()(const std::string& symbol);

 private:
  int failures_ = 0;
};

}  // namespace pyflame::inspect
