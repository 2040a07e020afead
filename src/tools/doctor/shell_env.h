// The environment that a file of settings makes: shell scripts, .env files, Dockerfiles, systemd units, compose files and manifests
// (YAML), and guides with code blocks (Markdown, reStructuredText). Lines are read, never executed: the output of a command stays in a value as "$(command)".
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::tools::doctor {

struct Assignment {
  std::string name, value;
  int line = 0;
};

// A program that is started; or, with `lost`, one that `export A=1 program` only seems to start.
struct Started {
  std::string name;
  int line = 0;
  bool lost = false;
};

struct SettingsFile {
  std::vector<Assignment> assignments;            // in the order of the file
  std::map<std::string, Assignment> environment;  // as it is at the end; a prefix of a command counts
  std::vector<Started> programs;
  std::vector<std::string> problems;  // what was not understood, with its line
};

// `name` is the file's, which decides where its text does not (Dockerfile, .service).
SettingsFile read_settings(std::string_view text, std::string_view name);

constexpr size_t kSettingsLimit = 4 << 20;  // bytes of a file that are read

}  // namespace pyflame::tools::doctor
