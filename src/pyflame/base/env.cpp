// An empty value counts as unset, so that `PYFLAME_X= program` means the default.
#include "pyflame/base/env.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <set>

#include "pyflame/base/error.h"

namespace pyflame::env {

namespace {

struct Read {
  std::mutex mutex;
  std::set<std::string> variables;
};

Read& variables_read() {
  static auto* all = new Read;  // leaked: threads outlive static destruction
  return *all;
}

std::optional<std::string> read(const char* variable) {
  {
    Read& all = variables_read();
    std::lock_guard lock(all.mutex);
    all.variables.insert(variable);
  }
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string(text);
}

// The whole of [first, last) as a decimal number.
std::optional<int64_t> whole_number(const char* first, const char* last) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(first, last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

int suffix_shift(char suffix) {
  switch (suffix) {
    case 'K':
    case 'k': return 10;
    case 'M':
    case 'm': return 20;
    case 'G':
    case 'g': return 30;
    case 'T':
    case 't': return 40;
    default: return 0;
  }
}

constexpr Variable kTable[] = {
#define ENV_INT(variable, function, default_value, least, greatest, doc) {#variable, "int", #default_value, doc},
#define ENV_BOOL(variable, function, default_value, doc) {#variable, "bool", default_value ? "1" : "0", doc},
#define ENV_BYTES(variable, function, default_value, doc) {#variable, "bytes", #default_value, doc},
#define ENV_REAL(variable, function, default_value, least, greatest, doc) {#variable, "real", #default_value, doc},
// Leaked, as all that a computation needs: programs compute in exit handlers, and threads outlive static destruction.
#define ENV_CHOICE(variable, function, default_value, choices, doc) {#variable, "choice", default_value, doc},
#define ENV_PATH(variable, function, default_value, doc) {#variable, "path", default_value, doc},
#define ENV_TEXT(variable, function, default_value, doc) {#variable, "text", default_value, doc},
#include "pyflame/base/env.def"
#undef ENV_INT
#undef ENV_BOOL
#undef ENV_BYTES
#undef ENV_REAL
#undef ENV_CHOICE
#undef ENV_PATH
#undef ENV_TEXT
};

}  // namespace

bool was_read(const std::string& variable) {
  Read& all = variables_read();
  std::lock_guard lock(all.mutex);
  return all.variables.count(variable) != 0;
}

int64_t parse_int(const char* variable, const std::string& text, int64_t least, int64_t greatest) {
  const auto value = whole_number(text.data(), text.data() + text.size());
  PF_CHECK(value && *value >= least && *value <= greatest, Value,
           "{}: not a valid value; got '{}'; expected a whole number from {} to {}", variable, text, least, greatest);
  return *value;
}

bool parse_bool(const char* variable, const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (const char* yes : {"1", "true", "on", "yes"})
    if (lower == yes) return true;
  for (const char* no : {"0", "false", "off", "no"})
    if (lower == no) return false;
  PF_FAIL(Value, "{}: not a valid value; got '{}'; expected 0 or 1", variable, text);
}

int64_t parse_bytes(const char* variable, const std::string& text) {
  const int shift = text.empty() ? 0 : suffix_shift(text.back());
  const auto value = whole_number(text.data(), text.data() + text.size() - (shift != 0 ? 1 : 0));
  PF_CHECK(value && *value >= 0 && *value <= (std::numeric_limits<int64_t>::max() >> shift), Value,
           "{}: not a valid value; got '{}'; expected a number of bytes, with an optional suffix K, M, G or T",
           variable, text);
  return *value << shift;
}

double parse_real(const char* variable, const std::string& text, double least, double greatest) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  PF_CHECK(error == std::errc() && end == text.data() + text.size() && value >= least && value <= greatest, Value,
           "{}: not a valid value; got '{}'; expected a number from {} to {}", variable, text, least, greatest);
  return value;
}

std::string parse_choice(const char* variable, const std::string& text, const std::string& choices) {
  PF_CHECK(text.find('|') == std::string::npos && ("|" + choices + "|").find("|" + text + "|") != std::string::npos,
           Value, "{}: not a valid value; got '{}'; expected one of {}", variable, text, choices);
  return text;
}

namespace {

// As in a shell: HOME, else what the system knows of this user. Services and cron start programs without HOME.
std::string home_folder() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  passwd entry{}, *found = nullptr;
  std::array<char, 16384> memory;
  return getpwuid_r(getuid(), &entry, memory.data(), memory.size(), &found) == 0 && found ? found->pw_dir : "";
}

}  // namespace

std::string parse_path(const char* variable, const std::string& text) {
  if (text != "~" && text.rfind("~/", 0) != 0) return text;
  const std::string home = home_folder();
  PF_CHECK(!home.empty(), Value,
           "{}: '~' has no meaning because HOME is not set, and this user has no home folder; got '{}'; expected a "
           "full path",
           variable, text);
  return home + text.substr(1);
}

// An exception leaves the static uninitialized, so the next call raises again.
#define ENV_INT(variable, function, default_value, least, greatest, doc)                   \
  int64_t function() {                                                                     \
    static const int64_t value = [] {                                                      \
      const auto text = read(#variable);                                                   \
      return text ? parse_int(#variable, *text, least, greatest) : int64_t{default_value}; \
    }();                                                                                   \
    return value;                                                                          \
  }
#define ENV_BOOL(variable, function, default_value, doc)          \
  bool function() {                                               \
    static const bool value = [] {                                \
      const auto text = read(#variable);                          \
      return text ? parse_bool(#variable, *text) : default_value; \
    }();                                                          \
    return value;                                                 \
  }
#define ENV_BYTES(variable, function, default_value, doc)                   \
  int64_t function() {                                                      \
    static const int64_t value = [] {                                       \
      const auto text = read(#variable);                                    \
      return text ? parse_bytes(#variable, *text) : int64_t{default_value}; \
    }();                                                                    \
    return value;                                                           \
  }
#define ENV_REAL(variable, function, default_value, least, greatest, doc)                  \
  double function() {                                                                      \
    static const double value = [] {                                                       \
      const auto text = read(#variable);                                                   \
      return text ? parse_real(#variable, *text, least, greatest) : double{default_value}; \
    }();                                                                                   \
    return value;                                                                          \
  }
// Leaked, as all that a computation needs: programs compute in exit handlers, and threads outlive static destruction.
#define ENV_CHOICE(variable, function, default_value, choices, doc)                                 \
  const std::string& function() {                                                                   \
    static const auto* value =                                                                      \
        new std::string(parse_choice(#variable, read(#variable).value_or(default_value), choices)); \
    return *value;                                                                                  \
  }
#define ENV_PATH(variable, function, default_value, doc)                                                        \
  const std::string& function() {                                                                               \
    static const auto* value = new std::string(parse_path(#variable, read(#variable).value_or(default_value))); \
    return *value;                                                                                              \
  }
#define ENV_TEXT(variable, function, default_value, doc)                                 \
  const std::string& function() {                                                        \
    static const auto* value = new std::string(read(#variable).value_or(default_value)); \
    return *value;                                                                       \
  }
#include "pyflame/base/env.def"
#undef ENV_INT
#undef ENV_BOOL
#undef ENV_BYTES
#undef ENV_REAL
#undef ENV_CHOICE
#undef ENV_PATH
#undef ENV_TEXT

std::span<const Variable> table() { return kTable; }

}  // namespace pyflame::env
