// pf.explain(): what the engine did with ops between start and stop: windows and why they were cut, fused groups,
// selected implementations, refusals, planned bytes, cache hits.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "pyflame/compile/program.h"

namespace pyflame {

// What ran: programs, and the windows that ran them.
struct Explained {
  // A program, with the number of its runs. It is a copy, whose ops have the lines of the first window here: the program
  // in the cache has those of the window that it was made for.
  struct Run {
    std::shared_ptr<const Program> program;
    uint64_t count = 0;
    std::string replay;                   // one line on its replay; or empty
    std::vector<RewriteNote> notes = {};  // on rewrites
    size_t kept_notes = 0;                // so many of them are on constant weights
  };
  // Windows that were cut for one reason at one place and ran one program.
  struct Window {
    size_t program = 0;  // index into programs
    const char* reason = "";
    std::string cause;    // what needed the values: "item()"; or empty
    std::string place;    // the line of the program that cut it; or empty
    std::string last_op;  // the op before the cut, and its line
    bool cached = false;
    double plan_us = 0;
    uint64_t count = 0;
    // What these cuts keep apart, from the windows that follow: as one window, both would be grouped in another way.
    int64_t saves = 0;   // bytes of memory traffic
    std::string across;  // the ops that would be in one kernel; or empty
  };
  std::vector<Run> programs;
  std::vector<Window> windows;
  std::vector<uint32_t> order;  // of windows, as they ran; a limited number
  uint64_t total = 0;           // windows
  uint64_t left_out = 0;        // windows of further programs than are kept
};

// Of this thread, or of all threads. RuntimeError if an explanation of these is under way.
void explain_begin(bool all_threads);
// Ends it, and returns what was found.
Explained explain_end(bool all_threads);

// The same as text, with each window as often as it ran.
void explain_start();
std::string explain_stop();

}  // namespace pyflame
