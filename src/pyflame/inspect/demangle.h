// C++ names as a person writes them. A symbol of 200 characters may stand for gigabytes (each substitution doubles what came before),
// and the C++ library's demangler has no bound: for the time in which a Demangler lives, the process may not take much more memory,
// so that such a symbol fails and stays as it is. Nothing else should run meanwhile.
#pragma once
#include <sys/resource.h>

#include <string>

namespace pyflame::inspect {

class Demangler {
 public:
  Demangler();
  ~Demangler();
  Demangler(const Demangler&) = delete;
  Demangler& operator=(const Demangler&) = delete;

  // Symbols beyond what the library reads (about 1,000 characters) become their qualified name, "ck::kernel_gemm<…>"; what is no
  // C++ name stays as it is.
  std::string operator()(const std::string& symbol);

 private:
  rlimit before_{};
  bool limited_ = false;
  int failures_ = 0;
};

}  // namespace pyflame::inspect
