// --fix: the commands of the findings as a script to read, and then to run by hand. Settings of the shell come first, so that the
// script can be sourced; what needs root is marked by its sudo and comes last.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "pyflame/doctor/text.h"

namespace pyflame::doctor {

namespace {

using Json = nlohmann::json;

// One line, so that nothing of it leaves its comment.
std::string comment(const Json& f, const char* key) {
  const auto it = f.find(key);
  return it != f.end() && it->is_string() ? view::clean(it->get<std::string>(), 2000) : "";
}

}  // namespace

std::string fix_script(const Json& document) {
  std::string settings, commands, root, by_hand;
  std::set<std::string> seen;
  for (const Json& f : document["findings"]) {
    const std::string command = comment(f, "command"), where = comment(f, "where");
    std::string why = fmt::format("\n# {} {}: {}{}\n", comment(f, "severity"), comment(f, "id"), comment(f, "what"),
                                  where.empty() ? "" : " (set at " + where + ")");
    why += view::wrap("# " + comment(f, "why"), 120).append("\n");
    for (size_t p = 2; (p = why.find('\n', p)) != std::string::npos && p + 1 < why.size(); p += 3)
      if (why[p + 1] != '#') why.insert(p + 1, "# ");
    if (command.empty()) {
      if (const std::string fix = comment(f, "fix"); !fix.empty() && comment(f, "severity") != "INFO")
        by_hand += why + "# By hand: " + fix + "\n";
      continue;
    }
    if (!seen.insert(command).second) continue;
    const bool of_shell = command.starts_with("export ") || command.starts_with("unset ");
    const bool needs_root = command.find("sudo ") != std::string::npos;
    (of_shell ? settings : needs_root ? root : commands) += why + command + "\n";
  }
  std::string out =
      "#!/bin/sh\n# What pyflame doctor advises. It has changed nothing: read each line, remove what you do not want, "
      "and run the\n"
      "# rest. Settings act only where this file is sourced ( . ./fix.sh ), or where they are copied to.\n";
  const auto section = [&](const char* title, const std::string& body) {
    if (!body.empty()) out += fmt::format("\n# ---- {}\n", title) + body;
  };
  section("Settings", settings);
  section("Commands", commands);
  section("Commands that need root", root);
  section("Without a command", by_hand);
  if (settings.empty() && commands.empty() && root.empty() && by_hand.empty())
    out += "\n# Nothing to mend was found.\n";
  return out;
}

}  // namespace pyflame::doctor
