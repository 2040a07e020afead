// The `pyflame` program of a wheel: starts the function of cli/main.cpp, which is in the Python module PYFLAME_MODULE in the folder above. So a wheel has
// the engine once. This program is linked with the libraries that only the program needs; no interpreter is loaded (weak_symbols.py).
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  using Program = int(int, char**);
  void* module = dlopen("$ORIGIN/../" PYFLAME_MODULE, RTLD_LAZY);
  auto* program = module ? reinterpret_cast<Program*>(dlsym(module, "pyflame_program")) : nullptr;
  if (!program) {
    std::fprintf(stderr, "pyflame: the module of the package cannot be loaded; got %s; hint: install PyFlame again\n",
                 dlerror());
    return 1;
  }
  return program(argc, argv);
}
