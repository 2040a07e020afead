// The environment variables that the core reads, as typed functions generated from env.def. A variable is read once, at its first
// use; a malformed value raises instead of being ignored, because a misspelt setting that does nothing is worse than an error.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace pyflame::env {

#define ENV_INT(variable, function, ...) int64_t function();
#define ENV_BOOL(variable, function, ...) bool function();
#define ENV_BYTES(variable, function, ...) int64_t function();
#define ENV_REAL(variable, function, ...) double function();
#define ENV_CHOICE(variable, function, ...) const std::string& function();
#define ENV_PATH(variable, function, ...) const std::string& function();
#define ENV_TEXT(variable, function, ...) const std::string& function();
#include "pyflame/base/env.def"
#undef ENV_INT
#undef ENV_BOOL
#undef ENV_BYTES
#undef ENV_REAL
#undef ENV_CHOICE
#undef ENV_PATH
#undef ENV_TEXT

struct Variable {
  const char* name;
  const char* type;           // "int", "bool", "bytes", "real", "choice", "path", "text"
  const char* default_value;  // as one would write it
  const char* doc;
};
std::span<const Variable> table();

// Whether the variable's value was taken already, so that a change of the environment has no effect any more.
bool was_read(const std::string& variable);

// The parsers behind the functions above. ErrorKind::Value names variable, value and expectation.
int64_t parse_int(const char* variable, const std::string& text, int64_t least, int64_t greatest);
bool parse_bool(const char* variable, const std::string& text);
int64_t parse_bytes(const char* variable, const std::string& text);
double parse_real(const char* variable, const std::string& text, double least, double greatest);
// `choices`: separated by "|".
std::string parse_choice(const char* variable, const std::string& text, const std::string& choices);
std::string parse_path(const char* variable, const std::string& text);

}  // namespace pyflame::env
