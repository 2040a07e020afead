// Links the installed library, uses it through its headers and checks what it says.
#include <cstdio>
#include <string>

#include "pyflame/base/env.h"
#include "pyflame/ops/op.h"
#include "pyflame/version.h"

int main() {
  const auto& info = pyflame::op_info(pyflame::op_from_name("matmul"));
  if (std::string(info.name) != "matmul") {
    std::fprintf(stderr, "op_info: got '%s'; expected 'matmul'\n", info.name);
    return 1;
  }
  std::printf("pyflame %s, window %lld\n", PYFLAME_VERSION, static_cast<long long>(pyflame::env::window()));
  return 0;
}
