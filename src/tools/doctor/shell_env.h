// The environment that a file of settings makes: shell scripts, .env files, Dockerfiles, systemd units, compose files and manifests
// (YAML), and guides with code blocks (Markdown, reStructuredText). Lines are never executed: in a value, the output of a command remains "$(command)".
#pragma once
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::tools::doctor {

// A place in a file that is not reached in every run. `construct` numbers the if, the case, the stage, the service, the command.
struct Branch {
  int construct = 0, arm = 0;
  // true: what is set inside counts inside only (a subshell, a stage, a service, one command). false: an arm of if or case, after which
  // the setting remains.
  bool scope = false;
};

struct Assignment {
  std::string name, value;
  int line = 0;
  std::string reason;  // what a comment beside it or above it, or the text above a code block, says about why it is set
  std::vector<Branch> path;  // from the outermost to the innermost
  bool unset = false;        // the variable is removed
  bool one_command = false;  // set in front of a command, for it alone
  bool mentioned = false;    // in the running text of a guide, which need not advise it
};

// A program that is started. If `lost` is true, `export A=1 program` only seems to start it.
struct Started {
  std::string name;
  int line = 0;
  bool lost = false;
};

struct SettingsFile {
  std::vector<Assignment> assignments;  // in the order of the file
  // The value at the end of the file, whichever arm or scope set it.
  std::map<std::string, Assignment> environment;
  std::vector<Started> programs;
  std::set<std::string> reads;        // variables that the file itself uses
  std::vector<std::string> problems;  // lines that were not understood, with their numbers
  bool guide = false;                 // text with code blocks, for a reader
};

// `name` is the name of the file. It decides the format if the text does not (Dockerfile, .service).
SettingsFile read_settings(std::string_view text, std::string_view name);

using Settings = std::map<std::string, Assignment>;
// The environments that a file makes: one for each combination of scope and arm in which it sets one of the variables that `counts`
// accepts. In each, of two arms of one if only one has been taken. At least one; at most `most`.
std::vector<Settings> alternatives(const SettingsFile& file, bool (*counts)(std::string_view), size_t most = 64);
// Whether a run of the file that reaches `a` or `b` with all that is around it reaches the other one, too.
bool same_place(const Assignment& a, const Assignment& b);

constexpr size_t kSettingsLimit = 4 << 20;  // the number of bytes of a file that are read

}  // namespace pyflame::tools::doctor
