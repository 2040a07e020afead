// What the emulator is told by its environment (README.md lists the variables). Read once; a value that is not understood ends the process,
// because a test that runs with another setting than it asked for proves nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace pyflame::emulator {

enum class Order { ascending, descending, shuffled };
enum class Fault { allocate, host_allocate, copy, launch, compile, load, wait, count };

struct Settings {
  std::string arch = "gfx942";
  unsigned wave = 64;
  int devices = 1;
  int integrated = 0;  // the first so many are inside of the processor
  int broken = -1;     // the one that cannot be opened
  Order order = Order::ascending;
  uint64_t seed = 0;
  size_t memory = size_t{1} << 30;
  bool eager = false, log = false;
  bool bounds = true;  // accesses of kernels that say which tensors they have are checked
  std::string keep;    // folder for the sources of what was compiled
  std::string codes;   // folder for what was compiled: the same text is compiled once
  std::string texts;   // folder for the sources of what would be compiled: no kernel is compiled or run
  uint64_t fail[static_cast<size_t>(Fault::count)] = {};  // 1 + the call that fails, counted from 0; 0: none
  std::string slow_word,
      slow_begun;  // compilations of sources with this word take longer, and make this file when they begin
  unsigned slow_seconds = 0;
  std::string slow_kernel;  // launches of kernels with this word in their name take longer
  unsigned slow_milliseconds = 0;
  uint64_t lost = 0;  // the device is lost from this launch on
};
const Settings& settings();
// Reads the environment again and counts calls from 0; for tests of the emulator itself.
void read_settings_again();

// Counts a call; true when it is the one that must fail.
bool fails(Fault what);

}  // namespace pyflame::emulator
