// Linked into the program of a wheel (--wrap=main). A program that was linked with glibc 2.34 or later leaves it to the C library to run the
// constructors of its own static objects. Older C libraries do not do so: they are run here.
extern "C" {
int __real_main(int argc, char** argv, char** environment);
using Constructor = void (*)(int, char**, char**);
extern __attribute__((visibility("hidden"))) Constructor __init_array_start[], __init_array_end[];
}

namespace {
bool constructed = false;
[[gnu::constructor]] void note() { constructed = true; }
}  // namespace

extern "C" int __wrap_main(int argc, char** argv, char** environment) {
  if (!constructed) {
    for (Constructor* f = __init_array_start; f != __init_array_end; ++f) {
      (*f)(argc, argv, environment);
    }
  }
  return __real_main(argc, argv, environment);
}
