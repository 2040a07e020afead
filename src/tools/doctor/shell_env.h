// The environment that a file of settings makes: shell scripts, .env files, Dockerfiles, systemd units, compose files and manifests
// (YAML), and guides with code blocks (Markdown, reStructuredText). Lines are never executed: in a value, the output of a command remains "$(command)".
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

// A program that is started. If `lost` is true, `export A=1 program` only seems to start it.
struct Started {
  std::string name;
  int line = 0;
  bool lost = false;
};

struct SettingsFile {
  std::vector<Assignment> assignments;  // in the order of the file
  std::map<std::string, Assignment>
      environment;  // the value at the end of the file; assignments in front of a command count
  std::vector<Started> programs;
  std::vector<std::string> problems;  // lines that were not understood, with their numbers
};

// `name` is the name of the file. It decides the format if the text does not (Dockerfile, .service).
SettingsFile read_settings(std::string_view text, std::string_view name);

constexpr size_t kSettingsLimit = 4 << 20;  // the number of bytes of a file that are read

}  // namespace pyflame::tools::doctor
