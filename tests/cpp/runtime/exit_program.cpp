// A program that uses a device once and ends, in the way that its second argument names. Not a test by itself: tests/faults/test_exit.py
// and tools/short_programs.py start it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "pyflame/ops/ops.h"

namespace {

// Computes while static objects are destroyed.
struct Late {
  pyflame::Tensor x;
  ~Late() {
    if (!x) return;
    try {
      std::puts(x.str().c_str());
    } catch (const pyflame::Error& e) {  // a device whose kernels are not compiled yet
      std::puts(e.what());
    }
  }
};
Late late;

}  // namespace

int main(int argc, char** argv) {
  using namespace pyflame;
  const std::string device = argc > 1 ? argv[1] : "cpu", how = argc > 2 ? argv[2] : "return";
  const Tensor x = ones({3}, DType::float32, parse_device(device));
  std::puts(add(x, 1.0).str().c_str());
  std::fflush(stdout);
  // A test may want the end to come while something is under way that makes this file when it begins.
  if (const char* file = std::getenv("PYFLAME_EXIT_PROGRAM_WAITS_FOR"))
    while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (how == "exit") std::exit(7);
  if (how == "exit-in-thread") std::thread([] { std::exit(8); }).join();
  if (how == "quick_exit") std::quick_exit(9);
  if (how == "static") late.x = ones({2}, DType::float32, x.device());
  return 0;
}
