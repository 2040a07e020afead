// The emulated runtime behind the HIP functions: streams, events, modules, and what may be told about errors.
//
// A stream is a list of work that nothing has run yet. It runs when the program waits for it (or for an event behind it), in order, and no
// earlier: a program that reads a result or reuses a staging buffer without having waited sees that it has not.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "grid.h"
#include "settings.h"

namespace pyflame::emulator {

// hipError_t
enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailure = 719,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kGraphUpdateFailure = 910,
  kUnknown = 999,
};
const char* words_of(int error);

// Keeps the words for the next question about this error, and prints them.
int refuse(int error, const std::string& what);
const std::string& last_words();

struct Function;
struct Module {
  void* library = nullptr;
  std::deque<Function> functions;
};
struct Function {
  const EmulatedEntry* entry = nullptr;
  std::string name;
};

// What a stream does, and what a graph's node is.
struct Work {
  enum class Kind { nothing, kernel, copy, set, host } kind = Kind::nothing;
  Function* function = nullptr;
  Grid grid{};
  std::vector<std::vector<char>> parameters;
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
  bool to_device = true, from_device = true;
  unsigned value = 0, width = 1;
  void (*call)(void*) = nullptr;
  void* data = nullptr;
};
int execute(const Work& work);
int kernel_work(Work& work, Function* f, Grid grid, void** parameters);

struct Graph;
struct Stream;
struct Event {
  Stream* stream = nullptr;  // null: never recorded, which counts as done
  uint64_t at = 0;
  double seconds = 0;
  Graph* captured = nullptr;
  std::vector<size_t> captured_nodes;
};

struct Stream {
  int device = 0;
  std::deque<std::function<int()>> work;
  uint64_t asked = 0, done = 0;  // pieces of work
  int error = 0;                 // the first that failed since the last wait
  Graph* capture = nullptr;      // null: not capturing
  bool capture_broken = false, capture_origin = false;
  std::vector<size_t> capture_after;  // nodes that the next one comes after
};

std::recursive_mutex& lock();
// Adds work; runs it at once where the settings say so.
void put(Stream& stream, std::function<int()> work);
// Runs the stream up to a piece of work; all of it by default. The first error since the last wait.
int drain(Stream& stream, uint64_t upto = UINT64_MAX);
// The same, but the error stays for who waits for the stream.
void run_until(Stream& stream, uint64_t upto = UINT64_MAX);
std::vector<Stream*>& streams();  // that live
void delete_later(Event* event);
double now();

size_t shared_per_group();
int load_module(Module** module, const void* image);
int find_function(Function** function, Module* module, const char* name);

}  // namespace pyflame::emulator
