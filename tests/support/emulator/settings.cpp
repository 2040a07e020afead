// See settings.h.
#include "settings.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pyflame::emulator {

namespace {

[[noreturn]] void refuse(const char* variable, const std::string& value, const char* expected) {
  std::fprintf(stderr, "emulator: %s: got '%s'; expected %s\n", variable, value.c_str(), expected);
  std::_Exit(2);
}

std::string text(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value && *value ? value : otherwise;
}

uint64_t number(const char* variable, const std::string& value) {
  char* end = nullptr;
  const uint64_t n = std::strtoull(value.c_str(), &end, 10);
  uint64_t unit = 1;
  if (end != value.c_str() && *end) {
    const char* at = std::strchr("KMG", *end);
    if (at && end[1] == 0) unit = uint64_t{1} << (10 * (at - &"KMG"[0] + 1));
    else unit = 0;
  }
  if (value.empty() || end == value.c_str() || unit == 0) refuse(variable, value, "a number, K, M or G may follow");
  return n * unit;
}

constexpr const char* kFaults[] = {"allocate", "host_allocate", "copy", "launch", "compile", "load", "wait"};
static_assert(sizeof kFaults / sizeof *kFaults == static_cast<size_t>(Fault::count));

// "launch:3,compile:1": the third launch fails, the first compilation fails.
void read_faults(Settings& s) {
  const char* variable = "PYFLAME_EMULATOR_FAIL";
  std::string rest = text(variable, "");
  while (!rest.empty()) {
    const std::string item = rest.substr(0, rest.find(','));
    rest = item.size() == rest.size() ? "" : rest.substr(item.size() + 1);
    const size_t colon = item.find(':');
    if (colon == std::string::npos) refuse(variable, item, "what:n");
    const std::string what = item.substr(0, colon);
    const uint64_t n = number(variable, item.substr(colon + 1));
    if (n == 0) refuse(variable, item, "calls counted from 1");
    bool known = what == "lost";
    if (known) s.lost = n;
    for (size_t i = 0; i < static_cast<size_t>(Fault::count); ++i)
      if (what == kFaults[i]) known = true, s.fail[i] = n;
    if (!known) refuse(variable, item, "allocate, host_allocate, copy, launch, compile, load, wait or lost");
  }
}

Settings read() {
  Settings s;
  s.arch = text("PYFLAME_EMULATOR_ARCH", "gfx942");
  if (s.arch.rfind("gfx", 0) != 0 || s.arch.size() < 6)
    refuse("PYFLAME_EMULATOR_ARCH", s.arch, "an architecture such as gfx942 or gfx1100");
  s.wave = s.arch.rfind("gfx9", 0) == 0 ? 64 : 32;
  s.devices = static_cast<int>(number("PYFLAME_EMULATOR_DEVICES", text("PYFLAME_EMULATOR_DEVICES", "1")));
  s.integrated = static_cast<int>(number("PYFLAME_EMULATOR_INTEGRATED", text("PYFLAME_EMULATOR_INTEGRATED", "0")));
  if (const std::string broken = text("PYFLAME_EMULATOR_BROKEN", ""); !broken.empty())
    s.broken = static_cast<int>(number("PYFLAME_EMULATOR_BROKEN", broken));
  const std::string order = text("PYFLAME_EMULATOR_ORDER", "ascending");
  if (order == "descending") s.order = Order::descending;
  else if (order != "ascending") s.order = Order::shuffled, s.seed = number("PYFLAME_EMULATOR_ORDER", order);
  s.memory = number("PYFLAME_EMULATOR_MEMORY", text("PYFLAME_EMULATOR_MEMORY", "1G"));
  s.eager = text("PYFLAME_EMULATOR_EAGER", "0") == "1";
  s.log = text("PYFLAME_EMULATOR_LOG", "0") == "1";
  s.bounds = text("PYFLAME_EMULATOR_BOUNDS", "1") != "0";
  s.keep = text("PYFLAME_EMULATOR_KEEP", "");
  s.codes = text("PYFLAME_EMULATOR_CODES", "");
  s.texts = text("PYFLAME_EMULATOR_TEXTS", "");
  read_faults(s);
  if (const std::string slow = text("PYFLAME_EMULATOR_SLOW_COMPILE", ""); !slow.empty()) {
    const size_t first = slow.find(':'), second = slow.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      refuse("PYFLAME_EMULATOR_SLOW_COMPILE", slow, "word:seconds:file");
    s.slow_word = slow.substr(0, first);
    s.slow_seconds =
        static_cast<unsigned>(number("PYFLAME_EMULATOR_SLOW_COMPILE", slow.substr(first + 1, second - first - 1)));
    s.slow_begun = slow.substr(second + 1);
  }
  if (const std::string slow = text("PYFLAME_EMULATOR_SLOW_KERNEL", ""); !slow.empty()) {
    const size_t colon = slow.find(':');
    if (colon == std::string::npos) refuse("PYFLAME_EMULATOR_SLOW_KERNEL", slow, "word:milliseconds");
    s.slow_kernel = slow.substr(0, colon);
    s.slow_milliseconds = static_cast<unsigned>(number("PYFLAME_EMULATOR_SLOW_KERNEL", slow.substr(colon + 1)));
  }
  return s;
}

}  // namespace

namespace {
Settings& current() {
  static Settings s = read();
  return s;
}
std::atomic<uint64_t> calls[static_cast<size_t>(Fault::count)];
}  // namespace

const Settings& settings() { return current(); }

void read_settings_again() {
  current() = read();
  for (auto& c : calls) c = 0;
}

bool fails(Fault what) {
  const auto i = static_cast<size_t>(what);
  return ++calls[i] == settings().fail[i];
}

}  // namespace pyflame::emulator
